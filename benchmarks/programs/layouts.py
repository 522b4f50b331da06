"""Programs for matching: every layout, on several hosts, seen as unkindly as real profilers see them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.programs.draw import draw_program
from benchmarks.programs.model import SPECIALS, Cause, Clock, Grid

if TYPE_CHECKING:
    from benchmarks.programs.model import Program, View

LAYOUTS = ("tp-dp", "pp", "pp-batched", "ep", "fsdp", "dp")
IDS = ("ids", "names", "none")
"""What the reports tell of communicators: payloads with identifiers, names of NCCL's ranges, or nothing but kernels."""

SCATTERS = (1.0, 3.0, 10.0)
PROCESSES = ("one device", "4 devices", "4 x 8 devices")
"""One process for each device; one process with four devices; a process with eight devices on each of four hosts."""

_FAMILIES = {
    "tp-dp": "tensor",
    "pp": "pipeline",
    "pp-batched": "pipeline",
    "ep": "experts",
    "fsdp": "fsdp",
    "dp": "ddp",
}
_CAUSES = (("none", 1.0), ("straggler", 1.25), ("straggler", 1.4), ("slow-host", 1.3))
_MOST_OFFSET_NS = 4e9
_DRIFT = 1e-5
_STEPS = 6


@dataclass(frozen=True)
class Setting:
    """What a program for matching is.

    Attributes:
        layout: One of `LAYOUTS`.
        ids: One of `IDS`.
        scatter: How much ends scatter, in what was measured.
        processes: One of `PROCESSES`.
        special: One of `SPECIALS`, or empty.
    """

    layout: str
    ids: str
    scatter: float
    processes: str = PROCESSES[0]
    special: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.layout, self.ids, f"x {self.scatter:g}", self.processes, self.special)))


def setting_of(index: int) -> Setting:
    """The setting of the program of an index: ids and scatters in turn, over layouts; some with several devices."""
    turn, rest = index % 9, index // 9
    layout = LAYOUTS[rest % len(LAYOUTS)]
    several = {0: PROCESSES[1], 4: PROCESSES[2]}.get((turn + rest + rest // len(LAYOUTS)) % 9, PROCESSES[0])
    return Setting(layout, IDS[turn % 3], SCATTERS[turn // 3], several)


def special_of(index: int) -> Setting:
    """The setting of a special program: all specials in turn, each with all ids in turn and a scatter of 1 or 3."""
    special, rest = SPECIALS[index % len(SPECIALS)], index // len(SPECIALS)
    layout = LAYOUTS[rest % len(LAYOUTS)] if special in ("windows", "dropped") else ("tp-dp", "dp")[rest // 3 % 2]
    if special == "one group" or special.startswith("captured"):
        layout = "tp-dp"
    return Setting(layout, IDS[rest % 3], SCATTERS[rest // 3 % 2], special=special)


def draw_for_matching(seed: int, setting: Setting, most_ranks: int = 64) -> Program:
    """The program of a seed, in the unkind world; the same but for what `setting` tells.

    Args:
        seed: Of all that is drawn.
        setting: Its layout, and what its reports tell.
        most_ranks: The most that may be drawn.
    """
    chance = random.Random(f"{seed} {setting.layout} {setting.processes}")
    grid = _grid(chance, setting, most_ranks)
    program = draw_program(chance, seed, [], _FAMILIES[setting.layout], grid, batched=setting.layout == "pp-batched")
    kind, amount = chance.choice(_CAUSES)
    causes: tuple[Cause, ...] = ()
    if kind != "none":
        one = chance.randrange(grid.ranks)
        ranks = (one,) if kind == "straggler" or grid.hosts == 1 else tuple(
            r for r in range(grid.ranks) if grid.host_of(r) == grid.host_of(one)
        )  # fmt: skip
        causes = (Cause("straggler" if len(ranks) == 1 else kind, "", ranks, amount, frozenset(range(_STEPS))),)
    view = _view(chance, program.view, setting, grid)
    return replace(
        program, steps=_STEPS, warmup=1, checkpoint=None, causes=causes, view=view,
        scatter=setting.scatter, rooted=chance.random() < 0.4, special=setting.special,
        norm_item=program.norm_item and not setting.special.startswith("captured"),
    )  # fmt: skip


def _grid(chance: random.Random, setting: Setting, most_ranks: int) -> Grid:
    if setting.processes == "4 devices":
        ranks, hosts = 4, 1
    elif setting.processes == "4 x 8 devices":
        ranks, hosts = 32, 4
    else:
        ranks = min(most_ranks, chance.choices((8, 16, 32, 64), (5, 5, 2, 1))[0])
        hosts = chance.choice([h for h in (2, 2, 4, 8) if ranks // h >= 2])
    tp = cp = pp = ep = 1
    if setting.layout == "tp-dp":
        tp = chance.choice([t for t in (2, 4, 8) if 2 * t <= ranks])
    elif setting.layout in ("pp", "pp-batched"):
        pp = chance.choice([p for p in (2, 4) if 2 * p <= ranks])
        tp = 2 if ranks >= 4 * pp and chance.random() < 0.5 else 1
    dp = ranks // (tp * cp * pp)
    if setting.layout == "ep":
        ep = chance.choice([e for e in (2, 4, 8) if e <= dp])
    return Grid(tp, cp, dp, pp, ep, hosts)


def _view(chance: random.Random, view: View, setting: Setting, grid: Grid) -> View:
    clocks = tuple(
        Clock(int(chance.choice((-1, 1)) * 10 ** chance.uniform(5, 9.6)), chance.gauss(0, _DRIFT / 2), 0)
        for _ in range(grid.hosts)
    )
    return replace(
        view,
        nccl=chance.choice(("json", "binary")) if setting.ids == "ids" else setting.ids,
        graphs="none",
        clocks=clocks,
        late=(),
        missing=(),
        streams_differ=True,
        protocols_differ=True,
        groups=setting.ids != "none",
        windows=_windows(chance, setting.special, grid.ranks),
        dropped=_dropped(chance, grid.ranks) if setting.special == "dropped" else (),
        devices={"4 devices": 4, "4 x 8 devices": 8}.get(setting.processes, 1),
        stamp_ns=500,
    )


def _windows(chance: random.Random, special: str, ranks: int) -> tuple[tuple[int, float, float], ...]:
    """What is captured of each rank, in steps; empty if all of it is."""
    if special == "captured before":
        return tuple((rank, 1.5, float(_STEPS)) for rank in range(ranks))
    if special == "windows":
        return tuple(
            (rank, chance.uniform(0.3, 1.2), chance.uniform(_STEPS - 1.2, _STEPS - 0.3)) for rank in range(ranks)
        )
    return ()


def _dropped(chance: random.Random, ranks: int) -> tuple[tuple[int, float, float], ...]:
    """Intervals of some ranks whose records were dropped, in steps."""
    some = chance.sample(range(ranks), max(1, ranks // 4))
    intervals = []
    for rank in some:
        for _ in range(chance.choice((1, 1, 3))):
            begin = chance.uniform(1.0, _STEPS - 0.5)
            intervals.append((rank, begin, begin + chance.choice((0.05, 0.2, 0.5))))
    return tuple(intervals)
