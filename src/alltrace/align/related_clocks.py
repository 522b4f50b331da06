"""One time for all ranks from the pattern of their ends: trees of ranks that are related in pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import Solution
from alltrace.align.constants import OTHER_RECORDING_NS, OUTLIER_SIGMAS
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.pair_clocks import ClockLine, Ends, enough, relate, relate_partly, relate_streams, spacing
from alltrace.align.timelines import AnyTimelines, Kinds, message_keys
from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.distinct import distinct_rows, rows_by

_MARGIN_NS = 10**12
_HUBS = 4
_FEWER = 0.8
"""Of two streams of a rank, one has fewer operations if it has less than this share of the other's."""
_ENDS_AT_ONCE = 64
_SOME = 4
"""Of how many pairs of ranks at a stride it is found how sharply they are related, and how many doubtful relations are
compared."""
CERTAIN = 0.8
"""A relation that is less certain is doubtful."""
_VOTES = 16
"""Of how many pairs of ranks it is found what the relation of two clocks is."""


class RankClock(NamedTuple):
    """How the times of a rank's files become the common time of its component."""

    shift_ns: float  # added first
    rate: float  # the part of the sum that is subtracted
    scale_ns: float  # the scatter of its ends about this, ns
    certainty: float  # from 0 to 1
    component: int  # times of different components only compare by their stamps

    def common(self, times: Any) -> Any:
        return (times + self.shift_ns) * (1.0 - self.rate)


def related_clocks(timelines: AnyTimelines, placing: Placing | None = None) -> dict[int, RankClock]:
    """The clock of each member, by its number; common times are small positive numbers."""
    members = list(timelines.extents)
    if not members:
        return {}
    placing = (placing or Placing()).of_members({m: timelines.rank_of(m) for m in members})
    zero = min(first + placing.shift(m) for m, (first, _) in timelines.extents.items()) - _MARGIN_NS
    shift = {m: float(placing.shift(m) - zero) for m in members}
    forest = _Forest(members, placing)
    for edges in _stages(timelines, shift, placing):
        if not forest.connected:
            forest.grow(edges)
    forest.grow_doubtful()
    return {m: _clock(shift[m], line, forest.component(m)) for m, line in forest.lines(members).items()}


def _clock(shift_ns: float, line: ClockLine | None, component: int) -> RankClock:
    if line is None:
        return RankClock(shift_ns, 0.0, 0.0, 1.0, component)
    ahead = (line.offset_ns - line.slope * line.middle_ns) / (1.0 + line.slope)
    return RankClock(shift_ns + ahead, -line.slope, line.scale_ns, line.certainty, component)


def fitted_clocks(
    timelines: AnyTimelines, clocks: Mapping[int, RankClock], solution: Solution, ranks: Sequence[PlacedRank]
) -> dict[int, RankClock]:
    """Each member's fitted clock, whose operations were matched by `clocks`; the scale is how far it may be off."""
    rate_of = {clock.host: clock.drift_ppm / 1e6 for clock in solution.clocks}
    ahead = {p.rank: (p.shift_ns - solution.ahead_ns[p.rank], rate_of.get(p.host, 0.0)) for p in ranks}
    of_member = {m: timelines.rank_of(m) for m in clocks}
    zero = min(timelines.extents[m][0] + ahead[r][0] for m, r in of_member.items()) - _MARGIN_NS
    of_one_clock = _of_one_clock(ranks, solution)
    result = {}
    for member, rank in of_member.items():
        (shift, rate), error = ahead[rank], solution.errors_ns.get(rank)
        before = clocks[member]
        scale, certainty, ends = before.scale_ns, before.certainty, timelines.of(member).end
        if error is not None:
            # a fit to operations that were matched whole periods off is as good as one to the right ones, but where all
            # are of one host its clock tells periods
            scale = float(error)
            if len(ends) > 1 and of_one_clock.get(rank, math.inf) <= np.diff(ends).mean() / 2:
                certainty = 1.0
        result[member] = RankClock(shift - zero / (1.0 - rate), rate, scale, certainty, solution.components[rank])
    return result


