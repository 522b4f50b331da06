"""The clocks of all ranks, for matching, without the operations of all ranks in memory: communicator by communicator.

The first rank's clock is that of all. A communicator that has ranks with a known clock and others relates the others to the rank
that has most operations in it, by these operations over the whole run, some ranks at a time: by the ends of matched collectives,
or, if there are only messages, by the pattern of their ends (`alltrace.align.coarse_clocks`). Ranks that no communicator connects
with the first are a component of their own, with the clock of their first rank as its stamps say.
"""

from __future__ import annotations

import heapq
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.align.all_collectives import AllCollectives
from alltrace.align.clocks import solve
from alltrace.align.coarse_clocks import RankClock
from alltrace.align.matching import match
from alltrace.align.members import evidence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alltrace.align.clocks import PlacedRank, Solution
    from alltrace.align.spilled_operations import SpilledOperations

_MOST_UNNAMED = 0.02
_PRECISE_NS = 20_000
"""The largest error of clocks by ends, as it is of collectives; messages only give bounds."""
_LEAST_SCALE_NS = 200.0
_CERTAIN = 0.5
"""The least certainty of clocks by the pattern of ends, which may repeat."""


def clocks_along_communicators(
    operations: SpilledOperations, texts: Callable[[Any], Any], ranks: Sequence[PlacedRank], most: int
) -> dict[int, RankClock] | None:
    """The clock of each rank that has operations; None if many have no communicator, or ranks of one have no clock in common.

    Args:
        operations: The operations.
        texts: The strings of an Arrow array of name ids.
        ranks: All ranks of the run, by number.
        most: How many operations are to be in memory at once.
    """
    wanted = set(operations.extents)
    if not wanted or operations.unnamed > _MOST_UNNAMED * sum(operations.rows.values()):
        return None
    search = _Search(operations, texts, ranks, most)
    communicators_of: dict[int, set[int]] = {}
    for communicator, members in operations.communicators.items():
        for rank in members:
            communicators_of.setdefault(rank, set()).add(communicator)
    # those with most operations first: the fewer steps from the first rank, the better
    most_first = {c: -sum(members.values()) for c, members in operations.communicators.items()}
    reached: set[int] = set()
    for root in sorted(wanted):
        if root in search.clocks:
            continue
        its = communicators_of.get(root, set())
        if not its or its & reached:  # a communicator connects it with ranks that have clocks, but does not give it one
            return None
        found = search.start(root)
        waiting: list[tuple[int, int]] = []
        while True:
            for communicator in {c for rank in found for c in communicators_of[rank]} - reached:
                reached.add(communicator)
                heapq.heappush(waiting, (most_first[communicator], communicator))
            if not waiting:
                break
            found = search.relate_members(heapq.heappop(waiting)[1])
    return search.clocks


class _Search:
    """The clocks found so far."""

    def __init__(self, operations: SpilledOperations, texts: Callable[[Any], Any], ranks: Sequence[PlacedRank], most: int) -> None:
        self._operations, self._texts, self._most = operations, texts, most
        self._place = {p.rank: p for p in ranks}
        self._shifts, self._hosts = {p.rank: p.shift_ns for p in ranks}, {p.rank: p.host for p in ranks}
        self.clocks: dict[int, RankClock] = {}
        self._components = 0

    def start(self, rank: int) -> list[int]:
        """Begin a component with a rank; returns the ranks with new clocks."""
        self.clocks[rank] = RankClock(self._shifts[rank], 0.0, 0.0, 1.0, self._components)
        self._components += 1
        return [rank]

    def relate_members(self, communicator: int) -> list[int]:
        """Find the clocks of the members of a communicator that has a rank with a known clock; returns the ranks with new ones."""
        members = self._operations.communicators[communicator]
        unknown = {r: n for r, n in members.items() if r not in self.clocks}
        hub = max((r for r in members if r in self.clocks), key=lambda r: (members[r], -r))
        for some in _parts(unknown, self._most - members[hub]):
            self._relate(communicator, hub, some)
        # the stages of a pipeline have operations with their neighbours only
        left = [r for r in unknown if r not in self.clocks]
        while left:
            for rank in left:
                near = min((r for r in members if r in self.clocks), key=partial(_distance, rank))
                self._relate(communicator, near, [rank])
            still = [r for r in left if r not in self.clocks]
            if len(still) == len(left):
                break
            left = still
        return [r for r in unknown if r in self.clocks]

    def _relate(self, communicator: int, hub: int, others: Sequence[int]) -> None:
        """Find the clocks of some members by what they share with the hub, whose clock is known."""
        table = AllCollectives.sorted(self._operations.of_communicator(communicator, [hub, *others]))
        pa.default_memory_pool().release_unused()  # NumPy does not use what Arrow holds back
        matching = match(table, self._texts, self._shifts, self._hosts)
        placed = [self._place[r] for r in sorted([hub, *others])]
        solution = solve(evidence_of(matching.members, table, self._texts), placed)
        for rank in others:
            by = _by_ends(solution, self._place, hub, rank) or _by_pattern(matching.clocks, hub, rank)
            if by is not None:
                self.clocks[rank] = _related(*by, self.clocks[hub])


def _by_ends(solution: Solution, place: Mapping[int, PlacedRank], hub: int, rank: int) -> tuple[RankClock, RankClock] | None:
    """The clocks of a rank and the hub by the ends of the instances that they share; None if these do not determine them well."""
    residual = solution.residuals_ns[rank]
    if solution.components[rank] != solution.components[hub] or residual is None or residual > _PRECISE_NS:
        return None
    rates = {c.host: c.drift_ppm / 1e6 for c in solution.clocks}
    own, other = (
        RankClock(
            place[r].shift_ns - solution.ahead_ns[r],
            rates[place[r].host],
            float(np.hypot(_LEAST_SCALE_NS, residual)),
            1.0,
            0,
        )
        for r in (rank, hub)
    )
    return own, other


def _by_pattern(clocks: Mapping[int, RankClock], hub: int, rank: int) -> tuple[RankClock, RankClock] | None:
    """The clocks of a rank and the hub by the pattern of all ends; None if they are not sure."""
    own, other = clocks.get(rank), clocks.get(hub)
    if own is None or other is None or own.component != other.component or min(own.certainty, other.certainty) < _CERTAIN:
        return None
    return own, other


def _distance(one: int, other: int) -> int:
    return abs(one - other)


def _parts(counts: dict[int, int], most: int) -> Iterator[list[int]]:
    """Ranks, by number, in parts that together have at most `most` operations; a part has one rank at least."""
    part: list[int] = []
    room = most
    for rank, count in sorted(counts.items()):
        if part and count > room:
            yield part
            part, room = [], most
        part.append(rank)
        room -= count
    if part:
        yield part


def _related(own: RankClock, hub: RankClock, known: RankClock) -> RankClock:
    """A rank's clock, where `own` and `hub` have one common time and `known` is the hub's clock in that of the run."""
    faster = (1.0 - known.rate) / (1.0 - hub.rate)
    speed = (1.0 - own.rate) * faster
    shift = own.shift_ns + (known.shift_ns - hub.shift_ns) * (1.0 - known.rate) / speed
    return RankClock(
        shift, 1.0 - speed, math.hypot(own.scale_ns, known.scale_ns), min(own.certainty, known.certainty), known.component
    )
