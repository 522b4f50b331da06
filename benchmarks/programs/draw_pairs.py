"""Draws programs with two causes that hide each other: without one, the other still costs the time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.programs.draw import FIXED, cause_of_share
from benchmarks.programs.draw_uneven import drawn, late_cause, recorded, uneven_cause, with_barrier, with_uneven_peers
from benchmarks.programs.losses import leaves_a_trace, measure
from benchmarks.programs.model import Cause, Without
from benchmarks.programs.training import Lowered
from benchmarks.programs.worlds import as_ideal

if TYPE_CHECKING:
    from benchmarks.programs.model import Program

PAIR = "pair"
PAIRS = (
    ("straggler", "data-stall"), ("straggler", "host-pause"), ("straggler", "late-rank"), ("straggler", "allocation"),
    ("uneven-expert", "straggler"), ("uneven-sequence", "data-stall"), ("uneven-sequence", "late-rank"),
    ("exposed-communication", "straggler"), ("exposed-communication", "data-stall"),
)  # fmt: skip
"""Kinds of the two causes."""

_FAMILIES = {
    "uneven-expert": ("experts",),
    "exposed-communication": ("ddp", "fsdp", "hybrid", "zero", "tensor"),
    "": ("tensor", "pipeline", "fsdp", "ddp", "zero", "experts"),
}
_VARIANTS = {
    "data-stall": ("slow workers", "host loads"),
    "host-pause": ("descheduled",),
    "allocation": ("cudaMalloc", "cudaFree"),
}
_DRAWS = 8
_HIDDEN = 0.1
LEAST_ALONE = 0.015
"""The share that a cause costs without the other one, at least."""


@dataclass(frozen=True)
class Gains:
    """What is gained without the causes of a pair.

    Attributes:
        judged_ns: Time of the judged steps with both.
        alone: The share of it that is gained without the first, and without the second.
        together: The share that is gained without both.
        traceless: Whether the judged steps record the same without one of them.
    """

    judged_ns: int
    alone: tuple[float, float]
    together: float
    traceless: bool = False

    @property
    def by_itself(self) -> tuple[float, float]:
        """What each costs once the other is gone."""
        return self.together - self.alone[1], self.together - self.alone[0]

    @property
    def hidden(self) -> float:
        """What is gained only without both."""
        return self.together - sum(self.alone)


def gains_of(program: Program) -> Gains:
    """Execute a program with two causes again: without each, and without both."""
    judged_ns = measure(program)
    first, second, both = (1 - measure(program, Without(frozenset(which))) / judged_ns for which in ([0], [1], [0, 1]))
    return Gains(judged_ns, (first, second), both)


def _template(chance: random.Random, program: Program, kind: str, others: tuple[int, ...]) -> Cause | None:
    """A cause of a kind, of an amount that is to be found; its process is none of those of the other cause."""
    devices = program.view.devices
    taken = {rank // devices for rank in others}
    free = [rank for rank in range(program.grid.ranks) if rank // devices not in taken]
    if kind.startswith("uneven"):
        return uneven_cause(chance, program, kind)
    if not free:
        return None
    rank = chance.choice(free)
    if kind == "late-rank":
        return late_cause(chance, program, rank)
    ranks = () if kind in FIXED else (rank,)
    return Cause(kind, chance.choice(_VARIANTS.get(kind, ("",))), ranks, 0.0, frozenset(range(program.steps)))


def _pair(chance: random.Random, seed: int) -> Program | None:
    """A program with two causes of about the same cost; None if it cannot have them."""
    kinds = chance.choice(PAIRS)
    families = next((_FAMILIES[kind] for kind in kinds if kind in _FAMILIES), _FAMILIES[""])
    program = with_uneven_peers(chance, drawn(chance, seed, families, tuple(k for k in kinds if k in FIXED)))
    program = with_barrier(chance, program) if "late-rank" in kinds else program
    program = recorded(program, seed)
    lowered, clean_ns = Lowered(program), measure(program)
    share = chance.uniform(0.04, 0.2)
    causes: list[Cause] = []
    for kind in kinds:
        wanted = _template(chance, program, kind, causes[0].ranks if causes else ())
        if wanted is None or wanted.variant.endswith("rotating"):
            return None
        cause = cause_of_share(chance, program, wanted, share * chance.uniform(0.75, 1.3), lowered, clean_ns)
        if cause is None:
            return None
        if kind in FIXED:  # the other one is to cost about the same
            share = 1 - clean_ns / measure(replace(program, causes=(cause,)))
            if share < LEAST_ALONE:
                return None
        causes.append(cause)
    return replace(program, causes=tuple(causes))


def draw_pair(seed: int, *, ideal: bool = False) -> tuple[Program, Gains]:
    """The program of a seed with two causes that hide each other in part or whole, and what is gained without them.

    After some draws without such causes it is the last one, whose gains tell that.

    Args:
        seed: All that is drawn follows from it.
        ideal: The same program in the ideal world.
    """
    chance = random.Random(f"{seed} {PAIR}")
    draws = 0
    while True:
        program = _pair(chance, seed)
        if program is None:
            continue
        draws += 1
        gains = gains_of(program)
        if hides(gains) or draws == _DRAWS:
            break
    if ideal:
        program = as_ideal(program)
        gains = gains_of(program)
    if hides(gains):
        gains = replace(
            gains, traceless=not all(leaves_a_trace(program, place) for place in range(len(program.causes)))
        )
    return program, gains


def hides(gains: Gains) -> bool:
    """Whether each of two causes costs something by itself, a tenth of which at least is hidden by the other."""
    least = min(gains.by_itself)
    return least >= LEAST_ALONE and gains.hidden >= _HIDDEN * least