def _of_one_clock(ranks: Sequence[PlacedRank], solution: Solution) -> dict[int, float]:
    """How far the fitted clock of each rank is from that of its host, ns, in components of one host."""
    of_component: dict[int, list[PlacedRank]] = {}
    for placed in ranks:
        of_component.setdefault(solution.components[placed.rank], []).append(placed)
    apart: dict[int, float] = {}
    for placed_ranks in of_component.values():
        if len({placed.host for placed in placed_ranks}) == 1:
            ahead = [float(solution.ahead_ns[placed.rank]) for placed in placed_ranks]
            apart |= {p.rank: abs(ns - float(np.median(ahead))) for p, ns in zip(placed_ranks, ahead, strict=True)}
    return apart


class Placing(NamedTuple):
    """What stamps and hosts say of the ranks' clocks."""

    shifts_ns: Mapping[int, int] = MappingProxyType({})  # what is added to a rank's times by its UTC stamp
    units: Mapping[int, object] = MappingProxyType({})  # equal for ranks whose shifted times are of one clock
    hosts: Mapping[int, str] = MappingProxyType({})
    stamped: frozenset[int] = frozenset()  # with a UTC stamp

    def shift(self, rank: int) -> int:
        return self.shifts_ns.get(rank, 0)

    def unit(self, rank: int) -> object:
        return self.units.get(rank, ("rank", rank))

    def of_members(self, ranks: Mapping[int, int]) -> Placing:
        units = {m: self.unit(r) for m, r in ranks.items()}
        hosts = {m: self.hosts[r] for m, r in ranks.items() if r in self.hosts}
        stamped = frozenset(m for m, r in ranks.items() if r in self.stamped)
        return Placing({m: self.shift(r) for m, r in ranks.items()}, units, hosts, stamped)

    def by_host(self) -> Placing:
        """The same if the stamps of a host are of one clock, as they are where its reports were begun together."""
        stamped = {r: ("host", host) for r, host in self.hosts.items() if r in self.stamped}
        return self._replace(units={**self.units, **stamped})

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
        shifts[placed.rank] = (
            placed.system_ns + middles[placed.host] if tied and placed.system_ns is not None else placed.shift_ns
        )
        units[placed.rank] = ("host", placed.host) if tied else ("report", placed.report)
    return Placing(shifts, units, {p.rank: p.host for p in ranks}, frozenset(p.rank for p in ranks if p.stamped))


@dataclass(frozen=True, eq=False)
class _Edge:
    """Two ranks whose clocks can be related, and how."""

    first: int
    second: int
    ends: Callable[[int], Ends]
    placing: Placing
    how: Callable[..., ClockLine | None] = relate
    messages: bool = False  # may be among their operations, of which one end is late or early by itself

    @property
    def apart(self) -> bool:
        """Whether they are not known to have one clock."""
        return self.placing.unit(self.first) != self.placing.unit(self.second)

    @cached_property
    def line(self) -> ClockLine | None:
        """The clock of the second against the first's."""
        rate = not self.placing.same_rate(self.first, self.second)
        line = self.how(self.ends(self.first), self.ends(self.second), rate=rate)
        if line is None or abs(line.offset_ns) > OTHER_RECORDING_NS:
            return None
        stamped = not rate and {self.first, self.second} <= self.placing.stamped
        error_ns = line.scale_ns * math.sqrt(math.pi / (2 * line.count))  # of a median
        if stamped and abs(line.offset_ns) <= OUTLIER_SIGMAS * error_ns:
            return replace(line, offset_ns=0.0)  # so few ends that scatter so far tell less than the stamps of one host
        return line


class _Agreed(NamedTuple):
    """What pairs of ranks agree on."""

    line: ClockLine
    scale_ns: float  # how far ends of such a pair usually scatter
    streams: set[tuple[int, int]]  # of which ranks, where messages of these alone show it


