"""Which communicators are far slower than others of as many ranks and hosts, whose links should be like theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.recipes.questions.diagnose.absent_ranks import bus_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members

_SLOW_RATE = 1.6
"""A communicator is slow when it takes at least this many times as long as its peers."""

_LEAST_BYTES = 1 << 20
"""Smaller messages say more of latency than of bandwidth."""

_ENOUGH = 3
"""Of fewer operations nothing is typical."""

_AS_MANY = 0.1
"""Communicators have as many operations where their numbers differ by this share or less."""

_AS_LARGE = 4
"""Rates of messages are compared whose typical sizes differ by this factor at most: larger ones use more of a link."""


class SlowCommunicator(NamedTuple):
    """How slow a communicator is.

    Attributes:
        ratio: How many times as long as its peers its transfers take.
        gb_per_s: The bus bandwidth of the operation that it spends most time in; None where no message is large enough to tell.
        peers_gb_per_s: That of its peers for the same operation, median.
    """

    ratio: float
    gb_per_s: float | None = None
    peers_gb_per_s: float | None = None


class _Rate(NamedTuple):
    gb_per_s: float
    size_bytes: float
    transfer_ns: int


def slow_communicators(all_ranks: AllRankFacts, members: Members, first: NDArray[np.int64]) -> dict[int, SlowCommunicator]:
    """Communicators that take `_SLOW_RATE` times as long as others alike, or longer, by number.

    The same operations are compared, of sizes alike: an all-to-all or a small message never reaches the bus bandwidth of a large
    all-reduce.

    Args:
        all_ranks: All ranks.
        members: The members, without waits for ranks that have no report.
        first: The first row of each instance.
    """
    groups = {g.number: g for g in all_ranks.alignment.groups}
    alike: dict[tuple[int, int], list[int]] = {}
    for number, group in groups.items():
        alike.setdefault((group.size, len({all_ranks.hosts.get(r) for r in group.ranks})), []).append(number)
    rates = _rates(members, first, {n: g.size for n, g in groups.items()})
    slow: dict[int, SlowCommunicator] = {}
    for its in alike.values():
        rated = [n for n in its if n in rates]
        for number in rated:
            found = _compared(rates[number], [rates[n] for n in rated if n != number])
            if found is not None:
                slow[number] = found
        others = _longer(members, first, [n for n in its if n not in rates])
        slow.update((n, SlowCommunicator(ratio)) for n, ratio in others.items())
    return {n: found for n, found in slow.items() if found.ratio >= _SLOW_RATE}


def _rates(members: Members, first: NDArray[np.int64], sizes: Mapping[int, int]) -> dict[int, dict[str, _Rate]]:
    """Of each communicator and operation with `_ENOUGH` large messages, the typical bus bandwidth (formulas of nccl-tests)."""
    large = (members.size[first] >= _LEAST_BYTES) & members.certain[first] & (members.transfer[first] > 0)
    collected: dict[int, dict[str, list[_Rate]]] = {}
    for row in first[large].tolist():
        number, op = int(members.communicator[row]), str(members.op[row])
        if number in sizes:
            size, took = int(members.size[row]), int(members.transfer[row])
            rate = _Rate(bus_bytes(op, size, sizes[number]) / took, size, took)
            collected.setdefault(number, {}).setdefault(op, []).append(rate)
    typical = {
        number: {op: _typical(values) for op, values in its.items() if len(values) >= _ENOUGH} for number, its in collected.items()
    }
    return {number: its for number, its in typical.items() if its}


def _typical(values: Sequence[_Rate]) -> _Rate:
    rate, size = (float(np.median([v[at] for v in values])) for at in (0, 1))
    return _Rate(rate, size, sum(v.transfer_ns for v in values))


def _compared(own: Mapping[str, _Rate], others: Iterable[Mapping[str, _Rate]]) -> SlowCommunicator | None:
    """How many times as long as at its peers' rates a communicator takes; None where no peer has an operation of its own."""
    others = list(others)
    took = usual = 0.0
    longest: tuple[int, float, float] | None = None
    for op, rate in own.items():
        peers = [o[op].gb_per_s for o in others if op in o and _as_large(o[op], rate)]
        if peers:
            median = float(np.median(peers))
            took += rate.transfer_ns
            usual += rate.transfer_ns * rate.gb_per_s / median
            longest = max(longest or (0, 0.0, 0.0), (rate.transfer_ns, rate.gb_per_s, median))
    return None if longest is None or not usual else SlowCommunicator(took / usual, longest[1], longest[2])


def _as_large(one: _Rate, other: _Rate) -> bool:
    return max(one.size_bytes, other.size_bytes) <= _AS_LARGE * min(one.size_bytes, other.size_bytes)


def _longer(members: Members, first: NDArray[np.int64], numbers: Sequence[int]) -> dict[int, float]:
    """How many times as long as in others communicators take for the same operations, of as many bytes, and as many of them.

    So messages are compared that are too small to tell a bandwidth, or of which no report tells the size.

    Args:
        members: The members.
        first: The first row of each instance.
        numbers: Communicators that are alike.
    """
    rows = first[np.isin(members.communicator[first], numbers) & members.certain[first] & (members.transfer[first] > 0)]
    took: dict[int, dict[tuple[str, int], list[int]]] = {}
    for row in rows.tolist():
        its = took.setdefault(int(members.communicator[row]), {})
        its.setdefault((str(members.op[row]), int(members.size[row])), []).append(int(members.transfer[row]))
    found = {}
    for number, its in took.items():
        own = usual = 0.0
        for key, values in its.items():
            others = [o[key] for n, o in took.items() if n != number and key in o]
            others = [o for o in others if abs(len(o) - len(values)) <= _AS_MANY * len(values)]
            if len(values) >= _ENOUGH and others:
                own += len(values) * float(np.median(values))
                usual += len(values) * float(np.median([np.median(o) for o in others]))
        if usual:
            found[number] = own / usual
    return found
