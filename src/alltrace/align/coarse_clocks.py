"""One time for all ranks, from the pattern of the ends of their synchronising operations: what matching needs of clocks.

It is less than the clocks of a run (see `alltrace.align.clocks`, which are solved from what is matched): ranks are related pairwise
along a tree, each pair by all operations that both have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.host_offsets import HostOffset, host_offsets
from alltrace.align.operations import telling_streams
from alltrace.align.pairwise_clock_fit import ClockLine, Ends, NumberedEnds, ends_of, relate, relate_numbered
from alltrace.align.shared_ends import relate_part
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from alltrace.align.operations import Operations
    from alltrace.align.timelines import Timelines

    Relations = dict[int, tuple[int, ClockLine]]  # of a rank to the one above it in its tree

T = TypeVar("T")

_KEYS = 1 << 15
_SEQUENCES = 1 << 40
_WINDOW_NS = 1.5e9
"""How far stamps can be off."""
_MARGIN_NS = 10**12
_TRIES = 4
_WIDEST_KNOWN_NS = 60_000.0
_WIDEST_GUESSED_NS = 20_000.0
_SHARP_NS, _CERTAIN = 3_000.0, 0.8
_ROOT_SCALE_NS = 200.0


@dataclass
class Timing:
    """Times of operations on one clock within each component.

    Attributes:
        start: Start of each operation, ns, float64; likewise `end`.
        component: The component of each operation's rank: times of different components only compare by their stamps.
        scale_ns: For each rank the scatter of its ends about its relation, ns.
        certainty: For each rank how sure its relation is, from 0 to 1.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    component: NDArray[np.int64]
    scale_ns: dict[int, float]
    certainty: dict[int, float]


class RankClock(NamedTuple):
    """How the times of one rank's files become the common time of its component.

    Attributes:
        shift_ns: What is added first.
        rate: The part of the sum that is subtracted.
        scale_ns: The scatter of its ends about this, ns.
        certainty: How sure it is, from 0 to 1.
        component: Times of different components only compare by their stamps.
    """

    shift_ns: float
    rate: float
    scale_ns: float
    certainty: float
    component: int

    def common(self, time_ns: float) -> float:
        """The common time of a time of its files, ns."""
        return (time_ns + self.shift_ns) * (1.0 - self.rate)


def common_time(operations: Operations, clocks: Mapping[int, RankClock]) -> Timing:
    """The common time of operations of ranks whose clocks are known."""
    ranks, place = np.unique(operations.rank, return_inverse=True)
    its = [clocks[r] for r in ranks.tolist()]
    shift, rate = (np.array([getattr(c, name) for c in its])[place] for name in ("shift_ns", "rate"))
    start, end = ((t + shift) * (1.0 - rate) for t in (operations.start, operations.end))
    zero = end.min() - _MARGIN_NS
    component = np.array([c.component for c in its], np.int64)[place]
    scale = {r: c.scale_ns for r, c in zip(ranks.tolist(), its, strict=True)}
    return Timing(start - zero, end - zero, component, scale, {r: clocks[r].certainty for r in scale})


