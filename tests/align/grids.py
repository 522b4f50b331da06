"""Collectives of made-up jobs on grids of ranks, executed event by event, with known communicators and clocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from tests.align.collectives import Made, table_of

from alltrace.align.clock_sharing import PlacedRank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.align.clocks import Solution


Row = tuple[float, float, int, int, str, int, int, int]


@dataclass(frozen=True)
class Grid:
    """A job; tensor parallel ranks are neighbours, then data parallel ones, then pipeline stages.

    Attributes:
        tensor: Ranks of a tensor parallel group; likewise `data` and `stages`.
        hosts: Hosts, each with as many neighbouring ranks.
        steps: Training steps.
        layers: Layers of a stage, each with two tensor parallel all-reduces a pass.
        micro: Micro-batches of a step.
        streams: "one" for all communicators, "each" for each kind of them, or "links", with messages to either
            neighbour apart.
        world: A small all-reduce of all ranks ends a step.
        layer_ns: Compute of a layer and pass; `noise` is its relative spread.
        offset_s: Bound of the hosts' offsets; likewise `drift_ppm`.
        stamp_ms: Standard deviation of each report's stamp about its host's clock.
        late_ns: Mean lateness of a recorded end.
        causal: Whether what follows an end moves with its lateness, as on real devices.
        edge: Ranks' captures begin and end up to this share of the run late and early.
        seed: Everything random follows from it.
    """

    tensor: int = 2
    data: int = 2
    stages: int = 1
    hosts: int = 2
    steps: int = 10
    layers: int = 4
    micro: int = 1
    streams: str = "each"
    world: bool = True
    layer_ns: float = 1e6
    noise: float = 0.02
    offset_s: float = 0.5
    drift_ppm: float = 20.0
    stamp_ms: float = 1.0
    late_ns: float = 500.0
    causal: bool = False
    edge: float = 0.0
    seed: int = 0

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.tensor * self.data * self.stages


@dataclass(frozen=True)
class Executed:
    """A job's tables, its ranks as a run has them, and the true clocks: shifted time is `true * (1 + drift) +
    offset`."""

    made: Made
    placed: list[PlacedRank]
    offset_ns: NDArray[np.float64]
    drift: NDArray[np.float64]
    span_ns: float
    groups: set[tuple[int, ...]]

    def anonymous(self) -> Executed:
        """The same without what only NVTX tells: kernels alone."""
        made = self.made.without("communicator", "bytes", "group_size", "group_rank", "peer", "sequence")
        tables = {}
        for rank, table in made.tables.items():
            tables[rank] = _one_op_for_messages(table)
        return replace(self, made=Made(tables, made.truth, made.shifts_ns, made.names))

    def clock_error_ns(self, solution: Solution) -> float:
        """The largest error of an aligned time over the run, against the first host's ranks."""
        times = np.linspace(0, self.span_ns, 9)
        rate = {c.host: c.drift_ppm * 1e-6 for c in solution.clocks}
        found = []
        for p, offset, drift in zip(self.placed, self.offset_ns, self.drift, strict=True):
            shifted = times + offset + drift * times - solution.ahead_ns[p.rank]
            found.append(shifted - rate[p.host] * shifted - times)
        error = np.array(found)
        first = [p.host == self.placed[0].host for p in self.placed]
        return float(np.abs(error - error[first].mean(axis=0)).max())


def _one_op_for_messages(table):
    import pyarrow as pa

    from alltrace.trace.names import name_id

    both = {name_id("Send"), name_id("Recv")}
    at = table.column_names.index("op")
    ops = [name_id("SendRecv") if v in both else v for v in table.column("op").to_pylist()]
    table = table.set_column(at, "op", pa.array(ops, pa.int64()))
    kernels = pa.array(["kernel"] * table.num_rows, pa.string()).dictionary_encode()
    return table.set_column(table.column_names.index("evidence"), "evidence", kernels)


def execute(job: Grid) -> Executed:
    """Run the job."""
    rng = np.random.default_rng((job.seed, 4711))
    count, t, d = job.ranks, job.tensor, job.data
    stage_of = [r // (t * d) for r in range(count)]
    tensor_of = [tuple(range(r - r % t, r - r % t + t)) for r in range(count)]
    data_of = [tuple(stage_of[r] * t * d + r % t + t * k for k in range(d)) for r in range(count)]
    programs = [_program(job, r, tensor_of[r], data_of[r], stage_of[r]) for r in range(count)]
    rows: list[list[Row]] = [[] for _ in range(count)]
    ids: dict[tuple[int, ...], int] = {}
    now = rng.uniform(0, 2e6, count)
    waiting: dict[tuple[int, ...], dict[int, float]] = {}
    at = [0] * count
    instance = 0
    todo = list(range(count))
    while todo:
        r = todo.pop()
        if at[r] == len(programs[r]):
            continue
        kind, members, length, way = programs[r][at[r]]
        if not members:
            now[r] += length * max(0.2, 1.0 + job.noise * rng.standard_normal())
            at[r] += 1
            todo.append(r)
            continue
        here = waiting.setdefault(members, {})
        here[r] = now[r] + 2_000
        if len(here) < len(members):
            continue
        end = max(here.values()) + length * (1.0 + 0.05 * abs(rng.standard_normal()))
        stream = 20 if job.streams == "one" else 20 + _stream(kind, members, job)
        for member in members:
            own = kind if kind == "AllReduce" else "Send" if (members.index(member) == 0) == (way > 0) else "Recv"
            number = ids.setdefault(members, len(ids))
            late = rng.exponential(job.late_ns)
            rows[member].append((here[member], end + late, instance, number, own, stream, round(length), len(members)))
            now[member] = end + (late if job.causal else 0.0)
            at[member] += 1
        todo.extend(members)
        del waiting[members]
        instance += 1
    return _recorded(job, rng, rows, ids)


def _stream(kind, members, job):
    if kind in ("Send", "Recv"):
        return 1 if job.streams == "each" else 4 + members[0] // (job.tensor * job.data)
    if len(members) == job.ranks:
        return 3
    return 0 if members[-1] - members[0] == job.tensor - 1 and job.tensor > 1 else 2


def _program(job: Grid, rank: int, tensor: tuple[int, ...], data: tuple[int, ...], stage: int):
    """What a rank does: kind, members (of computing none), length in ns, and which way a message goes."""
    span = job.tensor * job.data
    steps = []
    for _ in range(job.steps):
        for way in (1, -1):
            for _ in range(job.micro):
                if 0 <= stage - way < job.stages:
                    steps.append(("Recv", tuple(sorted((rank - way * span, rank))), 90_000, way))
                for _ in range(2 * job.layers):
                    steps.append(("compute", (), job.layer_ns / 2 if way > 0 else job.layer_ns, 0))
                    if job.tensor > 1:
                        steps.append(("AllReduce", tensor, 60_000, 0))
                if 0 <= stage + way < job.stages:
                    steps.append(("Send", tuple(sorted((rank, rank + way * span))), 90_000, way))
        for _ in range(2 if job.data > 1 else 0):
            steps.append(("AllReduce", data, 700_000, 0))
            steps.append(("compute", (), job.layer_ns / 10, 0))
        if job.world:
            steps.append(("AllReduce", tuple(range(job.ranks)), 30_000, 0))
        steps.append(("compute", (), job.layer_ns / 2, 0))
    return steps


def _recorded(job, rng, rows, ids):
    count = job.ranks
    per_host = -(-count // job.hosts)
    host = np.arange(count) // per_host
    offset = rng.uniform(-job.offset_s, job.offset_s, job.hosts) * 1e9
    drift = rng.uniform(-job.drift_ppm, job.drift_ppm, job.hosts) * 1e-6
    offset[0] = drift[0] = 0.0
    offset, drift = offset[host] + rng.standard_normal(count) * job.stamp_ms * 1e6, drift[host]
    span = max(r[1] for mine in rows for r in mine)
    names = [f"group {i}" for i in range(len(ids))]
    tables, truth, shifts, placed = {}, {}, {}, []
    for rank, mine in enumerate(rows):
        low, high = rng.uniform(0, job.edge, 2) * span
        kept = sorted(r for r in mine if low <= r[0] and r[1] <= span - high)
        session = int(rng.uniform(1e9, 2e10))
        start, end = (np.array([r[i] for r in kept]) * (1 + drift[rank]) + offset[rank] + session for i in (0, 1))
        members = {i: m for m, i in ids.items()}
        tables[rank] = table_of(
            start=start,
            end=end,
            communicator=[names[r[3]] for r in kept],
            op=[r[4] for r in kept],
            bytes=[r[6] for r in kept],
            stream=[r[5] for r in kept],
            datatype=["bfloat16"] * len(kept),
            group_size=[r[7] for r in kept],
            group_rank=[members[r[3]].index(rank) for r in kept],
            peer=[1 - members[r[3]].index(rank) if r[4] in ("Send", "Recv") else None for r in kept],
        )
        truth[rank], shifts[rank] = np.array([r[2] for r in kept], np.int64), -session
        placed.append(PlacedRank(rank, f"node{host[rank]}", rank, -session))
    return Executed(Made(tables, truth, shifts, names), placed, offset, drift, span, set(ids))
