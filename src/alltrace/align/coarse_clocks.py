"""One time for all ranks, from the pattern of the ends of their synchronising operations: what matching needs of clocks.

It is less than the clocks of a run (see `alltrace.align.clocks`, which are solved from what is matched): ranks are related pairwise
along a tree, each pair by all operations that both have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.host_offsets import HostOffset, host_offsets
from alltrace.align.operations import telling_streams
from alltrace.align.pairwise_clock_fit import ClockLine, Ends, ends_of, relate
from alltrace.align.shared_ends import relate_part
from alltrace.trace.distinct import distinct_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from alltrace.align.operations import Operations

    Relations = dict[int, tuple[int, ClockLine]]  # of a rank to the one above it in its tree

_KEYS = 1 << 15
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


def rank_clocks(operations: Operations, timing: Timing) -> dict[int, RankClock]:
    """The clock of each rank by which its operations have their common time."""
    ranks, begins = np.unique(operations.rank, return_index=True)
    found = {}
    for rank, low, high in zip(ranks.tolist(), begins.tolist(), [*begins[1:].tolist(), len(operations)], strict=True):
        # they are sorted by their end
        (first, last), (common_first, common_last) = (t[[low, high - 1]].tolist() for t in (operations.end, timing.end))
        speed = (common_last - common_first) / (last - first) if last > first else 1.0
        shift = common_first / speed - first
        found[rank] = RankClock(shift, 1.0 - speed, timing.scale_ns[rank], timing.certainty[rank], int(timing.component[low]))
    return found


def known_time(operations: Operations, clocks: Mapping[int, RankClock]) -> Timing:
    """The common time of operations of ranks whose clocks are known."""
    ranks, place = np.unique(operations.rank, return_inverse=True)
    its = [clocks[r] for r in ranks.tolist()]
    shift, rate = (np.array([getattr(c, name) for c in its])[place] for name in ("shift_ns", "rate"))
    start, end = ((t + shift) * (1.0 - rate) for t in (operations.start, operations.end))
    zero = end.min() - _MARGIN_NS
    component = np.array([c.component for c in its], np.int64)[place]
    scale = {r: c.scale_ns for r, c in zip(ranks.tolist(), its, strict=True)}
    return Timing(start - zero, end - zero, component, scale, {r: clocks[r].certainty for r in scale})


def common_time(operations: Operations, *, stamped: bool, hosts: Mapping[int, str] | None = None) -> Timing:
    """Relate the ranks.

    Args:
        operations: The operations of all ranks.
        stamped: Whether the shifts are roughly right; else any offset is possible.
        hosts: The host of each rank: between hosts stamps can be off by any time. None if all are of one clock.
    """
    ranks = np.unique(operations.rank).tolist()
    zero = float(operations.shifted_end.min() if len(operations) else 0) - _MARGIN_NS
    start, end = (t.astype(np.float64) - zero for t in (operations.shifted_start, operations.shifted_end))
    window = _WINDOW_NS if stamped else None
    sure = dict.fromkeys(ranks, 1.0)
    if stamped and hosts is not None:
        sure = _with_hosts_together(operations, ranks, hosts, start, end)
    parent: Relations = {}
    component = DisjointSets(ranks[-1] + 1 if ranks else 0)

    def connect(first: int, second: int, ends: tuple[Ends, Ends]) -> None:
        if component.of(first) == component.of(second) or not (len(ends[0].time) and len(ends[1].time)):
            return
        line = relate(*ends, window)
        if line is None and window is not None:
            line = relate(*ends, None)
        if line is not None and line.scale_ns <= _WIDEST_KNOWN_NS:
            _connect(first, second, line, component, parent)

    known = operations.communicator >= 0
    key = (operations.communicator + 1) * 8191 + operations.token
    apart = pair_keys(operations)
    # synchronising operations are the best evidence; without them, use sends and others that only tend to end together
    for chosen, of in (
        (operations.synchronising & known, key),
        ((operations.paired != 0) & (apart >= 0), apart),
        (~operations.synchronising & (operations.paired == 0) & known, key),
    ):
        if chosen.any() and len(parent) < len(ranks) - 1:
            ends = _ends(operations, end, ranks, chosen, of)
            for first, second in _pairs(operations.communicator[chosen], operations.rank[chosen]):
                connect(first, second, (ends[first], ends[second]))
    chosen = (operations.synchronising | operations.exchanging) & ~known
    if chosen.any() and len(parent) < len(ranks) - 1:
        ends = _ends(operations, end, ranks, chosen, _nameless_keys(operations, chosen))
        _connect_parts(ends, hosts or {}, window, component, parent)
    timing = _placed(operations, start, end, ranks, component.labels(), parent)
    timing.certainty = {r: min(c, sure[r]) for r, c in timing.certainty.items()}
    return timing


def _with_hosts_together(
    operations: Operations, ranks: list[int], hosts: Mapping[int, str], start: NDArray[np.float64], end: NDArray[np.float64]
) -> dict[int, float]:
    """Shift the times of each host to those of the first, in place; returns the confidence of each rank's shift."""
    if len({hosts[r] for r in ranks}) < 2:
        return dict.fromkeys(ranks, 1.0)
    known = operations.communicator >= 0
    apart = pair_keys(operations)
    chosen = operations.synchronising | operations.exchanging | (apart >= 0)
    named = np.where(apart >= 0, -1 - apart, operations.communicator * 8191 + operations.token)
    nameless = _nameless_keys(operations, chosen & ~known)
    key = np.where(known, np.unique(named, return_inverse=True)[1].reshape(-1) + 1 + nameless.max(initial=0), nameless)
    ends = _ends(operations, end, ranks, chosen, key)
    pairs = distinct_rows(operations.rank[known], operations.communicator[known])[0]
    sharing: dict[int, set[int]] = {}
    for rank, communicator in pairs.T.tolist():
        sharing.setdefault(rank, set()).add(communicator)
    found = host_offsets(ends, hosts, sharing, _WINDOW_NS)
    by_rank = {r: found.get(hosts[r], HostOffset(0.0, 0.0)) for r in ranks}
    bounds = np.searchsorted(operations.rank, [*ranks, np.iinfo(np.int64).max])
    for rank, low, high in zip(ranks, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        start[low:high] += by_rank[rank].shift_ns
        end[low:high] += by_rank[rank].shift_ns
    lowest = end.min() - _MARGIN_NS
    start -= lowest
    end -= lowest
    # with names, a pair of ranks determines the confidence of its own relation
    return {r: 1.0 if known[chosen].all() else o.certainty for r, o in by_rank.items()}


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
    for first, second in _guesses([r for r in sorted(ends) if len(ends[r].time)]):
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


def _ends(
    operations: Operations, end: NDArray[np.float64], ranks: list[int], chosen: NDArray[np.bool_], key: NDArray[np.int64]
) -> dict[int, Ends]:
    """The ends of the chosen operations of each rank, and what must be equal for two to be one."""
    bounds = np.searchsorted(operations.rank, [*ranks, np.iinfo(np.int64).max])
    found = {}
    for rank, low, high in zip(ranks, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = chosen[low:high]
        found[rank] = ends_of(end[low:high][mine], key[low:high][mine] % _KEYS)
    return found


def _pairs(communicators: NDArray[np.int64], of_rank: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks that share a communicator, by decreasing number of operations of the communicator."""
    pairs, codes = distinct_rows(communicators, of_rank)
    counts = np.bincount(codes)
    groups: dict[int, list[tuple[int, int]]] = {}
    for (communicator, rank), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        groups.setdefault(communicator, []).append((count, rank))
    for members in sorted(groups.values(), key=lambda m: -sum(c for c, _ in m)):
        by_count = [r for _, r in sorted(members, key=lambda m: (-m[0], m[1]))]
        for hub in by_count[:_TRIES]:
            for other in by_count:
                if other != hub:
                    yield hub, other


def _guesses(ranks: list[int]) -> Iterator[tuple[int, int]]:
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


def _placed(
    operations: Operations,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    ranks: list[int],
    component: NDArray[np.int64],
    parent: Relations,
) -> Timing:
    bounds = np.searchsorted(operations.rank, [*ranks, np.iinfo(np.int64).max])
    to_root = _to_root(parent)
    scale, certainty = dict.fromkeys(ranks, _ROOT_SCALE_NS), dict.fromkeys(ranks, 1.0)
    start, end = start.copy(), end.copy()
    for place, rank in enumerate(ranks):
        line = to_root.get(rank)
        if line is not None:
            part = slice(int(bounds[place]), int(bounds[place + 1]))
            start[part], end[part] = line.apply(start[part]), line.apply(end[part])
            scale[rank], certainty[rank] = math.hypot(_ROOT_SCALE_NS, line.scale_ns), line.certainty
    return Timing(start, end, component[operations.rank], scale, certainty)


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