def rank_clocks(
    timelines: Timelines, shifts_ns: Mapping[int, int] | None = None, hosts: Mapping[int, str] | None = None
) -> dict[int, RankClock]:
    """The clock of each rank that has operations.

    Args:
        timelines: The operations of all ranks.
        shifts_ns: What brings the times of a host's ranks roughly together; None if any offset is possible.
        hosts: The host of each rank: between hosts shifts can be off by any time. None if all are of one clock.
    """
    ranks = list(timelines.extents)
    if not ranks:
        return {}
    given = {r: (shifts_ns or {}).get(r, 0) for r in ranks}
    shift, sure = _above_zero(timelines, {r: float(s) for r, s in given.items()}), dict.fromkeys(ranks, 1.0)
    if shifts_ns is not None and hosts is not None and len({hosts[r] for r in ranks}) > 1:
        offsets = _host_offsets(timelines, shift, hosts)
        by_rank = {r: offsets.get(hosts[r], HostOffset(0.0, 0.0)) for r in ranks}
        shift = _above_zero(timelines, {r: s + by_rank[r].shift_ns for r, s in shift.items()})
        # with names, a pair of ranks determines the confidence of its own relation
        if (timelines.kinds.communicator[_telling(timelines.kinds)] < 0).any():
            sure = {r: o.certainty for r, o in by_rank.items()}
    component, parent = _relations(timelines, shift, hosts or {}, None if shifts_ns is None else _WINDOW_NS)
    to_root = _to_root(parent)
    found = {}
    for rank in ranks:
        clock = RankClock(shift[rank], 0.0, _ROOT_SCALE_NS, sure[rank], component.of(rank))
        line = to_root.get(rank)
        if line is not None:
            ahead = (line.offset_ns - line.slope * line.middle_ns) / (1.0 + line.slope)
            scale = math.hypot(_ROOT_SCALE_NS, line.scale_ns)
            clock = RankClock(shift[rank] + ahead, -line.slope, scale, min(line.certainty, sure[rank]), clock.component)
        found[rank] = clock
    return found


def _above_zero(timelines: Timelines, shifts_ns: Mapping[int, float]) -> dict[int, float]:
    """The shifts, all moved by as much as makes times small positive numbers."""
    zero = min(first + shifts_ns[r] for r, (first, _) in timelines.extents.items()) - _MARGIN_NS
    return {r: s - zero for r, s in shifts_ns.items()}


def _relations(
    timelines: Timelines, shift: Mapping[int, float], hosts: Mapping[int, str], window: float | None
) -> tuple[DisjointSets, Relations]:
    """Which ranks are related, and the relation of each rank to the one above it in its tree."""
    kinds, ranks = timelines.kinds, list(timelines.extents)
    parent: Relations = {}
    component = DisjointSets(ranks[-1] + 1)

    def connect(chosen: NDArray[np.bool_], line_of: Callable[[int, int], ClockLine | None]) -> None:
        for first, second in pairs(kinds.communicator[chosen], kinds.rank[chosen], timelines.counts[chosen]):
            if component.of(first) != component.of(second):
                line = line_of(first, second)
                if line is not None and line.scale_ns <= _WIDEST_KNOWN_NS:
                    _connect(first, second, line, component, parent)

    known = kinds.communicator >= 0
    chosen = kinds.synchronising & known & (kinds.sequence >= 0)
    if chosen.any():
        numbered = _numbered_ends(timelines, shift, chosen)
        connect(chosen, lambda first, second: relate_numbered(numbered[first], numbered[second]))
    key = (kinds.communicator + 1) * 8191 + kinds.token
    apart = pair_keys(kinds)
    # synchronising operations are the best evidence; without them, use sends and others that only tend to end together
    for chosen, of in (
        (kinds.synchronising & known, key),
        ((kinds.paired != 0) & (apart >= 0), apart),
        (~kinds.synchronising & (kinds.paired == 0) & known, key),
    ):
        if chosen.any() and len(parent) < len(ranks) - 1:
            ends = _ends(timelines, shift, chosen, of)

            def by_pattern(first: int, second: int, ends: Mapping[int, Ends] = ends) -> ClockLine | None:
                line = relate(ends[first], ends[second], window)
                return relate(ends[first], ends[second], None) if line is None and window is not None else line

            connect(chosen, by_pattern)
    chosen = (kinds.synchronising | kinds.exchanging) & ~known
    if chosen.any() and len(parent) < len(ranks) - 1:
        _connect_parts(_ends(timelines, shift, chosen, _nameless_keys(kinds, chosen)), hosts, window, component, parent)
    return component, parent


def _telling(kinds: Operations) -> NDArray[np.bool_]:
    """Which kinds show how the clocks of hosts differ."""
    return kinds.synchronising | kinds.exchanging | (pair_keys(kinds) >= 0)


