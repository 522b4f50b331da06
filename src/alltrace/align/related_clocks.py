"""One time for all ranks from the pattern of their ends, however far these scatter: trees of ranks that are related in pairs."""

from __future__ import annotations

import math
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.coarse_clocks import RankClock, guesses, pair_keys, pairs
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.pair_clocks import ClockLine, Ends, relate
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.align.clocks import PlacedRank
    from alltrace.align.timelines import Timelines

_MARGIN_NS = 10**12
_CERTAIN = 0.8
_OTHER_RECORDING_NS = 900e9
"""Clocks that differ by more are of two recordings."""


def related_clocks(timelines: Timelines, placing: Placing | None = None) -> dict[int, RankClock]:
    """The clock of each rank that has operations.

    Args:
        timelines: The operations of all ranks.
        placing: What stamps and hosts say of the ranks' clocks.
    """
    ranks = list(timelines.extents)
    if not ranks:
        return {}
    placing = placing or Placing()
    zero = min(first + placing.shift(r) for r, (first, _) in timelines.extents.items()) - _MARGIN_NS
    shift = {r: float(placing.shift(r) - zero) for r in ranks}
    forest = _Forest(ranks, placing)
    for edges in _stages(timelines, shift):
        if not forest.connected:
            forest.grow(edges)
    return {rank: _clock(shift[rank], line, forest.component(rank)) for rank, line in forest.lines(ranks).items()}


def _clock(shift_ns: float, line: ClockLine | None, component: int) -> RankClock:
    if line is None:
        return RankClock(shift_ns, 0.0, 0.0, 1.0, component)
    ahead = (line.offset_ns - line.slope * line.middle_ns) / (1.0 + line.slope)
    return RankClock(shift_ns + ahead, -line.slope, line.scale_ns, line.certainty, component)


class Placing(NamedTuple):
    """What stamps and hosts say of the ranks' clocks.

    Attributes:
        shifts_ns: What is added to a rank's times by its UTC stamp.
        units: What is equal for ranks whose shifted times are of one clock; ranks that are not in it are on their own.
        hosts: The host of each rank.
    """

    shifts_ns: Mapping[int, int] = MappingProxyType({})
    units: Mapping[int, object] = MappingProxyType({})
    hosts: Mapping[int, str] = MappingProxyType({})

    def shift(self, rank: int) -> int:
        """The shift of a rank, 0 if nothing is known."""
        return self.shifts_ns.get(rank, 0)

    def same_rate(self, first: int, second: int) -> bool:
        """Whether the clocks of two ranks run at one rate, as those of one host do."""
        return first in self.hosts and self.hosts[first] == self.hosts.get(second)


