"""Sets of things that are merged pair by pair, such as ranks that a chain of collectives connects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from alltrace.trace.arrays import Int64


class DisjointSets:
    """Sets of the numbers 0 to n - 1, with `together` in one; nearly constant time for each question (Tarjan 1975)."""

    def __init__(self, count: int, together: Iterable[Sequence[int]] = ()) -> None:
        self._above = list(range(count))
        for one, other in together:
            self.join(one, other)

    def of(self, member: int) -> int:
        """The number of a member's set: the lowest member in it."""
        above = self._above
        while above[member] != member:
            above[member] = member = above[above[member]]
        return member

    def join(self, one: int, other: int) -> bool:
        """Put the sets of two members together; whether they were apart."""
        low, high = sorted((self.of(one), self.of(other)))
        self._above[high] = low
        return low != high

    def labels(self) -> Int64:
        """For each number the lowest of its set: int64 array of n."""
        return np.array([self.of(n) for n in range(len(self._above))], np.int64)