def _host_offsets(timelines: Timelines, shift: Mapping[int, float], hosts: Mapping[int, str]) -> dict[str, HostOffset]:
    """The offset of each host from the first."""
    kinds = timelines.kinds
    known, apart, chosen = kinds.communicator >= 0, pair_keys(kinds), _telling(kinds)
    named = np.where(apart >= 0, -1 - apart, kinds.communicator * 8191 + kinds.token)
    nameless = _nameless_keys(kinds, chosen & ~known)
    key = np.where(known, np.unique(named, return_inverse=True)[1].reshape(-1) + 1 + nameless.max(initial=0), nameless)
    pairs = distinct_rows(kinds.rank[known], kinds.communicator[known])[0]
    sharing: dict[int, set[int]] = {}
    for rank, communicator in pairs.T.tolist():
        sharing.setdefault(rank, set()).add(communicator)
    return host_offsets(_ends(timelines, shift, chosen, key), hosts, sharing, _WINDOW_NS)


class _OfRanks(Mapping[int, T]):
    """Something of each rank that has operations of the chosen kinds, made when it is asked for."""

    def __init__(self, timelines: Timelines, chosen: NDArray[np.bool_], made: Callable[[int], T]) -> None:
        self._ranks = dict.fromkeys(np.unique(timelines.kinds.rank[chosen]).tolist())
        self._of = lru_cache(timelines.ranks_at_once)(made)

    def __getitem__(self, rank: int) -> T:
        """That of a rank."""
        if rank not in self._ranks:
            raise KeyError(rank)
        return self._of(rank)

    def __iter__(self) -> Iterator[int]:
        """The ranks, by number."""
        return iter(self._ranks)

    def __len__(self) -> int:
        """The number of ranks."""
        return len(self._ranks)


def _ends(
    timelines: Timelines, shift: Mapping[int, float], chosen: NDArray[np.bool_], key: NDArray[np.int64]
) -> Mapping[int, Ends]:
    """The ends of the chosen kinds; two can be of one instance if their kinds' keys are equal."""
    key = key % _KEYS

    def made(rank: int) -> Ends:
        its = timelines.of(rank)
        mine = chosen[its.kind]
        return ends_of((its.end[mine] + shift[rank]).astype(np.float64), key[its.kind[mine]])

    return _OfRanks(timelines, chosen, made)


def _numbered_ends(timelines: Timelines, shift: Mapping[int, float], chosen: NDArray[np.bool_]) -> Mapping[int, NumberedEnds]:
    """The ends of the chosen kinds, with a number for each communicator, operation and sequence number that is there once."""
    kinds = timelines.kinds
    code = distinct_rows(kinds.communicator, kinds.op)[1]

    def made(rank: int) -> NumberedEnds:
        its = timelines.of(rank)
        mine = np.flatnonzero(chosen[its.kind] & (its.sequence < _SEQUENCES))
        number, first, many = np.unique(
            code[its.kind[mine]] * _SEQUENCES + its.sequence[mine], return_index=True, return_counts=True
        )
        once = many == 1
        return NumberedEnds(number[once], (its.end[mine][first[once]] + shift[rank]).astype(np.float64))

    return _OfRanks(timelines, chosen, made)