def placing_of(ranks: Sequence[PlacedRank]) -> Placing:
    """What is known of the clocks of a run's ranks; those whose host's monotonic clock is stated share that clock."""
    offsets: dict[str, list[int]] = {}
    for placed in ranks:
        if placed.system_ns is not None and placed.stamped:
            offsets.setdefault(placed.host, []).append(placed.shift_ns - placed.system_ns)
    middles = {host: sorted(values)[len(values) // 2] for host, values in offsets.items()}
    shifts: dict[int, int] = {}
    units: dict[int, object] = {}
    for placed in ranks:
        tied = placed.system_ns is not None and placed.stamped
        shifts[placed.rank] = placed.system_ns + middles[placed.host] if tied and placed.system_ns is not None else placed.shift_ns
        units[placed.rank] = ("host", placed.host) if tied else ("report", placed.report)
    return Placing(shifts, units, {p.rank: p.host for p in ranks})


class _Edge(NamedTuple):
    """Two ranks whose clocks can be related, and how."""

    first: int
    second: int
    ends: Callable[[int], Ends]


class _Forest:
    """Ranks that are related, as trees over the units of ranks of one clock."""

    def __init__(self, ranks: list[int], placing: Placing) -> None:
        self._placing = placing
        units = dict.fromkeys(placing.units.get(r, ("rank", r)) for r in ranks)
        number = {unit: n for n, unit in enumerate(units)}
        self._unit = {r: number[placing.units.get(r, ("rank", r))] for r in ranks}
        self._sets = DisjointSets(len(number))
        self._parent: dict[int, tuple[int, ClockLine]] = {}
        self._trees = len(number)

    @property
    def connected(self) -> bool:
        """Whether all ranks are related."""
        return self._trees == 1

    def component(self, rank: int) -> int:
        """The tree of a rank."""
        return int(self._sets.of(self._unit[rank]))

    def grow(self, edges: Iterator[_Edge]) -> None:
        """Relate ranks that are not: by sharp and certain relations at once, by others in order of their scatter."""
        doubtful: list[tuple[float, int, ClockLine, _Edge]] = []
        sharpest = math.inf
        for number, edge in enumerate(edges):
            if self.component(edge.first) == self.component(edge.second):
                continue
            rate = not self._placing.same_rate(edge.first, edge.second)
            line = relate(edge.ends(edge.first), edge.ends(edge.second), rate=rate)
            if line is None or abs(line.offset_ns) > _OTHER_RECORDING_NS:
                continue
            sharpest = min(sharpest, line.scale_ns)
            if line.scale_ns <= 2.0 * sharpest and line.certainty >= _CERTAIN:
                self._connect(edge, line)
            else:
                doubtful.append((math.log(line.scale_ns) - 2.0 * line.certainty, number, line, edge))
            if self.connected:
                return
        for _, _, line, edge in sorted(doubtful, key=lambda d: d[:2]):
            if self.component(edge.first) != self.component(edge.second):
                self._connect(edge, line)

    def _connect(self, edge: _Edge, line: ClockLine) -> None:
        """Hang the tree of the second unit below the first, turned so that the second is its root."""
        first, second = self._unit[edge.first], self._unit[edge.second]
        chain = []
        node = second
        while node in self._parent:
            above, known = self._parent[node]
            chain.append((node, above, known))
            node = above
        for node, _, _ in chain:
            del self._parent[node]
        for node, above, known in chain:
            self._parent[above] = (node, known.reversed())
        self._parent[second] = (first, line)
        self._sets.join(first, second)
        self._trees -= 1

    def lines(self, ranks: list[int]) -> dict[int, ClockLine | None]:
        """The relation of each rank to the root of its tree, None for the root."""
        to_root: dict[int, ClockLine] = {}
        for unit in self._parent:  # a tree can be one long chain
            path = []
            node = unit
            while node in self._parent and node not in to_root:
                path.append(node)
                node = self._parent[node][0]
            for below in reversed(path):
                above, line = self._parent[below]
                to_root[below] = line.then(to_root[above]) if above in to_root else line
        return {r: to_root.get(self._unit[r]) for r in ranks}


def _stages(timelines: Timelines, shift: Mapping[int, float]) -> Iterator[Iterator[_Edge]]:
    """What relates ranks, the best evidence first: named operations that synchronise, messages, others, unnamed ones."""
    kinds = timelines.kinds
    known = kinds.communicator >= 0
    named = distinct_rows(kinds.communicator, kinds.op)[1]
    messages = pair_keys(kinds)
    for chosen, key in (
        (kinds.synchronising & known, named),
        ((kinds.paired != 0) & (messages >= 0), messages),
        (~kinds.synchronising & (kinds.paired == 0) & known, named),
    ):
        if chosen.any():
            ends = _ends(timelines, shift, chosen, key)
            couples = pairs(kinds.communicator[chosen], kinds.rank[chosen], timelines.counts[chosen])
            yield (_Edge(first, second, ends) for first, second in couples)
    chosen = (kinds.synchronising | kinds.exchanging) & ~known
    if chosen.any():
        ends = _ends(timelines, shift, chosen, kinds.op)
        yield (_Edge(first, second, ends) for first, second in guesses(np.unique(kinds.rank[chosen]).tolist()))


def _ends(
    timelines: Timelines, shift: Mapping[int, float], chosen: NDArray[np.bool_], key: NDArray[np.int64]
) -> Callable[[int], Ends]:
    """The ends of the chosen kinds; two can be of one instance if their kinds' keys are equal."""

    def of(rank: int) -> Ends:
        its = timelines.of(rank)
        mine = np.flatnonzero(chosen[its.kind])
        time = (its.end[mine] + shift[rank]).astype(np.float64)
        order = np.argsort(time, kind="stable")
        return Ends(time[order], key[its.kind[mine]][order], its.sequence[mine][order])

    return lru_cache(timelines.ranks_at_once)(of)
