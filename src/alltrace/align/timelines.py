"""The operations of each rank as times and kinds: what unknown clocks and communicators are found from.

Operations of a rank that are alike in all but their time are of one kind. A run has few kinds, which fit into memory where its
operations do not; the times of one rank are read when they are needed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alltrace.align.operations import Operations
    from alltrace.trace.arrays import Int64


class RankTimes(NamedTuple):
    """The operations of a rank, by their end: int64 arrays of n.

    Attributes:
        start: Start in the time of the rank's files, ns; likewise `end`.
        sequence: The profiler's sequence number, -1 without one.
        kind: Row in the kinds.
    """

    start: Int64
    end: Int64
    sequence: Int64
    kind: Int64


class Timelines(Protocol):
    """The operations of all ranks.

    Attributes:
        kinds: One row for each kind of each rank, by rank; times and sequence number are of one of its operations.
        counts: The operations of each kind: int64 array of the length of `kinds`.
        extents: For each rank with operations, by number, the first and the last end, ns in the time of its files.
        ranks_at_once: The number of ranks whose times may be in memory at once; None for all.
    """

    kinds: Operations
    counts: Int64
    extents: Mapping[int, tuple[int, int]]
    ranks_at_once: int | None

    def of(self, rank: int) -> RankTimes:
        """The operations of a rank."""
        ...

    def named(self, found: Callable[[int], Int64], count: int) -> Self:
        """The same operations with communicators that were inferred.

        Args:
            found: For each operation of a rank, as `of` has them, the number of its communicator among these, -1 for none.
            count: How many communicators were inferred.
        """
        ...


class HeldTimelines:
    """Operations that are in memory, each of which is a kind of its own; see `Timelines`.

    Args:
        operations: The operations of all ranks.
    """

    def __init__(self, operations: Operations) -> None:
        self.kinds = operations
        self.counts = np.ones(len(operations), np.int64)
        ranks, begins = np.unique(operations.rank, return_index=True)
        bounds = pairwise([*begins.tolist(), len(operations)])
        self._bounds = dict(zip(ranks.tolist(), bounds, strict=True))
        self.extents: Mapping[int, tuple[int, int]] = {
            r: (int(operations.end[low]), int(operations.end[high - 1])) for r, (low, high) in self._bounds.items()
        }
        self.ranks_at_once: int | None = None

    def of(self, rank: int) -> RankTimes:
        """The operations of a rank."""
        low, high = self._bounds[rank]
        held = self.kinds
        return RankTimes(held.start[low:high], held.end[low:high], held.sequence[low:high], np.arange(low, high))

    def named(self, found: Callable[[int], Int64], count: int) -> HeldTimelines:
        """The same operations with communicators that were inferred."""
        number = np.concatenate([found(rank) for rank in self._bounds])
        return HeldTimelines(with_inferred(self.kinds, number, count))


def with_inferred(operations: Operations, number: Int64, count: int) -> Operations:
    """Operations with communicators that were inferred: `number` of each among `count`, -1 for none."""
    first = len(operations.names)
    names = [*operations.names, *(f"inferred {i}" for i in range(count))]
    return replace(operations, communicator=np.where(number >= 0, first + number, operations.communicator), names=names)
