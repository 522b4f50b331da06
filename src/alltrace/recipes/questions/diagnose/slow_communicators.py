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
    faster_spread: float  # the same of those up to their median: slower ones may be slow too
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
        far = min(self.ratios[:2]) >= max(_SLOW_RATE, 1 + self.faster_spread)
        return far or min(self.ratios) >= max(_SLOWER, 1 + _FAR * self.spread)

    @property
    def is_slower(self) -> bool:
        """Whether it takes longer than its peers at all, which says nothing by itself."""
        return min(self.ratios) >= max(_SLOWER, 1 + self.faster_spread)


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
    changed = sorted({r for n in slow for r in ranks[n]})
    explained: dict[int, dict[int, SlowCommunicator]] = {}
    while slow:
        explained |= {r: _explained({n: judged[n] for n in of_rank[r] if n in judged}, slow, across) for r in changed}
        several = {r: count for r, its in explained.items() if (count := len({ranks[n] for n in its})) > 1}
        counts = values_by((n, count) for r, count in several.items() for n in explained[r])
        most = {n: sorted((0, *its))[-2:] for n, its in counts.items()}
        alone = (r for r, count in several.items() if all(most[n][0] < count == most[n][1] for n in explained[r]))
        best = next(alone, None)
        if best is None:
            break
        links.append(SlowLink(best, explained[best]))
        for number in explained[best]:
            judged.pop(number)
            slow.pop(number, None)
        changed = sorted(explained.keys() & {r for n in explained[best] for r in ranks[n]})
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
        peers = _Peers({n: paces[n] for n in its if n in paces}, {n: tuple(groups[n].ranks) for n in its})
        compared = {n: _compared(paces[n], peers.usual(n)) for n in its if n in paces}
        judged |= {n: one for n, one in compared.items() if one is not None}
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
        numbers = set(its)
        compared = {key: median for key, median in medians.items() if key[0] in numbers}
        for (number, op), median in compared.items():
            if any(o == op and groups[n].ranks != groups[number].ranks for n, o in compared):
                continue
            inferred = groups[number].found_by == "structure"
            peers = [m for (n, o), m in compared.items() if o != op and (n != number or inferred)]
            others = [m for m in peers if m * _NOT_ONE_LINK > median]
            if others and median >= _SLOW_RATE * min(others):
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


class _Usual(NamedTuple):
    """What the peers of a communicator take for operations alike."""

    quartiles: Floats  # medians of theirs
    spread: float  # as in `SlowCommunicator`; likewise
    faster_spread: float
    peers: int


class _Ordered:
    """The paces of several communicators, ordered by each quartile, so that some of them can be left out."""

    def __init__(self, paces: Mapping[int, _Pace]) -> None:
        quartiles = np.array([pace.quartiles for pace in paces.values()])
        order = np.argsort(quartiles, axis=0)
        self._quartiles = np.take_along_axis(quartiles, order, axis=0)
        self._places = dict(zip(paces, np.argsort(order, axis=0), strict=True))

    def without(self, numbers: Sequence[int], own: _Pace) -> _Usual | None:
        """What those take that have not these numbers, of whom one has its own pace; None if there are none."""
        left_out = np.sort([self._places[n] for n in numbers if n in self._places], axis=0)
        count = len(self._quartiles) - len(left_out)
        if not count:
            return None
        places = np.repeat([[0], [(count - 1) // 2], [count // 2], [count - 1]], 3, axis=1)
        smaller = left_out - np.arange(len(left_out))[:, None]  # of each left out the places of those that are not
        places += np.count_nonzero(smaller[:, None] <= places, axis=0)
        first, below, above, last = np.take_along_axis(self._quartiles, places, axis=0)
        spread, faster = (float(pace[1] / first[1] - 1) for pace in (last, above))
        if count == 1:
            spread = faster = max(own.scatter, float((first[2] - first[0]) / first[1]))
        return _Usual((below + above) / 2, spread, faster, count)


class _Peers:
    """Communicators alike, with what each usually takes for its operations."""

    def __init__(self, paces: Mapping[int, _Paces], ranks: Mapping[int, tuple[int, ...]]) -> None:
        self._paces, self._ranks = paces, ranks
        self._of_ranks = values_by((ranks[n], n) for n in paces)
        self._of_key = values_by((key, n) for n, its in paces.items() for key in its)
        self._ordered: dict[tuple[tuple[str, int], float, int], _Ordered] = {}

    def usual(self, number: int) -> dict[tuple[str, int], _Usual]:
        """What peers take for the operations of a communicator, of those that a peer has.

        Of unknown size those of other ranks are peers: those of the same ranks have the same links, so what takes
        longer there moves more.
        """
        usual = {}
        for key, one in self._paces[number].items():
            alike = key, one.moved_bytes, one.number
            if alike not in self._ordered:
                own = {n: self._paces[n][key] for n in self._of_key[key]}
                self._ordered[alike] = _Ordered({n: pace for n, pace in own.items() if _as_large(pace, one)})
            left_out = [number] if key[1] > 0 else self._of_ranks[self._ranks[number]]
            usual[key] = self._ordered[alike].without(left_out, one)
        return {key: one for key, one in usual.items() if one is not None}


def _compared(own: _Paces, usual: Mapping[tuple[str, int], _Usual]) -> SlowCommunicator | None:
    """How much longer than is usual a communicator takes; None if no peer has one of its operations."""
    if not usual:
        return None
    expected_ns, took_ns = 0.0, np.zeros(3)
    for key, peers in usual.items():
        expected = own[key].transfer_ns * float(peers.quartiles[1]) / float(own[key].quartiles[1])
        expected_ns += expected
        took_ns += expected * own[key].quartiles / peers.quartiles
    spread, faster = (max(of_peers) for of_peers in zip(*(u[1:3] for u in usual.values()), strict=True))
    longest = max(usual, key=lambda key: own[key].transfer_ns)
    one, median = own[longest], float(usual[longest].quartiles[1])
    rates = (1 / float(one.quartiles[1]), 1 / median) if one.moved_bytes else (None, None)
    ratios: list[float] = (took_ns / expected_ns).tolist()
    fewest, lost_ns = min(u.peers for u in usual.values()), float(took_ns[1]) - expected_ns
    return SlowCommunicator(ratios, spread, faster, fewest, lost_ns, one.took_ns, *rates)


def _as_large(one: _Pace, other: _Pace) -> bool:
    """Whether messages are as large, or if none is large as many."""
    if one.moved_bytes and other.moved_bytes:
        return max(one.moved_bytes, other.moved_bytes) <= _AS_LARGE * min(one.moved_bytes, other.moved_bytes)
    return abs(one.number - other.number) <= _AS_MANY * other.number