class _Forest:
    """Ranks that are related, as trees over the units of ranks of one clock."""

    def __init__(self, ranks: list[int], placing: Placing) -> None:
        number = {unit: n for n, unit in enumerate(dict.fromkeys(map(placing.unit, ranks)))}
        self._unit = {r: number[placing.unit(r)] for r in ranks}
        self._sets = DisjointSets(len(number))
        self._root = {n: n for n in range(len(number))}  # of each set, by its number
        self._lines: dict[int, list[tuple[int, ClockLine]]] = {n: [] for n in self._root}
        self._doubtful: list[tuple[float, int, ClockLine, _Edge]] = []
        self._exchanging: set[tuple[int, int]] = set()  # the ranks' streams whose messages relate some

    @property
    def connected(self) -> bool:
        return len(self._root) == 1

    def component(self, rank: int) -> int:
        return int(self._sets.of(self._unit[rank]))

    def grow(self, edges: Iterable[_Edge]) -> None:
        """Relate ranks that are not by sharp and certain relations, and keep others for later."""
        sharpest = math.inf
        doubtful: Counter[frozenset[int]] = Counter()
        loose: list[tuple[float, int, _Agreed, _Edge]] = []
        edges = list(edges)
        of_units: dict[frozenset[int], list[_Edge]] = {}
        for edge in edges:
            of_units.setdefault(self._units(edge), []).append(edge)
        for edge in edges:
            between = frozenset((self.component(edge.first), self.component(edge.second)))
            if len(between) == 1 or doubtful[between] == _SOME:
                continue
            if edge.line is None:
                continue
            alone = _Agreed(edge.line, edge.line.scale_ns, set())
            agreed = self._agreed(edge, of_units[self._units(edge)]) if edge.messages else alone
            if agreed is None:
                continue
            line = agreed.line
            sharpest = min(sharpest, agreed.scale_ns)
            if agreed.scale_ns <= 2.0 * sharpest and line.certainty >= CERTAIN:
                self._connect(edge, line)
                self._exchanging |= agreed.streams
            elif not edge.messages or line.certainty >= CERTAIN * max(enough(line.count), 1 / 2):
                doubtful[between] += 1
                cost = math.log(line.scale_ns) - 2.0 * line.certainty
                self._doubtful.append((cost, len(self._doubtful), line, edge))
                if line.certainty >= CERTAIN and agreed.streams:
                    loose.append((cost, len(loose), agreed, edge))
            if self.connected:
                return
        # a link can scatter more than others; the messages of a stream are those of one pair
        for _, _, agreed, edge in sorted(loose, key=lambda d: d[:2]):
            apart = self.component(edge.first) != self.component(edge.second)
            if apart and not agreed.streams & self._exchanging:
                self._connect(edge, agreed.line)
                self._exchanging |= agreed.streams

    def _units(self, edge: _Edge) -> frozenset[int]:
        return frozenset((self._unit[edge.first], self._unit[edge.second]))

    def _agreed(self, edge: _Edge, edges: Iterable[_Edge]) -> _Agreed | None:
        """The mean of the lines on which pairs of ranks of two clocks agree.

        A line votes by how sharp and certain it is. An offset needs twice the votes of any other: if steps are alike,
        a pair is as sharply related whole periods off, but not all pairs by the same number of these.
        """
        lines, pairs, streams = [], [], []
        of_pairs: dict[tuple[frozenset[int], Any], _Edge] = {}
        for other in (edge, *edges):
            of_pairs.setdefault((frozenset((other.first, other.second)), other.how), other)
        for (pair, _), other in islice(of_pairs.items(), _VOTES):
            if other.line is not None:
                pairs.append(pair)
                streams.append(set(zip((other.first, other.second), other.line.streams, strict=False)))
                alike = self._unit[other.first] == self._unit[edge.first]
                lines.append(other.line if alike else other.line.reversed())
        middle_ns, apart_ns = lines[0].middle_ns, spacing(edge.ends(edge.second)) / 2
        offsets = np.array([line.ahead(middle_ns) for line in lines])
        scales, certain, counts = np.array([(line.scale_ns, line.certainty, line.count) for line in lines]).T
        near = np.abs(offsets - offsets[:, None]) <= apart_ns
        weight = counts * certain / scales
        votes = near @ weight
        best = int(votes.argmax())
        if 2.0 * votes[~near[best]].max(initial=0.0) > votes[best]:
            return None
        agree = np.flatnonzero(near[best])
        sharp = agree[scales[agree] <= 2.0 * scales[agree].min()]
        line = lines[int(sharp[weight[sharp].argmax()])]
        # several pairs have more ends, but no pair that agrees is less likely whole periods off than the surest
        sure = max(min(certain[n] / enough(counts[n]), 1.0) for n in agree.tolist())
        # what a pair shows in two ways may be by the same ends
        count = sum({pairs[n]: int(counts[n]) for n in agree[np.argsort(counts[agree])].tolist()}.values())
        agreed = replace(
            line,
            offset_ns=float(offsets[sharp].mean()),
            middle_ns=middle_ns,
            scale_ns=math.hypot(line.scale_ns, float(np.ptp(offsets[sharp])) / 2.0),
            count=count,
            certainty=float(sure) * enough(count),
        )
        return _Agreed(agreed, float(np.median(scales[agree])), set().union(*(streams[n] for n in agree.tolist())))

    def grow_doubtful(self) -> None:
        """Relate ranks that are not by the other relations, in order of scatter and certainty."""
        for _, _, line, edge in sorted(self._doubtful, key=lambda d: d[:2]):
            if self.component(edge.first) != self.component(edge.second):
                self._connect(edge, line)

    def _connect(self, edge: _Edge, line: ClockLine) -> None:
        """Hang the tree of the second unit, turned so that this is its root, below the first."""
        first, second = self._unit[edge.first], self._unit[edge.second]
        self._lines[first].append((second, line))
        self._lines[second].append((first, line.reversed()))
        root, _ = self._root.pop(self._sets.of(first)), self._root.pop(self._sets.of(second))
        self._sets.join(first, second)
        self._root[self._sets.of(first)] = root

    def lines(self, ranks: list[int]) -> dict[int, ClockLine | None]:
        """The relation of each rank to the root of its tree, None for the root."""
        to_root: dict[int, ClockLine | None] = dict.fromkeys(self._root.values())
        waiting = list(to_root)
        for unit in waiting:
            above = to_root[unit]
            for below, line in self._lines[unit]:
                if below not in to_root:
                    to_root[below] = line if above is None else line.then(above)
                    waiting.append(below)
        return {r: to_root[self._unit[r]] for r in ranks}


