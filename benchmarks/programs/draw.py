"""Draws programs, and causes for them that cost a share which is drawn too."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from benchmarks.programs import names
from benchmarks.programs.changing import EXPERT, OTHER_KERNEL, SEQUENCES
from benchmarks.programs.losses import measure
from benchmarks.programs.machine import COLLECTIVE, GRAPH, KERNEL
from benchmarks.programs.model import Cause, Clock, Communicator, Grid, Program, View, Without
from benchmarks.programs.training import Lowered
from benchmarks.programs.worlds import as_ideal, as_recorded

KINDS = (
    "straggler", "slow-host", "imbalance", "jitter", "slow-communicator", "low-bandwidth", "exposed-communication",
    "serialized-communication", "launch-bound", "sync", "host-pause", "data-stall", "pageable-copy", "sync-copy",
    "exposed-transfer", "allocation", "module-loading", "recompilation", "unexplained", "missing-rank",
)  # fmt: skip
"""What can be planted."""

LEAST, MOST = 0.005, 0.4
FIXED = ("exposed-communication", "serialized-communication")
"""Causes without an amount: what they cost follows from the program."""

UNDONE_OTHERWISE = ("sync", "pageable-copy", "sync-copy", "exposed-transfer")
"""Causes that are replaced by a correct version when removed, so that the result differs from a program that never had
them."""

_PART_OF_WORK = {"sequence": 0.2, "expert": 0.25, EXPERT: 0.25, OTHER_KERNEL: 0.3}
"""About which part of a rank's compute uneven work is about; all of it otherwise."""

_NOW_AND_THEN = ("host-pause", "module-loading", "recompilation", "allocation")
_STEP_TEXTS = (
    "step {}", "ProfilerStep#{}", "iteration_{}", "train_step", "Step {}", "iter {}", "global_step {}", "training_step",
    "Iteration {}", "[pl][profile]run_training_batch", None, None, None,
)  # fmt: skip
_DATA_TEXTS = (
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "[DALI][Executor] Run", "dataloader", "next_batch",
    "data", "fetch_batch", "batch-generator", None, None, None,
)  # fmt: skip
_FAMILIES = {
    "ddp": 5, "zero": 3, "fsdp": 4, "hybrid": 1, "tensor": 3, "pipeline": 3, "context": 1, "experts": 2, "mpi": 1,
    "vision": 2, "graphs": 1,
}  # fmt: skip
_FIT = {
    "exposed-communication": {"ddp": 3, "fsdp": 3, "hybrid": 1, "zero": 1, "tensor": 1},
    "serialized-communication": {"tensor": 1},
    "slow-communicator": {"tensor": 3, "pipeline": 2, "context": 1, "hybrid": 1, "experts": 1},
    "low-bandwidth": {"tensor": 3, "pipeline": 2, "hybrid": 1},
    "recompilation": {"ddp": 2, "fsdp": 2, "zero": 1},
}
"""The families in which a kind can be detected."""


