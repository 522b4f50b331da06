"""Draws programs with one cause that changes in time, or healthy ones whose steps differ by their data."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.programs.draw import draw_program
from benchmarks.programs.model import Cause
from benchmarks.programs.worlds import as_ideal, as_recorded

if TYPE_CHECKING:
    from benchmarks.programs.model import Program

CHANGES = ("throttling", "device-stall", "regression")
"""Kinds that change in time."""

HEALTHY = "healthy"
STEPS = (10, 30, 100)
_MOST_RANKS = {10: 8, 30: 8, 100: 4}
_MOST_VISITS = {10: 8, 30: 6, 100: 4}
"""The most layers and micro-batches of a step, so that long runs are not large."""


def _program(chance: random.Random, seed: int) -> Program:
    """A program of some length, captured as a whole."""
    steps = chance.choice(STEPS)
    program = draw_program(chance, seed, [])
    while program.grid.ranks > _MOST_RANKS[steps]:
        program = draw_program(chance, seed, [])
    layers, micro = program.layers, program.micro
    while layers * micro > _MOST_VISITS[steps] and layers > 2:
        layers -= 1
    checkpoint = chance.randint(program.warmup + 1, steps - 3) if steps > STEPS[0] and chance.random() < 0.15 else None
    view = replace(program.view, late=())
    return replace(program, steps=steps, layers=layers, checkpoint=checkpoint, view=view)


def _lengths(chance: random.Random, program: Program, *, each: bool) -> tuple[tuple[float, ...], ...]:
    """Lengths of sequences in each step, of all ranks or of each data parallel place; 8 to 25 % about the usual one."""
    spread = chance.uniform(0.08, 0.25)
    places = program.grid.dp if each else 1
    return tuple(
        tuple(min(2.0, max(0.4, chance.gauss(1, spread))) for _ in range(program.steps)) for _ in range(places)
    )


def _slower_devices(chance: random.Random, program: Program) -> tuple[int, ...]:
    """One device, the devices of a host, or two devices; never all of the job."""
    grid = program.grid
    what = chance.choice(("device", "device", "device", "host", "two"))
    if what == "host" and grid.hosts > 1:
        host = chance.randrange(grid.hosts)
        return tuple(r for r in range(grid.ranks) if grid.host_of(r) == host)
    return tuple(sorted(chance.sample(range(grid.ranks), 2 if what == "two" and grid.ranks > 2 else 1)))


def _stretches(chance: random.Random, first: int, steps: int) -> frozenset[int]:
    """Several stretches of steps with usual ones between them, the first from a step on."""
    times = chance.randint(2, 2 if steps - first < 12 else 5)
    period = (steps - first) / times
    length = max(1.0, chance.uniform(0.25, 0.65) * period)
    begins = [int(first + n * period) for n in range(times)]
    return frozenset(step for begin in begins for step in range(begin, min(steps, begin + int(length))))


def _cause(chance: random.Random, program: Program, kind: str) -> Cause:
    steps, usual = program.steps, program.warmup + 1  # at least one judged step is as usual
    onset = chance.randint(usual, steps - 3)
    if kind == "throttling":
        factor = chance.uniform(1.15, 2.0)
        often = chance.random() < 0.4
        acts = _stretches(chance, chance.randint(usual, steps // 2), steps) if often else frozenset(range(onset, steps))
        variant = "again and again" if often else "from a step on"
        ranks = _slower_devices(chance, program)
        return Cause(kind, variant, ranks, factor, acts, memory_amount=1 + (factor - 1) * chance.uniform(0.1, 0.6))
    if kind == "device-stall":
        count = max(1, round(chance.uniform(0.02, 0.2) * steps))
        acts = frozenset(chance.sample([s for s in program.judged if s >= usual], count))
        course = tuple(chance.uniform(5e6, 60e6) for _ in range(steps))
        return Cause(kind, "", (chance.randrange(program.grid.ranks),), 1.0, acts, course=course)
    variants = ["sequences", "allocations", "kernels"]
    variant = chance.choice(variants[:2] if program.view.graphs != "none" else variants)
    growth = chance.uniform(0.1, 0.6)
    gradual = chance.random() < 0.5
    parts = [(s - onset + 1) / (steps - onset) if gradual else 1.0 for s in range(steps)]
    if variant == "allocations":
        growth *= 3 * program.layer_ns * program.layers * program.micro  # backward takes twice as long as forward
    course = tuple((variant != "allocations") + growth * part for part in parts)
    acts = frozenset(range(onset, steps))
    return Cause(kind, f"{variant}, gradually" if gradual else variant, (), 1.0, acts, course=course)


def draw_change(seed: int, kind: str, *, ideal: bool = False) -> Program:
    """The program of a seed with a cause that changes in time, or with none, as profilers record it by default.

    Args:
        seed: All that is drawn follows from it.
        kind: One of `CHANGES`, or `healthy` for steps that differ by their data alone.
        ideal: The same program in the ideal world.
    """
    chance = random.Random(f"{seed} {kind}")
    program = _program(chance, seed)
    if kind == HEALTHY:
        program = replace(program, lengths=_lengths(chance, program, each=chance.random() < 0.5))
    else:
        program = replace(program, causes=(_cause(chance, program, kind),))
    return as_ideal(program) if ideal else as_recorded(program, seed)


def onsets_of(cause: Cause) -> tuple[int, int]:
    """The first step in which a cause acts, and the first in which it may be said to: halfway, if it grows."""
    first = min(cause.steps)
    return first, first + (max(cause.steps) - first) // 2 if cause.variant.endswith("gradually") else first
