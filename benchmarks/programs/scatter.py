"""How much later than the transfer each member of an operation ends: as measured on machines with NVLink, and over hosts.

Measured is the spread between the first and the last end of an instance. It depends on the operation; it is partly systematic:
the same members are late in the same mode, and modes alternate. `LAWS` has for each operation what fits one of the machines; a
program draws which machine it runs on. A delay grows with the square root of the transfer, and over hosts by a factor. No member
ends before the transfer that begins with the last arrival has passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from benchmarks.programs.training import Lowered

ROOTED = {"Broadcast": True, "Reduce": False, "Scatter": True, "Gather": False}
"""Rooted operations, and whether their root is the one that sends."""

OVER_HOSTS = 3.0
"""The factor of an operation over hosts: all-to-alls of 128 ranks end up to 330 us apart, of two on one host up to 27."""

_BLOCK = 256
_LEAST_GROWTH, _MOST_GROWTH = 0.5, 4.0


class Mode(NamedTuple):
    """One way of being late.

    Attributes:
        share: Of the instances.
        systematic_ns: By how much the latest member is always later than the earliest; others are in between.
        random_ns: Mean of what comes on top, exponential, of each member and instance.
    """

    share: float
    systematic_ns: float
    random_ns: float


class Law(NamedTuple):
    """The scatter of an operation on a machine.

    Attributes:
        transfer_ns: The transfer at which it was measured.
        modes: The modes.
    """

    transfer_ns: float
    modes: tuple[Mode, ...]


LAWS: dict[str, tuple[Law, ...]] = {
    "AllGather": (
        Law(300_000, (Mode(0.5, 2_000, 9_500), Mode(0.5, 8_000, 24_000))),
        Law(300_000, (Mode(0.6, 3_000, 2_000), Mode(0.4, 19_500, 2_000))),
    ),
    "ReduceScatter": (
        Law(300_000, (Mode(0.55, 500, 2_300), Mode(0.45, 4_000, 15_500))),
        Law(700_000, (Mode(0.5, 16_000, 1_500), Mode(0.5, 21_500, 3_000))),
    ),
    "AllReduce": (
        Law(20_000, (Mode(0.55, 200, 600), Mode(0.45, 500, 1_700))),
        Law(20_000, (Mode(0.53, 2_000, 500), Mode(0.34, 6_500, 1_200), Mode(0.13, 207_500, 1_500))),
    ),
    "AllToAll": (
        Law(150_000, (Mode(0.5, 22_000, 1_200), Mode(0.5, 22_500, 2_000))),
        Law(150_000, (Mode(0.5, 8_000, 1_500), Mode(0.5, 12_500, 2_800))),
    ),
}
"""For each operation the scatter on one machine of four A100 and on one of four H100; all-to-alls on two of two H100."""

_LIKE = {"SendRecv": "AllToAll", "Broadcast": "AllGather", "Gather": "AllGather", "Scatter": "AllGather", "Reduce": "ReduceScatter"}
"""Operations of which no spread was measured, and the one whose law they follow."""


def law_of(operation: str, machine: int) -> Law:
    """The scatter of an operation on one of the machines."""
    laws = LAWS[_LIKE.get(operation, operation)]
    return laws[machine % len(laws)]


class Scatter:
    """The ends of all operations of a program; everything follows from its seed.

    Args:
        lowered: The program's instructions, which know what each operation is.
        factor: Times what was measured; 0 lets all members end at once.
    """

    def __init__(self, lowered: Lowered, factor: float) -> None:
        self._lowered = lowered
        self._factor = factor
        self._seed = lowered.program.seed
        self._machine = int(np.random.default_rng((self._seed, 41)).integers(0, 2))
        self._drawn: dict[tuple[int, str], list[list[float]]] = {}

    def root(self, communicator: int, number: int) -> tuple[int, bool] | None:
        """The rank of the root of a rooted operation, and whether it is the one that sends; the first member is the root."""
        operation = self._lowered.operations[communicator, number].name
        sends = ROOTED.get(operation)
        return None if sends is None else (self._lowered.program.communicators[communicator].ranks[0], sends)

    def delays_ns(self, communicator: int, number: int, transfer_ns: int) -> dict[int, int]:
        """By rank, how much later than the transfer its kernel ends, in ns."""
        if not self._factor or "communication" in self._lowered.without.natural:
            return {}
        operation = self._lowered.operations[communicator, number].name
        delays = self._delays(communicator, operation)[number % _BLOCK]
        growth = (transfer_ns / law_of(operation, self._machine).transfer_ns) ** 0.5
        growth = self._factor * min(max(growth, _LEAST_GROWTH), _MOST_GROWTH)
        ranks = self._lowered.program.communicators[communicator].ranks
        return {rank: int(growth * delay) for rank, delay in zip(ranks, delays, strict=True)}

    def _delays(self, communicator: int, operation: str) -> list[list[float]]:
        """A block of instances of an operation on a communicator by members, in ns, at the transfer that was measured."""
        found = self._drawn.get((communicator, operation))
        if found is None:
            program = self._lowered.program
            ranks = program.communicators[communicator].ranks
            random = np.random.default_rng((self._seed, 43, communicator, *operation.encode()))
            across = len({program.grid.host_of(r) for r in ranks}) > 1
            delays = draw_delays(law_of(operation, self._machine), len(ranks), _BLOCK, random)
            found = self._drawn[communicator, operation] = ((OVER_HOSTS if across else 1.0) * delays).tolist()
        return found


def draw_delays(law: Law, members: int, instances: int, random: np.random.Generator) -> np.ndarray:
    """Delays of instances in ns, float64, shape (instances, members)."""
    modes = law.modes
    chosen = random.choice(len(modes), size=instances, p=[m.share for m in modes])
    late = random.random((len(modes), members))
    low, high = late.min(axis=1, keepdims=True), late.max(axis=1, keepdims=True)
    late = (late - low) / np.where(high > low, high - low, 1.0)
    systematic = np.array([m.systematic_ns for m in modes])[:, None] * late
    noise = random.exponential(1.0, (instances, members)) * np.array([m.random_ns for m in modes])[chosen][:, None]
    delays: np.ndarray = systematic[chosen] + noise
    return delays
