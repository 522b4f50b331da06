"""How far the clocks of hosts differ, in spite of their stamps: milliseconds, or an hour on a host that no time server reaches.

Stamps of the ranks of a host agree to milliseconds, those of different hosts may not. So before ranks are related one by one,
within a small window, hosts are: several pairs of their ranks propose offsets (`alltrace.align.shared_ends`), and the offset with
the most evidence is used. Steps are similar, so a shift by a whole step always competes; the gap between the two determines the
confidence.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.shared_ends import possible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from alltrace.align.pairwise_clock_fit import ClockLine, Ends

_STAMPS_NS = 2e7
"""The largest difference between the stamps of two ranks of a host."""
_SHARP_NS = 3_000.0
_MOST_PAIRS = 6
_MOST_HOSTS = 8
"""Hosts that a host is compared with; as often once more where none of those before it relates to it."""
_LOOKED_AT = 64
_UNKNOWN = -1
_ENOUGH_WORTH = 150.0
_CERTAIN = 0.8
_MOST = 0.5


class HostOffset(NamedTuple):
    """The offset of a host's stamps to those of the first host of its part, and its confidence from 0 to 1."""

    shift_ns: float
    certainty: float


def host_offsets(
    ends: Mapping[int, Ends], hosts: Mapping[int, str], sharing: Mapping[int, AbstractSet[int]], window_ns: float
) -> dict[str, HostOffset]:
    """The offset of each host; a host that nothing relates to others keeps its stamps, with certainty 0.

    Args:
        ends: The ends of each rank that has any.
        hosts: The host of each rank.
        sharing: Communicators of each rank, as far as known; ranks that share one are used first.
        window_ns: Offsets up to this are usual and tried first.
    """
    ranks: dict[str, list[int]] = {}
    for rank in sorted(ends):
        ranks.setdefault(hosts[rank], []).append(rank)
    names = list(ranks)
    shared = [_shared(mine, sharing) for mine in ranks.values()]
    forest = _Forest(len(names))

    def relate(host: int) -> None:
        for known in forest.candidates(host, shared[host]):
            forest.tried.add((known, host))
            found = _between(ends, list(_pairs(ranks[names[known]], ranks[names[host]], sharing)), window_ns)
            if found is not None:
                forest.connect(known, host, found)
                return

    for host in range(len(names)):
        relate(host)
        forest.add(host, shared[host])
    for host in forest.roots()[1:]:  # now with the following ones too
        relate(host)
    return dict(zip(names, forest.offsets(), strict=True))


def _shared(ranks: list[int], sharing: Mapping[int, AbstractSet[int]]) -> list[int]:
    """The communicators of a host's ranks; ranks without a known communicator get one placeholder."""
    return sorted({c for r in ranks for c in sharing.get(r, ())}) or [_UNKNOWN]


class _Forest:
    """Hosts by their places, as trees of those that are related.

    Args:
        hosts: How many there are.

    Attributes:
        tried: Pairs of hosts that were compared.
    """

    def __init__(self, hosts: int) -> None:
        self._sets = DisjointSets(hosts)
        self._relations: list[list[tuple[int, HostOffset]]] = [[] for _ in range(hosts)]
        self._seen: dict[int, list[int]] = {}  # by communicator, ascending
        self.tried: set[tuple[int, int]] = set()
        self._last_distance = 0

    def add(self, host: int, communicators: list[int]) -> None:
        """From now on others may be related to a host."""
        for communicator in communicators:
            self._seen.setdefault(communicator, []).append(host)

    def candidates(self, host: int, communicators: list[int]) -> list[int]:
        """The hosts to relate a host to, of those that share a communicator with it, in each tree in turn.

        They are the nearest in number, but first the one as far away as those two were that were related last: in a pipeline, hosts
        of a stage may share little with each other, and each relates to the one of the stage before.
        """
        near: set[int] = set()
        for communicator in communicators:
            hosts = self._seen.get(communicator, [])
            at = bisect(hosts, host)
            near.update(hosts[max(at - _LOOKED_AT, 0) : at + _LOOKED_AT])
        own, turn = self._sets.of(host), Counter[int]()
        found: list[tuple[int, int, int]] = []
        for other in sorted(near, key=lambda h: (abs(h - host) != self._last_distance, abs(h - host), h)):
            tree = self._sets.of(other)
            if tree != own and (other, host) not in self.tried and (host, other) not in self.tried:
                found.append((turn[tree], len(found), other))
                turn[tree] += 1
        return [other for _, _, other in sorted(found)[:_MOST_HOSTS]]

    def connect(self, known: int, host: int, offset: HostOffset) -> None:
        """Put the trees of two hosts together, of which the second is `offset` from the first."""
        self._sets.join(known, host)
        self._last_distance = abs(host - known)
        self._relations[known].append((host, offset))
        self._relations[host].append((known, offset._replace(shift_ns=-offset.shift_ns)))

    def roots(self) -> list[int]:
        """The first host of each tree."""
        return sorted(set(self._sets.labels().tolist()))

    def offsets(self) -> list[HostOffset]:
        """The offset of each host from the first of its tree; only those of the first tree are certain."""
        found: dict[int, HostOffset] = {}
        for root in self.roots():
            found[root] = HostOffset(0.0, 0.0 if found else 1.0)
            left = [root]
            while left:
                known = left.pop()
                for host, offset in self._relations[known]:
                    if host not in found:
                        shift, certainty = found[known]
                        found[host] = HostOffset(shift + offset.shift_ns, min(certainty, offset.certainty))
                        left.append(host)
        return [found[host] for host in sorted(found)]


def _pairs(first: list[int], second: list[int], sharing: Mapping[int, AbstractSet[int]]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks of two hosts, first those that share the most communicators, then those with the same index on their host."""
    told = any(sharing.get(r) for r in (*first, *second))
    order = [
        (-len(sharing.get(a, set()) & sharing.get(b, set())), (j - i) % len(second), i, a, b)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]
    for shared, _, _, a, b in sorted(order)[:_MOST_PAIRS]:
        if shared < 0 or not told:
            yield a, b


def _between(ends: Mapping[int, Ends], pairs: list[tuple[int, int]], window_ns: float) -> HostOffset | None:
    """The offset that most of what pairs of ranks propose agrees on."""
    proposed: list[list[tuple[float, float]]] = []
    best: _Agreed | None = None
    for first, second in pairs:
        near = possible_lines(ends[first], ends[second], window_ns)
        if near and near[0][1].scale_ns <= _SHARP_NS and near[0][1].certainty >= _CERTAIN and near[0][1].share > _MOST:
            return HostOffset(_at_middle(near[0][1], ends[second]), near[0][1].certainty)
        lines = [(worth, _at_middle(line, ends[second])) for worth, line in possible_lines(ends[first], ends[second], None)]
        if lines:
            proposed.append(lines)
            best = _agreed(proposed)
            if best.worth >= _ENOUGH_WORTH and best.certainty >= _CERTAIN:
                break
    return None if best is None else HostOffset(best.shift_ns, min(best.certainty, best.worth / _ENOUGH_WORTH))


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