def _nameless_keys(operations: Operations, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """What must be equal of two of the chosen operations to be one where nothing names communicators; 0 for others."""
    rows = np.flatnonzero(chosen)
    key = np.zeros(len(operations), np.int64)
    if len(rows):
        key[rows] = distinct_rows(operations.token[rows], telling_streams(operations, rows))[1]
    return key


def _connect_parts(
    ends: Mapping[int, Ends], hosts: Mapping[int, str], window: float | None, component: DisjointSets, parent: Relations
) -> None:
    """Relate ranks that may share some of their operations: sharp relations at once, others in order of scatter."""
    doubtful: list[tuple[float, int, int, ClockLine]] = []
    for first, second in guesses(sorted(ends)):
        if component.of(first) == component.of(second):
            continue
        one_clock = first in hosts and hosts[first] == hosts[second]
        line = relate_part(ends[first], ends[second], window, rate=not one_clock)
        if line is None or line.scale_ns > _WIDEST_GUESSED_NS:
            continue
        if line.scale_ns <= _SHARP_NS and line.certainty >= _CERTAIN:
            _connect(first, second, line, component, parent)
        else:
            doubtful.append((line.scale_ns / max(line.certainty, 0.1), first, second, line))
    for _, first, second, line in sorted(doubtful, key=lambda d: d[:3]):
        if component.of(first) != component.of(second):
            _connect(first, second, line, component, parent)


def pair_keys(operations: Operations) -> NDArray[np.int64]:
    """For each send and receive with a known peer a number of communicator, sender, receiver and message; -1 for others."""
    known = (operations.paired != 0) & (operations.communicator >= 0) & (operations.peer >= 0) & (operations.group_rank >= 0)
    result = np.full(len(operations), -1, np.int64)
    rows = np.flatnonzero(known)
    if len(rows):
        sends = operations.paired[rows] > 0
        own, peer = operations.group_rank[rows], operations.peer[rows]
        columns = (operations.communicator[rows], np.where(sends, own, peer), np.where(sends, peer, own), operations.size[rows])
        result[rows] = distinct_rows(*columns)[1]
    return result


def pairs(communicators: NDArray[np.int64], of_rank: NDArray[np.int64], many: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks that share a communicator, by decreasing number of operations of the communicator."""
    pairs, codes = distinct_rows(communicators, of_rank)
    counts = np.bincount(codes, many).astype(np.int64)
    groups: dict[int, list[tuple[int, int]]] = {}
    for (communicator, rank), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        groups.setdefault(communicator, []).append((count, rank))
    for members in sorted(groups.values(), key=lambda m: -sum(c for c, _ in m)):
        by_count = [r for _, r in sorted(members, key=lambda m: (-m[0], m[1]))]
        for hub in by_count[:_TRIES]:
            for other in by_count:
                if other != hub:
                    yield hub, other


def guesses(ranks: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks that may share a communicator: each with the one before, those at a stride of a grid before, and the first."""
    strides = sorted({1 << k for k in range(12)} | {t for t in range(1, len(ranks)) if len(ranks) % t == 0})
    for place, rank in enumerate(ranks):
        for stride in strides:
            if stride <= place:
                yield ranks[place - stride], rank
        if place and place not in strides:
            yield ranks[0], rank


def _connect(first: int, second: int, line: ClockLine, component: DisjointSets, parent: Relations) -> None:
    """Hang the tree of `second` below `first`, turning it so that `second` is its root."""
    chain = []
    node = second
    while node in parent:
        above, found = parent[node]
        chain.append((node, above, found))
        node = above
    for node, _, _ in chain:
        del parent[node]
    for node, above, found in chain:
        parent[above] = (node, _reversed(found))
    parent[second] = (first, line)
    component.join(first, second)


def _reversed(line: ClockLine) -> ClockLine:
    """The same relation, from the second rank to the first."""
    slope = -line.slope / (1.0 + line.slope)
    return ClockLine(
        -line.offset_ns,
        slope,
        line.middle_ns + line.offset_ns,
        line.scale_ns,
        line.count,
        line.share,
        line.certainty,
    )


def _to_root(parent: Relations) -> dict[int, ClockLine]:
    """The relation of each rank to the root of its tree. Each is made from that of its parent: a tree can be one long chain."""
    found: dict[int, ClockLine] = {}
    for rank in parent:
        path = []
        node = rank
        while node in parent and node not in found:
            path.append(node)
            node = parent[node][0]
        for below in reversed(path):
            above, line = parent[below]
            found[below] = line.then(found[above]) if above in found else line
    return found