def _stages(timelines: AnyTimelines, shift: Mapping[int, float], placing: Placing) -> Iterator[Iterator[_Edge]]:
    """What relates members, the best first: named operations that synchronise, messages, others, unnamed ones."""
    kinds = timelines.kinds
    known = kinds.communicator >= 0
    named = distinct_rows(kinds.communicator, kinds.op)[1]
    messages = message_keys(kinds)
    for chosen, key in (
        (kinds.synchronising & known & ~kinds.early, named),
        (messages >= 0, messages),
        ((~kinds.synchronising | kinds.early) & (kinds.paired == 0) & (messages < 0) & known, named),
    ):
        if chosen.any():
            ends = _ends(timelines, shift, chosen, key)
            couples = _pairs(kinds.communicator[chosen], kinds.member[chosen], kinds.count[chosen])
            yield (_Edge(*couple, ends, placing) for couple in couples)
    # if an inferred communicator is wrong, the pattern of all operations still relates its members
    chosen = kinds.synchronising | kinds.messages
    chosen &= ~known | (kinds.communicator >= timelines.first_inferred)
    if chosen.any():
        ends = _ends(timelines, shift, chosen, _stream_keys(kinds, chosen))
        exchanges = kinds.messages & ~known
        members = set(kinds.member[exchanges].tolist())
        guesses = list(_guesses(np.unique(kinds.member[chosen]).tolist()))
        partly = [_Edge(*couple, ends, placing, relate_partly, bool(members)) for couple in guesses]
        if members:
            of_streams = _ends(timelines, shift, exchanges, distinct_rows(kinds.stream)[1])
            streams = [_Edge(*couple, of_streams, placing, relate_streams, messages=True) for couple in guesses]
            apart = [[e for e in its if {e.first, e.second} <= members and e.apart] for its in (streams, partly)]
            yield _sharpest_first(apart)
            # messages that two members exchange relate none of them to others
            collectives = _ends(timelines, shift, chosen & kinds.synchronising, _stream_keys(kinds, chosen))
            yield (_Edge(*couple, collectives, placing, relate_partly, messages=True) for couple in guesses)
            yield iter(partly)
        else:
            yield iter(partly)


