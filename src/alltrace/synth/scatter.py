"""How much later than the transfer each member of an operation ends: as measured with NVLink, and over hosts.

Measured is the spread between the first and the last end of an instance. It depends on the operation; it is partly
systematic: the same members are late in the same mode, and modes alternate. `LAWS` has for each operation what fits one
of the machines; a run draws which machine it is on. A delay grows with the square root of the transfer, unless it was
measured to be of one length, and over hosts by a factor. No member ends before the transfer that begins with the last
arrival has passed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OVER_HOSTS = 3.0
"""The factor of an operation over hosts: all-to-alls of 128 ranks end up to 330 us apart, of two on one host up to
27."""

_BLOCK = 256
_LEAST_GROWTH, _MOST_GROWTH = 0.5, 4.0


class Mode(NamedTuple):
    share: float  # of the instances
    systematic_ns: float  # by how much the latest member is always later than the earliest; others are in between
    random_ns: float  # mean of what comes on top, exponential, of each member and instance
    grows: bool = True  # whether a longer transfer makes it longer


class Law(NamedTuple):
    transfer_ns: float  # the transfer at which it was measured
    modes: tuple[Mode, ...]


LAWS: dict[str, tuple[Law, ...]] = {
    "AllGather": (Law(300_000, (Mode(0.5, 2_000, 9_500), Mode(0.5, 8_000, 24_000))),
        Law(300_000, (Mode(0.6, 3_000, 2_000), Mode(0.4, 19_500, 2_000)))),
    "ReduceScatter": (Law(300_000, (Mode(0.55, 500, 2_300), Mode(0.45, 4_000, 15_500))),
        Law(700_000, (Mode(0.5, 16_000, 1_500), Mode(0.5, 21_500, 3_000)))),
    "AllReduce": (Law(20_000, (Mode(0.55, 200, 600), Mode(0.45, 500, 1_700))),
        Law(20_000, (Mode(0.53, 2_000, 500), Mode(0.34, 6_500, 1_200), Mode(0.13, 207_500, 1_500, grows=False)))),
    "AllToAll": (Law(150_000, (Mode(0.5, 22_000, 1_200), Mode(0.5, 22_500, 2_000))),
        Law(150_000, (Mode(0.5, 8_000, 1_500), Mode(0.5, 12_500, 2_800)))),
}  # fmt: skip
"""For each operation the scatter on one machine of four A100 and on one of four H100; all-to-alls on two of two H100.
The longest mode is of one length: all that was measured of it lies within 2 us."""

_LIKE = {
    "SendRecv": "AllToAll", "AlltoAll": "AllToAll", "Broadcast": "AllGather", "Gather": "AllGather",
    "Scatter": "AllGather", "Reduce": "ReduceScatter",
}  # fmt: skip
"""Operations of which no spread was measured, and the one whose law they follow."""


def law_of(operation: str, machine: int) -> Law:
    laws = LAWS[_LIKE.get(operation, operation)]
    return laws[machine % len(laws)]


class Delays:
    """The delays of all operations of a run; everything follows from its seed. `factor`: times what was measured."""

    def __init__(self, seed: int, factor: float) -> None:
        self._seed = seed
        self._factor = factor
        self._machine = int(np.random.default_rng((seed, 41)).integers(0, 2))
        self._drawn: dict[tuple[int, str], tuple[list[list[float]], list[bool]]] = {}

    def of(
        self, communicator: int, number: int, operation: str, transfer_ns: int, members: int, *, across: bool
    ) -> list[int]:
        """How much later than the transfer each member ends, in ns."""
        # `communicator`: number of the communicator. `number`: number of the operation in it. `transfer_ns`: how long
        # the transfer takes. `members`: how many there are. `across`: whether they are on several hosts.
        law = law_of(operation, self._machine)
        drawn = self._drawn.get((communicator, operation))
        if drawn is None:
            random = np.random.default_rng((self._seed, 43, communicator, *operation.encode()))
            delays, grows = draw_delays(law, members, _BLOCK, random)
            drawn = self._drawn[communicator, operation] = delays.tolist(), grows.tolist()
        delays_ns, growing = drawn[0][number % _BLOCK], drawn[1][number % _BLOCK]
        growth = min(max((transfer_ns / law.transfer_ns) ** 0.5, _LEAST_GROWTH), _MOST_GROWTH) if growing else 1.0
        growth *= self._factor * (OVER_HOSTS if across else 1.0)
        return [int(growth * delay) for delay in delays_ns]


def draw_delays(
    law: Law, members: int, instances: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Delays of instances in ns, float64, shape (instances, members), and which grow with the transfer."""
    modes = law.modes
    chosen = random.choice(len(modes), size=instances, p=[m.share for m in modes])
    late = random.random((len(modes), members))
    low, high = late.min(axis=1, keepdims=True), late.max(axis=1, keepdims=True)
    late = (late - low) / np.where(high > low, high - low, 1.0)
    systematic = np.array([m.systematic_ns for m in modes])[:, None] * late
    noise = random.exponential(1.0, (instances, members)) * np.array([m.random_ns for m in modes])[chosen][:, None]
    return systematic[chosen] + noise, np.array([m.grows for m in modes])[chosen]
