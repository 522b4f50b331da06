"""Which communicators are far slower than others with as many ranks and hosts, and the fewest causes of that."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from alltrace.recipes.questions.diagnose.absent_ranks import bus_bytes
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members
from alltrace.trace.arrays import Flags, Floats
from alltrace.trace.distinct import values_by

_SLOW_RATE = 1.6  # a communicator is slow when it takes at least this many times as long as its peers
_SLOWER = 1.2  # the same if its peers differ little from each other, and for another one of a rank with a slow link,
_FAR = 4  # which they do if the fastest exceeds the slowest of them by this many times less

_LEAST_PART = 0.1
"""A slow communicator that loses less than this share of what another one loses shows nothing of the other's cause,
unless it is nearly as slow."""

_LEAST_BYTES = 1 << 20  # smaller messages say more of latency than of bandwidth
_ENOUGH = 3  # of fewer operations nothing is typical
_AS_MANY = 0.1  # communicators have as many operations where their numbers differ by this share or less

_AS_LARGE = 4
"""Rates of messages are compared if their typical sizes differ by at most this factor: larger ones use more of a
link."""

_NOT_ONE_LINK = 16
"""Of unknown sizes, what takes this many times as long as another operation moves more: no link is so slow."""

_SHORT = 4  # what usually takes this many times less than what is slow does not show how fast the link is

_RING = ("AllGather", "AllReduce", "ReduceScatter")
"""Operations that pass the same bytes around the same ring, so that their bus bandwidths compare."""


class SlowCommunicator(NamedTuple):
    ratios: Sequence[float]  # how many times as long as its peers its transfers take, by the three quartiles
    spread: float  # how much its peers differ from each other, or if there is one the operations of either
    even: float  # the same up to their median: slower ones may be slow too
    peers: int  # with how many communicators it is compared
    lost_ns: float  # how much longer than those all of its operations take
    # of the operation that it spends most time in the median time, and of large messages the bus bandwidth and that of
    # its peers, median
    took_ns: float
    gb_per_s: float | None = None
    peers_gb_per_s: float | None = None

    @property
    def ratio(self) -> float:
        return self.ratios[1]

    @property
    def usual_ns(self) -> float:
        return self.took_ns / self.ratio

    @property
    def is_slow(self) -> bool:
        # what only some operations take longer has another reason
        far = min(self.ratios[:2]) >= max(_SLOW_RATE, 1 + self.even)
        return far or min(self.ratios) >= max(_SLOWER, 1 + _FAR * self.spread)

    @property
    def is_slower(self) -> bool:
        """Whether it takes longer than its peers at all, which says nothing by itself."""
        return min(self.ratios) >= max(_SLOWER, 1 + self.even)


class SlowLink(NamedTuple):
    rank: int | None  # the rank whose link is slow; None for a communicator by itself
    slow: dict[int, SlowCommunicator]  # the communicators that are slow for it, by number


class _Pace(NamedTuple):
    """What operations alike of a communicator take."""

    quartiles: Floats  # ns a byte on the bus of large messages, ns of each operation of others
    moved_bytes: float  # median, of large messages; else 0
    number: int  # of the operations
    transfer_ns: int
    took_ns: float  # of one operation, median

    @property
    def scatter(self) -> float:
        return float((self.quartiles[2] - self.quartiles[0]) / self.quartiles[1])


_Paces: TypeAlias = Mapping[tuple[str, int], _Pace]  # by operation and bytes


def slow_links(all_ranks: AllRankFacts, members: Members) -> list[SlowLink]:
    """The fewest causes of all slow communicators: links of ranks that explain several of them, and the others.

    A link of a rank is slow, within its host or between hosts, if several of its communicators that use it are, and
    none of these is as fast as those of other ranks. Others that are alike and as slow have one cause, such as a
    switch; what the reports show as two may be one.
    """
    ranks = {g.number: frozenset(g.ranks) for g in all_ranks.alignment.groups}
    across = {n: len({all_ranks.hosts.get(r) for r in its}) > 1 for n, its in ranks.items()}
    judged = _judged(all_ranks, members)
    slow = {n: one for n, one in judged.items() if one.is_slow}
    of_rank = values_by((r, n) for n in judged for r in ranks[n])
    links = []
    while slow:
        culprits = frozenset[int]().union(*(ranks[n] for n in slow))
        explained = {r: _explained({n: judged[n] for n in of_rank[r] if n in judged}, slow, across) for r in culprits}
        several = {r: count for r, its in explained.items() if (count := len({ranks[n] for n in its})) > 1}
        as_many = {r: [o for o in several if o != r and several[o] >= several[r]] for r in several}
        best = [r for r in several if not any(explained[o].keys() & explained[r].keys() for o in as_many[r])]
        if not best:
            break
        links.append(SlowLink(best[0], explained[best[0]]))
        of_link = explained[best[0]].keys()
        judged, slow = ({n: one for n, one in these.items() if n not in of_link} for these in (judged, slow))
    for its in _alike(all_ranks).values():
        left = sorted((n for n in its if n in slow), key=lambda n: -slow[n].lost_ns)
        while left:
            first = left[0]
            as_slow = [n for n in left if ranks[n] == ranks[first] or _have_one_cause(slow[n], slow[first])]
            links.append(SlowLink(None, {n: slow[n] for n in as_slow}))
            left = [n for n in left if n not in as_slow]
    return links


def _have_one_cause(one: SlowCommunicator, costliest: SlowCommunicator) -> bool:
    as_slow = costliest.ratio / _SLOW_RATE < one.ratio < costliest.ratio * _SLOW_RATE
    return as_slow and one.lost_ns >= _LEAST_PART * costliest.lost_ns


def _explained(
    judged: Mapping[int, SlowCommunicator], slow: Container[int], across: Mapping[int, bool]
) -> dict[int, SlowCommunicator]:
    """Which communicators of a rank, those that are judged, would be slow because of its links; empty if none is slow.

    A link within a host and one between hosts are two. Of one that is slow nothing is as fast as elsewhere that takes
    time, and shorter operations are not slower than longer ones: their latency stays.
    """
    slower: dict[int, SlowCommunicator] = {}
    for link in (False, True):
        its = {n: one for n, one in judged.items() if across[n] == link}
        own = {n: one for n, one in its.items() if one.is_slower or n in slow}
        least_ns = max((one.usual_ns for one in own.values()), default=0.0) / _SHORT
        if all(n in own or one.ratio >= _SLOWER or one.took_ns < least_ns for n, one in its.items()):
            slower |= own
    if not slower:
        return {}
    most = _SLOW_RATE * max(slower.values(), key=lambda one: one.usual_ns).ratio
    slower = {n: one for n, one in slower.items() if one.ratio < most}
    much = _LEAST_PART * max(one.lost_ns for one in slower.values())
    far = np.sqrt(max(one.ratio for one in slower.values()))
    explained = {n: one for n, one in slower.items() if one.lost_ns >= much or one.ratio >= far}
    return explained if any(n in slow for n in explained) else {}


def _judged(all_ranks: AllRankFacts, members: Members) -> dict[int, SlowCommunicator]:
    """How much longer than others alike communicators take, by number, of those that can be compared.

    Operations alike are compared, of sizes alike: an all-to-all or a small message never reaches the bus bandwidth of a
    large all-reduce.
    """
    groups = {g.number: g for g in all_ranks.alignment.groups}
    paces = _paces(members, {n: g.size for n, g in groups.items()})
    judged: dict[int, SlowCommunicator] = {}
    for its in _alike(all_ranks).values():
        for number in (n for n in its if n in paces):
            others = [n for n in its if n != number and n in paces]
            elsewhere = [paces[n] for n in others if groups[n].ranks != groups[number].ranks]
            compared = _compared(paces[number], [paces[n] for n in others], elsewhere)
            judged |= {} if compared is None else {number: compared}
    return judged


def _alike(all_ranks: AllRankFacts) -> dict[tuple[int, int], list[int]]:
    """The numbers of communicators by how many ranks and hosts they have."""
    hosts = all_ranks.hosts
    return values_by(((g.size, len({hosts.get(r) for r in g.ranks})), g.number) for g in all_ranks.alignment.groups)


def possible_excess(all_ranks: AllRankFacts, members: Members) -> Floats:
    """The share of each member's transfer that a slow link would be to blame for if its size, which is unknown, is not.

    0 where sizes are known, or where the same operations of communicators alike show how long they take. Communicators
    that are inferred may be several: their operations are compared with each other.
    """
    groups = {g.number: g for g in all_ranks.alignment.groups}
    measured = _measured(members, members.size <= 0)
    took = values_by(((n, op), ns) for n, op, _, ns in measured if op in _RING and n in groups)
    # an all-reduce goes around twice
    medians = {
        key: float(np.median(values)) / (2 if key[1] == "AllReduce" else 1)
        for key, values in took.items()
        if len(values) >= _ENOUGH
    }
    excess = np.zeros(len(members.rank))
    for its in _alike(all_ranks).values():
        compared = {key: median for key, median in medians.items() if key[0] in its}
        for (number, op), median in compared.items():
            inferred = groups[number].found_by == "structure"
            peers = [m for (n, o), m in compared.items() if o != op and (n != number or inferred)]
            others = [m for m in peers if m * _NOT_ONE_LINK > median]
            shown = any(o == op and groups[n].ranks != groups[number].ranks for n, o in compared)
            if not shown and others and median >= _SLOW_RATE * min(others):
                excess[(members.communicator == number) & (members.op == op)] = 1 - min(others) / median
    return excess


def _measured(members: Members, chosen: Flags) -> Iterator[tuple[int, str, int, int]]:
    """Of the chosen instances with a certain transfer the communicator, operation, bytes, and time of it."""
    first = members.firsts
    rows = first[chosen[first] & members.certain[first] & (members.transfer[first] > 0)]
    columns = (members.communicator, members.op, members.size, members.transfer)
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def _paces(members: Members, sizes: Mapping[int, int]) -> dict[int, _Paces]:
    """What operations take in communicators of these sizes, by operation and bytes: of large messages, if there are."""
    collected: dict[int, dict[tuple[str, int], list[tuple[float, float]]]] = {}
    for number, op, size, took in _measured(members, np.isin(members.communicator, list(sizes))):
        large = size >= _LEAST_BYTES
        key = ("ring" if op in _RING else op, _LEAST_BYTES) if large else (op, size)
        moved = bus_bytes(op, size, sizes[number]) if large else 0.0
        collected.setdefault(number, {}).setdefault(key, []).append((took, moved))
    paces: dict[int, _Paces] = {}
    for number, its in collected.items():
        typical = {key: _typical(np.array(values)) for key, values in its.items() if len(values) >= _ENOUGH}
        paces[number] = {key: one for key, one in typical.items() if one.moved_bytes} or typical
    return paces


def _typical(values: Floats) -> _Pace:
    took, moved = values.T
    quartiles = np.percentile(took / np.where(moved > 0, moved, 1.0), (25, 50, 75))
    return _Pace(quartiles, float(np.median(moved)), len(took), int(took.sum()), float(np.median(took)))


def _compared(own: _Paces, others: Sequence[_Paces], elsewhere: Sequence[_Paces]) -> SlowCommunicator | None:
    """How much longer than its peers a communicator takes; None if no peer has one of its operations.

    Of unknown size those of other ranks are peers, `elsewhere`: those of the same ranks have the same links, so what
    takes longer there moves more.
    """
    usual, spread, even, fewest = 0.0, 0.0, 0.0, len(others)
    took = np.zeros(3)
    longest: tuple[_Pace, float] | None = None
    for key, one in own.items():
        peers = [o[key] for o in (others if key[1] > 0 else elsewhere) if key in o and _as_large(o[key], one)]
        if not peers:
            continue
        paces = sorted(float(p.quartiles[1]) for p in peers)
        median = float(np.median(paces))
        expected = one.transfer_ns * median / float(one.quartiles[1])
        usual += expected
        took += expected * one.quartiles / np.median([p.quartiles for p in peers], axis=0)
        apart = paces[-1] / paces[0] - 1 if len(peers) > 1 else max(one.scatter, peers[0].scatter)
        spread, fewest = max(spread, apart), min(fewest, len(peers))
        even = max(even, paces[len(peers) // 2] / paces[0] - 1 if len(peers) > 1 else apart)
        if longest is None or one.transfer_ns > longest[0].transfer_ns:
            longest = one, median
    if longest is None:
        return None
    one, median = longest
    rates = (1 / float(one.quartiles[1]), 1 / median) if one.moved_bytes else (None, None)
    ratios: list[float] = (took / usual).tolist()
    return SlowCommunicator(ratios, spread, even, fewest, float(took[1]) - usual, one.took_ns, *rates)


def _as_large(one: _Pace, other: _Pace) -> bool:
    """Whether messages are as large, or if none is large as many."""
    if one.moved_bytes and other.moved_bytes:
        return max(one.moved_bytes, other.moved_bytes) <= _AS_LARGE * min(one.moved_bytes, other.moved_bytes)
    return abs(one.number - other.number) <= _AS_MANY * other.number