def _stream_keys(kinds: Kinds, chosen: Flags) -> Int64:
    """What distinguishes operations of a member without names: the operation, and which of its streams has how many.

    Numbers of streams mean nothing on another member, but the stream with most operations of one is likely that of the
    other.
    """
    place = np.zeros(len(kinds), np.int64)
    rows = np.flatnonzero(chosen)
    op = np.where(kinds.messages, -1, kinds.op)  # what one member sends another receives
    pairs, of = distinct_rows(kinds.member[rows], op[rows], kinds.stream[rows])
    many = np.bincount(of, kinds.count[rows], pairs.shape[1])
    for streams in rows_by(distinct_rows(pairs[0], pairs[1])[1]).values():
        order = streams[np.argsort(-many[streams], kind="stable")]
        less = many[order][1:] < _FEWER * many[order][:-1]
        place_of = np.concatenate(([0], np.cumsum(less)))
        for stream, number in zip(order.tolist(), place_of.tolist(), strict=True):
            place[rows[of == stream]] = number
    return distinct_rows(op, place)[1]


def _sharpest_first(relations: Iterable[Sequence[_Edge]]) -> Iterator[_Edge]:
    """Ranks that may exchange messages, by how sharp some of their stride are: those that do, before others in step."""
    sharp: list[tuple[float, int, list[_Edge]]] = []
    for couples in relations:
        for stride, rows in rows_by(np.array([e.second - e.first for e in couples], np.int64)).items():
            edges = [couples[n] for n in rows.tolist()]
            some = [edge.line for edge in edges[:: -(-len(edges) // _SOME)]]
            certain = [line.scale_ns for line in some if line is not None and line.certainty >= CERTAIN]
            if 2 * len(certain) > len(some):
                sharp.append((float(np.median(certain)), stride, edges))
    for _, _, edges in sorted(sharp, key=lambda s: s[:2]):
        yield from edges


def _pairs(communicators: Int64, members: Int64, many: Int64) -> Iterator[tuple[int, int]]:
    """Pairs of members of a communicator, by decreasing number of operations of the communicator."""
    pairs, codes = distinct_rows(communicators, members)
    counts = np.bincount(codes, many).astype(np.int64)
    groups: dict[int, list[tuple[int, int]]] = {}
    for (communicator, member), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        groups.setdefault(communicator, []).append((count, member))
    for its in sorted(groups.values(), key=lambda m: -sum(c for c, _ in m)):
        by_count = [r for _, r in sorted(its, key=lambda m: (-m[0], m[1]))]
        for hub in by_count[:_HUBS]:
            for other in by_count:
                if other != hub:
                    yield hub, other


def _guesses(members: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs that may share a communicator: each with the one before, those at a stride of a grid, and the first."""
    strides = sorted({1 << k for k in range(12)} | {t for t in range(1, len(members)) if len(members) % t == 0})
    for place, member in enumerate(members):
        for stride in strides:
            if stride <= place:
                yield members[place - stride], member
        if place and place not in strides:
            yield members[0], member


def _ends(timelines: AnyTimelines, shift: Mapping[int, float], chosen: Flags, key: Int64) -> Callable[[int], Ends]:
    """The ends of the chosen kinds; two can be of one instance if their kinds' keys are equal."""

    def of(member: int) -> Ends:
        its = timelines.of(member)
        mine = np.flatnonzero(chosen[its.kind])
        time = (its.end[mine] + shift[member]).astype(np.float64)
        order = np.argsort(time, kind="stable")
        return Ends(time[order], key[its.kind[mine]][order], its.sequence[mine][order])

    return lru_cache(_ENDS_AT_ONCE)(of)
