"""How far the clocks of hosts are apart, whatever their stamps say: milliseconds, or an hour on a host that no time server reaches.

Stamps of the ranks of a host agree to milliseconds, those of hosts need not. So before ranks are related one by one, within a small
window, hosts are: several pairs of their ranks propose offsets (`alltrace.align.shared_ends`), and what most evidence agrees on is
taken. Steps are alike, so a shift by a whole step is always a rival; how much less it explains tells how sure the offset is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.shared_ends import possible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from alltrace.align.pairwise_clock_fit import ClockLine, Ends

_STAMPS_NS = 2e7
"""By so much the stamps of two ranks of a host may differ."""
_SHARP_NS = 3_000.0
_MOST_PAIRS = 6
_MOST_HOSTS = 6
_ENOUGH_WORTH = 150.0
_CERTAIN = 0.8
_MOST = 0.5


class HostOffset(NamedTuple):
    """What brings a host's stamps to those of the first host of its part, and how sure it is, from 0 to 1."""

    shift_ns: float
    certainty: float


def host_offsets(
    ends: Mapping[int, Ends], hosts: Mapping[int, str], sharing: Mapping[int, AbstractSet[int]], window_ns: float
) -> dict[str, HostOffset]:
    """The offset of each host; a host that nothing relates to others keeps its stamps, with certainty 0.

    Args:
        ends: The ends of each rank.
        hosts: The host of each rank.
        sharing: Communicators of each rank, as far as they are known; ranks that share one are asked first.
        window_ns: Offsets up to this are usual and tried first.
    """
    ranks: dict[str, list[int]] = {}
    for rank in sorted(ends):
        if len(ends[rank].time):
            ranks.setdefault(hosts[rank], []).append(rank)
    names = list(ranks)
    found = {name: HostOffset(0.0, 1.0 if name == names[0] else 0.0) for name in names}
    placed, waiting = names[:1], names[1:]
    while waiting:
        related = None
        for host in waiting:
            for known in _nearest(placed, names.index(host), names):
                pairs = list(_pairs(ranks[known], ranks[host], sharing))
                related = _between(ends, pairs, found[known].shift_ns, window_ns)
                if related is not None:
                    found[host] = HostOffset(related.shift_ns, min(related.certainty, found[known].certainty))
                    break
            if related is not None:
                placed.append(host)
                waiting.remove(host)
                break
        if related is None:  # the rest shares nothing with what is placed
            placed, waiting = waiting[:1], waiting[1:]
    return found


def _nearest(placed: list[str], place: int, names: list[str]) -> list[str]:
    """The hosts to relate a host to: those placed that are nearest in number."""
    return sorted(placed, key=lambda n: abs(names.index(n) - place))[:_MOST_HOSTS]


def _pairs(first: list[int], second: list[int], sharing: Mapping[int, AbstractSet[int]]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks of two hosts, those first that share most communicators, then those of equal place on their host."""
    told = any(sharing.get(r) for r in (*first, *second))
    order = [
        (-len(sharing.get(a, set()) & sharing.get(b, set())), (j - i) % len(second), i, a, b)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]
    for shared, _, _, a, b in sorted(order)[:_MOST_PAIRS]:
        if shared < 0 or not told:
            yield a, b


def _between(ends: Mapping[int, Ends], pairs: list[tuple[int, int]], shift: float, window_ns: float) -> HostOffset | None:
    """The offset that most of what pairs of ranks propose agrees on, beside what the first host is shifted by."""
    proposed: list[list[tuple[float, float]]] = []
    best: _Agreed | None = None
    for first, second in pairs:
        near = possible_lines(ends[first], ends[second], window_ns)
        if near and near[0][1].scale_ns <= _SHARP_NS and near[0][1].certainty >= _CERTAIN and near[0][1].share > _MOST:
            return HostOffset(shift + _at_middle(near[0][1], ends[second]), near[0][1].certainty)
        lines = [(worth, _at_middle(line, ends[second])) for worth, line in possible_lines(ends[first], ends[second], None)]
        if lines:
            proposed.append(lines)
            best = _agreed(proposed)
            if best.worth >= _ENOUGH_WORTH and best.certainty >= _CERTAIN:
                break
    return None if best is None else HostOffset(shift + best.shift_ns, min(best.certainty, best.worth / _ENOUGH_WORTH))


def _at_middle(line: ClockLine, ends: Ends) -> float:
    """The offset in the middle of the second rank's ends."""
    return line.offset_ns + line.slope * (float(ends.time[0] + ends.time[-1]) / 2 - line.middle_ns)


class _Agreed(NamedTuple):
    """An offset that pairs agree on, what it is worth, and how sure it is against the next."""

    shift_ns: float
    worth: float
    certainty: float


def _agreed(proposed: list[list[tuple[float, float]]]) -> _Agreed:
    """The offset with the most worth, each pair of ranks counted once."""
    every = sorted(((worth, offset) for lines in proposed for worth, offset in lines), reverse=True)
    totals: list[tuple[float, float]] = []
    for _, offset in every:
        if all(abs(offset - other) > _STAMPS_NS for _, other in totals):
            near = [max((w for w, o in lines if abs(o - offset) <= _STAMPS_NS), default=0.0) for lines in proposed]
            totals.append((sum(near), offset))
    totals.sort(reverse=True)
    worth, offset = totals[0]
    rival = totals[1][0] if len(totals) > 1 else 0.0
    return _Agreed(offset, worth, float(np.clip(3.0 * (1.0 - rival / worth), 0.0, 1.0)))
