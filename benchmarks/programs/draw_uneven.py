"""Draws programs whose ranks have uneven work, or one rank that is late at a barrier; and healthy ones like them.

Uneven work is more work on the ranks at fault, the others having the usual one. What is gained without it is the time
of an execution in which they have the work of their peers, for a report does not show whether work was moved or added.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.programs.changing import EXPERT, OTHER_KERNEL, SEQUENCES, STAGE
from benchmarks.programs.draw import cause_of_share, draw_program
from benchmarks.programs.host_work import LATE_RANGES
from benchmarks.programs.losses import measure
from benchmarks.programs.model import Cause, Communicator
from benchmarks.programs.training import Lowered
from benchmarks.programs.worlds import as_ideal, as_recorded

if TYPE_CHECKING:
    from benchmarks.programs.model import Program

UNEVEN = ("uneven-expert", "uneven-sequence", "uneven-stage", "uneven-kernel")
"""Uneven work, by how it comes about."""

LATE = "late-rank"
TWIN = "healthy-twin"
LEAST_RANKS, MOST_RANKS = 4, 16
_LAYOUTS = ("tensor", "pipeline", "fsdp", "ddp", "zero", "hybrid")
_FAMILIES = {"uneven-expert": ("experts",), "uneven-stage": ("pipeline",), "uneven-sequence": _LAYOUTS}
_LEAST, _MOST = 0.02, 0.25
"""Shares that causes cost."""

_BARRIER_STREAM = 52


def drawn(chance: random.Random, seed: int, families: tuple[str, ...], kinds: tuple[str, ...] = ()) -> Program:
    """A program of 4 to 16 ranks and 8 to 12 steps, captured as a whole, in which these kinds can be found."""
    while True:
        program = draw_program(chance, seed, list(kinds), chance.choice(families))
        if LEAST_RANKS <= program.grid.ranks <= MOST_RANKS:
            view = replace(program.view, late=())
            return replace(program, steps=chance.randint(8, 12), checkpoint=None, view=view)


def recorded(program: Program, seed: int) -> Program:
    """The program as profilers record it by default, in two processes or more."""
    seen = as_recorded(program, seed)
    return seen if seen.view.devices < program.grid.ranks else replace(seen, view=replace(seen.view, devices=1))


def with_uneven_peers(chance: random.Random, program: Program) -> Program:
    """The program with tokens and sequences that differ a little, as routers and data always make them."""
    grid = program.grid
    if grid.ep > 1:
        spread = chance.uniform(0.003, 0.02)
        tokens = tuple(chance.gauss(1, spread) for _ in range(grid.ranks))
        return replace(program, tokens=tokens, halves=chance.choice((1, 2)))
    spread = chance.uniform(0.003, 0.015)
    if grid.dp == 1 or program.style == "vision" or chance.random() < 0.5:
        return program
    return replace(
        program, lengths=tuple(tuple(chance.gauss(1, spread) for _ in range(program.steps)) for _ in range(grid.dp))
    )


def with_barrier(chance: random.Random, program: Program) -> Program:
    """The program with a barrier of all ranks at the end of steps: every one, or every second or third."""
    bandwidth = min(link.bandwidth for link in program.communicators)
    latency_ns = max(link.latency_ns for link in program.communicators)
    everyone = tuple(range(program.grid.ranks))
    link = Communicator("barrier", everyone, _BARRIER_STREAM, chance.getrandbits(62) | 1, bandwidth, latency_ns)
    waits, every = chance.choice(("stream", "device")), chance.choice((1, 1, 2, 3))
    return replace(program, communicators=(*program.communicators, link), barrier=waits, barrier_every=every)


def late_cause(chance: random.Random, program: Program, rank: int) -> Cause:
    """A rank that has work of its own before each barrier, of an amount that is to be found."""
    what = chance.choice(("logging", "evaluation", "checkpoint", "device"))
    text = chance.choice(LATE_RANGES[what]) if chance.random() < 0.5 else ""
    steps = frozenset(step for step in range(program.steps) if program.meets_after(step))
    return Cause(LATE, f"{what}: {text}", (rank,), 0.0, steps)


def uneven_cause(chance: random.Random, program: Program, kind: str) -> Cause:
    """Uneven work of a kind, of an amount to be found, except for layers, of which there are one or two more."""
    grid = program.grid
    steps = frozenset(range(program.steps))

    def cause(what: str, how: str, ranks: tuple[int, ...], amount: float = 1.0) -> Cause:
        return Cause("imbalance", f"{what}, {how}" if how else what, ranks, amount, steps)

    def places(index: int, place: int, modulo: int) -> tuple[int, ...]:
        return tuple(rank for rank in range(grid.ranks) if grid.place(rank)[index] % modulo == place)

    if kind == "uneven-expert":
        hot = places(2, chance.randrange(grid.ep), grid.ep)  # in each group of experts the same one
        ranks = hot if chance.random() < 0.7 else (chance.choice(hot),)
        return cause(EXPERT, chance.choice(("grids", "kernels", "both")), ranks)
    if kind == "uneven-sequence":
        if grid.dp > 1 and chance.random() < 0.35:
            return cause(SEQUENCES, "rotating", tuple(range(grid.ranks)))
        return cause(SEQUENCES, "", places(2, chance.randrange(grid.dp), grid.dp))
    if kind == "uneven-stage":
        return cause(STAGE, "", places(3, chance.randrange(grid.pp), grid.pp), chance.choice((1.0, 1.0, 2.0)))
    part = chance.choice(("conv",) if program.style == "vision" else ("attention", "unfused attention", "gemm"))
    return cause(OTHER_KERNEL, part, (chance.randrange(grid.ranks),))


def _program(chance: random.Random, seed: int, kind: str) -> Program:
    program = drawn(chance, seed, _FAMILIES.get(kind, (*_LAYOUTS, "experts")))
    program = with_uneven_peers(chance, program)
    if kind == LATE:
        return with_barrier(chance, program)
    if kind == "uneven-stage":
        return replace(program, layers=chance.randint(3, 7))
    if kind == "uneven-kernel":  # the same ranges show that it is the same work
        return replace(program, view=replace(program.view, phases=True, operators=chance.random() < 0.5))
    return program


def draw_uneven(seed: int, kind: str, *, ideal: bool = False) -> Program:
    """The program of a seed with uneven work or a late rank, or with neither, as profilers record it by default.

    Args:
        seed: All that is drawn follows from it.
        kind: One of `UNEVEN`, `late-rank`, or `healthy-twin` for a program of one of these kinds without its cause.
        ideal: The same program in the ideal world.
    """
    chance = random.Random(f"{seed} {kind}")
    of_kind = chance.choice((*UNEVEN, LATE)) if kind == TWIN else kind
    program = recorded(_program(chance, seed, of_kind), seed)
    if kind != TWIN:
        if kind == LATE:
            cause = late_cause(chance, program, 0 if chance.random() < 0.6 else chance.randrange(program.grid.ranks))
        else:
            cause = uneven_cause(chance, program, kind)
        if kind != "uneven-stage":
            share = math.exp(chance.uniform(math.log(_LEAST), math.log(_MOST)))
            cause = cause_of_share(chance, program, cause, share, Lowered(program), measure(program)) or cause
        program = replace(program, causes=(cause,))
    return as_ideal(program) if ideal else program
