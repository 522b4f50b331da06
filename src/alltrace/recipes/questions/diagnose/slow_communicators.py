"""Which communicators are far slower than others with as many ranks and hosts, which should have similar links."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alltrace.recipes.questions.diagnose.absent_ranks import bus_bytes
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members
from alltrace.trace.arrays import Flags, Floats
from alltrace.trace.distinct import values_by

_SLOW_RATE = 1.6  # a communicator is slow when it takes at least this many times as long as its peers
_SLOWER = 1.25  # the same if its peers differ little from each other, and where it shares a rank with one that is slow,
_FAR = 4  # which they do if the fastest exceeds the slowest of them by this many times less

_LEAST_PART = 0.1
"""A slow communicator that loses less than this share of what another one loses is none, unless it is nearly as
slow."""

_LEAST_BYTES = 1 << 20  # smaller messages say more of latency than of bandwidth
_ENOUGH = 3  # of fewer operations nothing is typical
_AS_MANY = 0.1  # communicators have as many operations where their numbers differ by this share or less

_AS_LARGE = 4
"""Rates of messages are compared if their typical sizes differ by at most this factor: larger ones use more of a
link."""

_NOT_ONE_LINK = 16
"""Of unknown sizes, what takes this many times as long as another operation moves more: no link is so slow."""

_RING = ("AllGather", "AllReduce", "ReduceScatter")
"""Operations that pass the same bytes around the same ring, so that their bus bandwidths compare."""


class SlowCommunicator(NamedTuple):
    ratio: float  # how many times as long as its peers its transfers take
    # the bus bandwidth of the operation that it spends most time in; None if no message is large enough to measure it
    gb_per_s: float | None = None
    peers_gb_per_s: float | None = None  # the median of its peers for the same operation


class _Rate(NamedTuple):
    gb_per_s: float
    moved_bytes: float
    transfer_ns: int


def slow_communicators(all_ranks: AllRankFacts, members: Members) -> dict[int, SlowCommunicator]:
    """Communicators that take far longer than others alike, by number: mostly `_SLOW_RATE` times as long, or longer.

    Operations alike are compared, of sizes alike: an all-to-all or a small message never reaches the bus bandwidth of a
    large all-reduce.
    """
    ranks = {g.number: g.ranks for g in all_ranks.alignment.groups}
    rates = _rates(members, {g.number: g.size for g in all_ranks.alignment.groups})
    judged: dict[int, SlowCommunicator] = {}
    clear: set[int] = set()
    for its in _alike(all_ranks).values():
        rated = [n for n in its if n in rates]
        for number in rated:
            compared, even = _compared(rates[number], [rates[n] for n in rated if n != number])
            judged |= {} if compared is None else {number: compared}
            clear |= {number} if even else set()
        others = _longer(members, {n: ranks[n] for n in its if n not in rates})
        judged |= {n: SlowCommunicator(ratio) for n, ratio in others.items()}
    ratios = {n: one.ratio for n, one in judged.items()}
    slow = {n: r for n, r in ratios.items() if r >= (_SLOWER if n in clear else _SLOW_RATE)}
    return {n: judged[n] for n in _that_cost(members, _of_one_rank(ranks, ratios, slow))}


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
            if others and median >= _SLOW_RATE * min(others):
                excess[(members.communicator == number) & (members.op == op)] = 1 - min(others) / median
    return excess


def _measured(members: Members, chosen: Flags) -> Iterator[tuple[int, str, int, int]]:
    """Of the chosen instances with a certain transfer the communicator, operation, bytes, and time of it."""
    first = members.firsts
    rows = first[chosen[first] & members.certain[first] & (members.transfer[first] > 0)]
    columns = (members.communicator, members.op, members.size, members.transfer)
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def _that_cost(members: Members, slow: Mapping[int, float]) -> dict[int, float]:
    """The slow communicators without those that lose little and are far less slow: by latency."""
    first = members.firsts
    lost = {
        n: float(members.transfer[first[members.communicator[first] == n]].sum()) * (1 - 1 / ratio)
        for n, ratio in slow.items()
    }
    much, far = _LEAST_PART * max(lost.values(), default=0.0), float(np.sqrt(max(slow.values(), default=1.0)))
    return {n: ratio for n, ratio in slow.items() if lost[n] >= much or ratio >= far}


def _of_one_rank(
    ranks: Mapping[int, Sequence[int]], ratios: Mapping[int, float], slow: Mapping[int, float]
) -> dict[int, float]:
    """The slow communicators, and those slower than others alike that share their one common rank."""
    if not slow:
        return {}
    common = set.intersection(*(set(ranks[n]) for n in slow))
    slower = [n for n, ratio in ratios.items() if n not in slow and ratio >= _SLOWER]
    shared = [r for r in common if any(r in ranks[n] for n in slower)]
    if len(shared) != 1 or len(common) < 2:
        return dict(slow)
    return {**slow, **{n: ratios[n] for n in slower if shared[0] in ranks[n]}}


def _rates(members: Members, sizes: Mapping[int, int]) -> dict[int, dict[str, _Rate]]:
    collected: dict[int, dict[str, list[_Rate]]] = {}
    for number, op, size, took in _measured(members, members.size >= _LEAST_BYTES):
        if number in sizes:
            moved = bus_bytes(op, size, sizes[number])
            rates = collected.setdefault(number, {}).setdefault("ring" if op in _RING else op, [])
            rates.append(_Rate(moved / took, moved, took))
    typical = {
        number: {op: _typical(values) for op, values in its.items() if len(values) >= _ENOUGH}
        for number, its in collected.items()
    }
    return {number: its for number, its in typical.items() if its}


def _typical(values: Sequence[_Rate]) -> _Rate:
    rate, size = (float(np.median([v[at] for v in values])) for at in (0, 1))
    return _Rate(rate, size, sum(v.transfer_ns for v in values))


def _compared(own: Mapping[str, _Rate], others: Iterable[Mapping[str, _Rate]]) -> tuple[SlowCommunicator | None, bool]:
    """How many times as long as at its peers' rates a communicator takes; None if no peer has one of its operations.

    And whether its peers differ so little from each other, of each operation, that less of a difference says the same.
    """
    others = list(others)
    took = usual = 0.0
    longest: tuple[int, float, float] | None = None
    fewest, spread = len(others), 0.0
    for op, rate in own.items():
        peers = [o[op].gb_per_s for o in others if op in o and _as_large(o[op], rate)]
        if peers:
            median = float(np.median(peers))
            took += rate.transfer_ns
            usual += rate.transfer_ns * rate.gb_per_s / median
            longest = max(longest or (0, 0.0, 0.0), (rate.transfer_ns, rate.gb_per_s, median))
            fewest, spread = min(fewest, len(peers)), max(spread, max(peers) / min(peers) - 1)
    if longest is None or not usual:
        return None, False
    ratio = took / usual
    return SlowCommunicator(ratio, longest[1], longest[2]), fewest >= _ENOUGH and ratio - 1 >= _FAR * spread


def _as_large(one: _Rate, other: _Rate) -> bool:
    return max(one.moved_bytes, other.moved_bytes) <= _AS_LARGE * min(one.moved_bytes, other.moved_bytes)


def _longer(members: Members, ranks: Mapping[int, tuple[int, ...]]) -> dict[int, float]:
    """How many times as long as in others communicators take for the same operations, of as many bytes and number.

    So this compares messages that are too small for a bandwidth, or without a size in the reports. Of these,
    communicators of the same ranks show nothing: they have the same links, so what takes longer moves more.
    """
    took: dict[int, dict[tuple[str, int], list[int]]] = {}
    for number, op, size, ns in _measured(members, np.isin(members.communicator, list(ranks))):
        took.setdefault(number, {}).setdefault((op, size), []).append(ns)
    longer = {}
    for number, its in took.items():
        own = usual = 0.0
        for key, values in its.items():
            peers = [n for n in took if n != number and (key[1] > 0 or ranks[n] != ranks[number])]
            others = [took[n][key] for n in peers if key in took[n]]
            others = [o for o in others if abs(len(o) - len(values)) <= _AS_MANY * len(values)]
            if len(values) >= _ENOUGH and others:
                own += len(values) * float(np.median(values))
                usual += len(values) * float(np.median([np.median(o) for o in others]))
        if usual:
            longer[number] = own / usual
    return longer