def _log_uniform(chance: random.Random, low: float, high: float) -> float:
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def _pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _grid(chance: random.Random, family: str, kinds: list[str]) -> Grid:
    ranks = chance.choices((2, 4, 8, 16, 32, 64), (3, 8, 8, 2.5, 0.4, 0.15))[0]
    if family in ("tensor", "pipeline", "context", "experts", "hybrid") or {"slow-host", "missing-rank"} & set(kinds):
        ranks = max(ranks, 8 if {"slow-communicator", "low-bandwidth"} & set(kinds) or family == "hybrid" else 4)
    tp = cp = pp = ep = 1
    if family == "tensor":
        tp = chance.choice([t for t in (2, 4, 8) if t * 2 <= ranks])
    elif family == "pipeline":
        pp = chance.choice([p for p in (2, 4) if p * 2 <= ranks])
        tp = 2 if ranks >= 4 * pp and chance.random() < 0.6 else 1
    elif family == "context":
        cp = chance.choice([c for c in (2, 4) if c * 2 <= ranks])
        tp = 2 if ranks >= 4 * cp and chance.random() < 0.3 else 1
    dp = ranks // (tp * cp * pp)
    if family == "experts":
        ep = chance.choice([e for e in (2, 4, 8) if e <= dp])
    most = max(1, ranks // 2) if ranks > 2 else 2
    hosts = chance.choice([h for h in (1, 1, 2, 2, 4, 8) if h <= most])
    if {"slow-host"} & set(kinds) or family == "hybrid":
        hosts = max(2, hosts)
    return Grid(tp, cp, dp, pp, ep, hosts)


def _groups(grid: Grid, family: str, *, batched: bool) -> list[tuple[str, tuple[int, ...]]]:
    """The communicators by role and members."""
    places = {r: grid.place(r) for r in range(grid.ranks)}

    def by(*same: int) -> list[tuple[int, ...]]:
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, place in places.items():
            found.setdefault(tuple(place[i] for i in same), []).append(rank)
        return [tuple(members) for members in found.values()]

    groups: list[tuple[str, tuple[int, ...]]] = []
    if grid.tp > 1:
        groups += [("tp", g) for g in by(1, 2, 3)]
    if grid.cp > 1:
        groups += [("cp", g) for g in by(0, 2, 3)]
    if family == "hybrid":
        size = grid.ranks // grid.hosts
        groups += [("shard", tuple(range(h * size, (h + 1) * size))) for h in range(grid.hosts)]
        groups += [("replicate", tuple(range(i, grid.ranks, size))) for i in range(size)]
    elif family == "fsdp":
        groups.append(("shard", tuple(range(grid.ranks))))
    elif grid.dp * grid.cp > 1:
        groups += [("dp", g) for g in by(0, 3)]
    if grid.ep > 1:
        for members in by(0, 1, 3):
            groups += [("ep", members[i : i + grid.ep]) for i in range(0, len(members), grid.ep)]
    for stage in range(grid.pp - 1):
        for role in ("exchange",) if batched else ("forward", "backward"):
            groups += [
                (role, (rank, rank + grid.dp * grid.cp * grid.tp))
                for rank, place in places.items()
                if place[3] == stage
            ]
    if family in ("fsdp", "hybrid") or (family == "zero"):
        groups.append(("norm", tuple(range(grid.ranks))))
    elif grid.tp * grid.pp > 1:
        groups += [("norm", g) for g in by(1, 2)]
    return groups


def _communicators(
    chance: random.Random, grid: Grid, family: str, *, batched: bool = False
) -> tuple[Communicator, ...]:
    inside, across = chance.choice((40.0, 120.0, 230.0, 370.0)), chance.choice((3.0, 10.0, 22.0, 45.0, 90.0))
    inside = max(inside, across)
    streams = {
        "tp": 20,
        "cp": 24,
        "dp": 28,
        "shard": 28,
        "replicate": 32,
        "ep": 36,
        "forward": 40,
        "backward": 44,
        "norm": 48,
    }
    streams["exchange"] = 40
    if chance.random() < 0.3:  # some frameworks have one stream for all that is not tensor-parallel
        streams |= {"norm": 28, "ep": 28}
    made = []
    pipelines: dict[tuple[int, int, int], int] = {}
    for role, members in _groups(grid, family, batched=batched):
        local = len({grid.host_of(r) for r in members}) == 1
        identifier = chance.getrandbits(62) | 1
        world: tuple[int, ...] = ()
        if role == "exchange":  # one communicator of all stages
            tensor, context, data, _ = grid.place(members[0])
            identifier = pipelines.setdefault((tensor, context, data), identifier)
            world = tuple(grid.rank_at(tensor, context, data, stage) for stage in range(grid.pp))
        made.append(
            Communicator(
                role,
                members,
                streams[role],
                identifier,
                inside if local else across,
                chance.randint(1_500, 4_000) if local else chance.randint(4_000, 12_000),
                world,
            )
        )
    return tuple(made)


def _clocks(chance: random.Random, hosts: int) -> tuple[Clock, ...]:
    scale = _log_uniform(chance, 2e3, 3e11)
    return tuple(
        Clock(
            int(chance.uniform(-scale, scale)),
            chance.gauss(0, 1e-5),
            int(chance.uniform(-2e7, 2e7)) if chance.random() < 0.02 else 0,
        )
        for _ in range(hosts)
    )


def _view(chance: random.Random, grid: Grid, family: str, steps: int) -> View:
    late: tuple[tuple[int, float], ...] = ()
    if chance.random() < 0.07:
        late = ((chance.randrange(grid.ranks), chance.uniform(1.2, min(2.8, steps / 3))),)
    phases = chance.random() < 0.5
    return View(
        step_text=chance.choice(_STEP_TEXTS),
        phases=phases,
        operators=phases and chance.random() < 0.3,
        nccl="none" if family == "mpi" else chance.choice(("json", "json", "binary", "bytes", "none")),
        data_text=chance.choice(_DATA_TEXTS),
        osrt=chance.random() < 0.5,
        graphs=chance.choice(("whole", "nodes")) if family == "graphs" else "none",
        schema=chance.choice(("3.1.7", "3.7.2", "3.11.4", "3.17.1", "3.25.0", "3.30.1")),
        clocks=_clocks(chance, grid.hosts),
        late=late,
        naming=chance.choice(("rank{:03d}", "report_{}", "node-r{:02d}", "profile.{}")),
    )


def _sizes(
    chance: random.Random, communicators: tuple[Communicator, ...], layer_ns: int, kinds: list[str]
) -> tuple[int, int, float]:
    """Bytes of a layer's parameters and activations, by their share of communication; and the parameters' share."""
    heavy = {"slow-communicator", "low-bandwidth"} & set(kinds)

    def size(role: str, operation: str, wanted_ns: float) -> int:
        links = [c for c in communicators if c.role == role]
        if not links:
            return 1 << 22
        slowest = min(links, key=lambda c: c.bandwidth)
        return max(4_096, int(wanted_ns * slowest.bandwidth / slowest.passes(operation)) // 256 * 256)

    busy = chance.random() < 0.1
    small = chance.uniform(0.02, 0.1) if busy or "slow-communicator" in kinds else _log_uniform(chance, 0.002, 0.015)
    activation = min(
        size(role, operation, factor * small * layer_ns)
        for role, operation, factor in (
            ("tp", "AllReduce", 1),
            ("ep", "AllToAll", 2),
            ("forward", "SendRecv", 2),
            ("exchange", "SendRecv", 2),
            ("cp", "SendRecv", 6),
        )
    )
    big = chance.uniform(0.3, 0.8) if busy or "exposed-communication" in kinds else _log_uniform(chance, 0.005, 0.08)
    big = chance.uniform(0.1, 0.3) if heavy else big
    if any(c.role == "shard" for c in communicators):
        return size("shard", "AllGather", big * layer_ns), activation, big
    return size("dp", "AllReduce", big * 2 * layer_ns), activation, big


def draw_program(
    chance: random.Random,
    seed: int,
    kinds: list[str],
    family: str | None = None,
    grid: Grid | None = None,
    *,
    batched: bool = False,
) -> Program:
    """A program in which causes of these kinds can be detected.

    Args:
        chance: What all is drawn from.
        seed: Of the program's noise.
        kinds: Of the causes.
        family: One of `_FAMILIES`, drawn if None.
        grid: Its ranks, drawn if None.
        batched: Whether stages of a pipeline exchange in groups on one communicator.
    """
    family = family or _pick(chance, next((_FIT[k] for k in kinds if k in _FIT), _FAMILIES))
    grid = grid or _grid(chance, family, kinds)
    steps = chance.randint(6, 9)
    warmup = chance.choice((1, 1, 2))
    layers = chance.randint(2, 5)
    micro = max(grid.pp, chance.choice((2, 4))) if grid.pp > 1 else chance.choice((1, 1, 1, 2, 3))
    while layers * micro > (8 if grid.ranks <= 8 else 6) and layers > 2:
        layers -= 1
    serialized = "serialized-communication" in kinds
    if serialized:  # operations queue after a bucket that backward would hide
        layers, micro = chance.randint(4, 6), 1
    host_bound = "launch-bound" in kinds or chance.random() < 0.06
    shortest, longest = (1.5e5, 4e5) if host_bound else (4e5, 1.5e6) if "sync" in kinds else (8e5, 5e6)
    layer_ns = int(_log_uniform(chance, shortest, longest))
    communicators = _communicators(chance, grid, family, batched=batched)
    parameters, activations, parameters_share = _sizes(chance, communicators, layer_ns, kinds)
    transformers = [s for s in names.STYLES if s != "vision"]
    step_ns = 3 * layer_ns * layers * micro
    workers = chance.choice((2, 4, 8))
    return Program(
        seed=seed,
        grid=grid,
        zero={"zero": chance.choice((1, 2)), "fsdp": 3, "hybrid": 3}.get(family, 0),
        hybrid=family == "hybrid",
        mpi=family == "mpi",
        staged=chance.random() < 0.4,
        style=(
            "vision" if family == "vision" else "compiled" if "recompilation" in kinds else chance.choice(transformers)
        ),
        layers=layers,
        micro=micro,
        steps=steps,
        warmup=warmup,
        checkpoint=chance.randint(warmup + 1, steps - 3) if chance.random() < 0.15 else None,
        layer_ns=layer_ns,
        parameter_bytes=parameters,
        activation_bytes=activations,
        gap_ns=chance.randint(2_000, 7_000),
        call_ns=chance.randint(3_000, 6_000),
        noise=_log_uniform(chance, 0.003, 0.04),
        buckets=layers if serialized else chance.randint(2, 4),
        first_bucket=chance.uniform(0.9, layers - 1.5) / parameters_share if serialized else chance.uniform(1.0, 1.5),
        prefetch=True,
        overlap=bool({"exposed-communication", "serialized-communication"} & set(kinds)) or chance.random() < 0.9,
        tp_on_compute="serialized-communication" not in kinds and chance.random() < 0.25,
        norm=chance.random() < 0.7,
        norm_item=chance.random() < 0.4,
        loss_item_every=chance.choice((0, 1, 1, 1, 2, 10)),
        loader_workers=workers,
        loader_ns=int(chance.uniform(0.1, 0.6) * step_ns / micro * workers),
        input_bytes=int(_log_uniform(chance, 1e4, 4e6)),
        input_stream=chance.random() < 0.3,
        optimizer_kernels=chance.randint(2, 8),
        communicators=communicators,
        batched=batched,
        view=_view(chance, grid, family, steps),
    )


def _culprits(chance: random.Random, program: Program, kind: str) -> tuple[str, tuple[int, ...]]:
    """A variant of a kind and the ranks at fault; none if all are."""
    grid = program.grid
    one = (chance.randrange(grid.ranks),)
    some = one if chance.random() < 0.5 else ()
    column = chance.randrange(grid.dp)
    same_data = tuple(r for r in range(grid.ranks) if grid.place(r)[2] == column)
    if kind == "straggler" and grid.ranks > 4 and chance.random() < 0.15:
        return "equally slow", tuple(sorted(chance.sample(range(grid.ranks), 2)))
    if kind in ("straggler", "missing-rank"):
        return "", one
    if kind == "slow-host":
        host = chance.randrange(grid.hosts)
        return "", tuple(r for r in range(grid.ranks) if grid.host_of(r) == host)
    if kind == "imbalance":
        variants = (
            ["static", "rotating", "launches"]
            + ["expert"] * 3 * (grid.ep > 1)
            + ["sequence"] * (program.style != "vision")
        )
        variant = chance.choice(variants)
        return variant, tuple(range(grid.ranks)) if variant == "rotating" else same_data
    variants = {
        "jitter": ["kernels", "steps"],
        "launch-bound": ["slow launches", "slow launches", "tiny kernels"],
        "sync": ["stream", "device", "item"],
        "data-stall": ["slow workers", "host loads"],
        "host-pause": ["descheduled", "descheduled", "in turn"],
        "sync-copy": ["HtoD", "DtoH"],
        "pageable-copy": ["HtoD", "HtoD", "DtoH"],
        "exposed-transfer": ["HtoD"],
        "allocation": ["cudaMalloc", "cudaFree"],
        "module-loading": ["cuModuleLoadData", "cuLibraryLoadData", "cuModuleLoadDataEx"],
        "recompilation": ["torch/_dynamo/convert_frame.py: _compile", "Torch-Compiled Region: 2/1", "CompiledFxGraph"],
    }.get(kind, [""])
    everyone = ("jitter", "exposed-communication", "serialized-communication", "sync", "exposed-transfer")
    variant = chance.choice(variants)
    return variant, () if kind in everyone or variant == "in turn" else some


def _link_cause(chance: random.Random, program: Program, kind: str) -> Cause | None:
    """A communicator or a rank's links, if others of its kind show that it is slow."""
    grid = program.grid
    by_role: dict[tuple[str, int], list[int]] = {}
    for index, link in enumerate(program.communicators):
        hosts = len({grid.host_of(r) for r in link.ranks})
        if link.role not in ("norm", "barrier", "forward", "backward", "exchange"):
            by_role.setdefault((link.role, hosts), []).append(index)
    choices = [found for found in by_role.values() if len(found) > 1]
    if not choices:
        return None
    index = chance.choice(chance.choice(choices))
    ranks = program.communicators[index].ranks
    steps = frozenset(range(program.steps))
    if kind == "slow-communicator":
        return Cause(kind, "", ranks, 1.0, steps, index)
    rank = chance.choice(ranks)
    across = len({grid.host_of(r) for r in ranks}) > 1
    return Cause(kind, "nic" if across else "nvlink", (rank,), 1.0, steps, index)


def _per_step(
    program: Program, lowered: Lowered, ranks: tuple[int, ...], communicators: set[int]
) -> tuple[float, float, float]:
    """Mean of a step of the first rank: time of kernels, of transfers of some communicators, number of launches."""
    rank = ranks[0] if ranks else 0
    compute = transfers = launches = 0.0
    for op in lowered.code[rank]:
        if op[0] in (KERNEL, COLLECTIVE, GRAPH):
            launches += 1
        if op[0] == KERNEL:
            compute += op[3]
        elif op[0] == GRAPH:
            compute += sum(k[1] for k in op[2])
        elif op[0] == COLLECTIVE and op[6] in communicators:
            transfers += op[3]
    return compute / program.steps, max(transfers / program.steps, 1.0), launches / program.steps


def _cause(
    chance: random.Random, program: Program, wanted: str | Cause, step_ns: float, lowered: Lowered, share: float
) -> tuple[Cause, float] | None:
    """A cause that costs about this share, and by how many ns a unit of its amount lengthens a step, once it does."""
    kind = wanted if isinstance(wanted, str) else wanted.kind
    extra = step_ns * share / (1 - share)
    steps = frozenset(range(program.steps))
    if kind in ("slow-communicator", "low-bandwidth"):
        cause = _link_cause(chance, program, kind)
        if cause is None:
            return None
        touched = {cause.communicator} if kind == "slow-communicator" else {
            i for i, c in enumerate(program.communicators) if cause.ranks[0] in c.ranks
        }  # fmt: skip
        _, transfers, _ = _per_step(program, lowered, cause.ranks, {i for i in touched if i is not None})
        return replace(cause, amount=1 + extra / transfers), transfers
    if isinstance(wanted, str):
        variant, ranks = _culprits(chance, program, kind)
    else:
        variant, ranks, steps = wanted.variant, wanted.ranks, wanted.steps
    if kind in FIXED:
        roles = {c.role for c in program.communicators}
        possible = roles & {"dp", "shard"} and not program.mpi and (kind[0] == "e" or "tp" in roles)
        return (Cause(kind, variant, ranks, 1.0, steps), 1.0) if possible else None
    compute, _, launches = _per_step(program, lowered, ranks, set())
    acts = 1.0  # the part of the judged steps in which it acts
    often = chance.choice((1, 1, 2, 3)) if kind in _NOW_AND_THEN and isinstance(wanted, str) else 1
    if often > 1 and variant != "in turn":
        steps = frozenset(range(chance.randrange(often) + program.warmup, program.steps, often))
        acts = len(steps & set(program.judged)) / len(program.judged)
        if not acts:
            return None
    visits = program.layers * program.micro
    host_ns = program.gap_ns + program.call_ns
    slopes = {
        "straggler": compute,
        "slow-host": compute,
        "missing-rank": compute,
        "imbalance": compute * _PART_OF_WORK.get(variant.partition(",")[0], 1.0),
        "jitter": step_ns if variant == "steps" else step_ns / 4,
        "launch-bound": launches * program.gap_ns if variant == "slow launches" else 2 * visits * host_ns,
        "sync": visits / (2 if variant == "item" else 1),
    }
    slope = slopes.get(kind, acts)
    start = {"slow launches": (step_ns / launches - program.call_ns) / program.gap_ns, "slow workers": step_ns}.get(
        variant
    )
    if start is None:
        start = 1.0 if kind in ("straggler", "slow-host", "missing-rank", "imbalance") else 0.0
    return Cause(kind, variant, ranks, start + extra / slope, steps), slope


def _most(program: Program, cause: Cause, step_ns: float) -> float:
    """The largest amount of a cause that keeps a program small, and hidden what its removal is to hide."""
    if cause.kind == "sync":
        return min(8e5, 0.5 * step_ns / (program.layers * program.micro))  # longer, it would be a pause of the host
    if cause.kind == "jitter":
        return 1.2
    if cause.kind == "imbalance":  # sequences twice as long take four times as long in attention
        return {SEQUENCES: 2.0, EXPERT: 5.0, OTHER_KERNEL: 5.0}.get(cause.variant.partition(",")[0], math.inf)
    if cause.variant == "tiny kernels":
        return max(4.0, 1_500 / program.steps / (2 * program.layers * program.micro))
    return math.inf


def cause_of_share(
    chance: random.Random, program: Program, wanted: str | Cause, share: float, lowered: Lowered, clean_ns: int
) -> Cause | None:
    """A cause that costs about a share of the time where it is the only one; None if the program cannot have it.

    Args:
        chance: What all is drawn from.
        program: The program without causes.
        wanted: A kind, or a cause of which only the amount is to be found.
        share: Of the judged time.
        lowered: The program's instructions.
        clean_ns: Its judged time.
    """
    found = _cause(chance, program, wanted, clean_ns / len(program.judged), lowered, share)
    return None if found is None else _tuned(program, *found, share, clean_ns)


def _tuned(program: Program, cause: Cause, slope: float, share: float, clean_ns: int) -> Cause:
    """The cause with the amount at which it costs about the share that was drawn."""
    if cause.kind in FIXED:
        return cause
    steps = len(program.judged)
    least = 1.0 if cause.amount > 1 and cause.kind in ("straggler", "slow-host", "missing-rank", "imbalance") else 0.0
    for _ in range(4):
        alone = replace(program, causes=(cause,))
        with_it = measure(alone)
        without = measure(alone, Without(frozenset([0]))) if cause.kind in UNDONE_OTHERWISE else clean_ns
        cost = (with_it - without) / with_it
        if 0.6 * share <= cost <= 1.6 * share:
            break
        if with_it - without < 0.1 * without * share / (1 - share) and cause.amount > least:  # hidden: hosts run ahead
            cause = replace(
                cause, amount=min(least + 2 * (cause.amount - least), _most(program, cause, without / steps))
            )
            continue
        missing = (without * share / (1 - share) - (with_it - without)) / steps
        amount = cause.amount + missing / slope
        if amount <= least:
            amount = (cause.amount + least) / 2
        cause = replace(cause, amount=min(amount, _most(program, cause, without / steps)))
    return cause


def draw(seed: int, kind: str | None = None, *, ideal: bool = False) -> Program:
    """The program of a seed, as profilers record it by default.

    Args:
        seed: All that is drawn follows from it.
        kind: One of `KINDS` to plant alone, `none` to plant nothing; None to draw what is planted.
        ideal: The same program in the ideal world.
    """
    program = plant(seed, kind)
    return as_ideal(program) if ideal else as_recorded(program, seed)


def plant(seed: int, kind: str | None = None) -> Program:
    """The program of a seed with its causes, whose reports tell what is drawn for them; arguments as of `draw`."""
    chance = random.Random(seed)
    kinds = [kind] if kind else list(chance.sample(KINDS, chance.choices((0, 1, 2, 3), (10, 65, 17, 8))[0]))
    kinds = [k for k in kinds if k != "none"]
    if "missing-rank" in kinds:
        kinds = [
            "missing-rank",
            *(k for k in kinds if k not in ("missing-rank", "straggler", "slow-host", "imbalance")),
        ]
    program = draw_program(chance, seed, kinds)
    lowered = Lowered(program)
    clean_ns = measure(program) if kinds else 0
    made: list[Cause] = []
    for name in kinds:
        share = max(
            _log_uniform(chance, LEAST * 1.2, MOST), _log_uniform(chance, LEAST * 1.2, MOST) * (chance.random() < 0.5)
        )
        cause = cause_of_share(chance, program, name, share, lowered, clean_ns)
        if cause is not None:
            made.append(cause)
    view = program.view
    missing = tuple(r for c in made if c.kind == "missing-rank" for r in c.ranks)
    if missing:
        view = replace(view, missing=missing, late=tuple(x for x in view.late if x[0] not in missing))
    return replace(program, causes=tuple(made), view=view)
