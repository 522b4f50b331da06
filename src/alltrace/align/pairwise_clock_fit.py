"""How one rank's clock runs against another's, found from the pattern of the ends of their synchronising operations.

Members of a synchronising operation end together, so the differences between the ends of equal operations pile up at the true
offset of the clocks, and nowhere as sharply: shifted by a step they scatter by the difference in step length. So a repeated,
identical operation is distinguished from its neighbours by time alone, and a lost event or a late start affects only its partner.

A candidate is scored by the surprise of its coincidences: n of them within a width w, when events come every g, are worth
n * log(g / w); the best width counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.core import fits as core

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CLUMP = 96
"""Events that vote for an offset at once; short enough that drift does not matter."""

_BIN_NS = 1 << 16
_FINES = 8
_FINE_NS = _BIN_NS // _FINES
_WIDTHS_NS = np.array([500.0, 2_000.0, 8_000.0, 32_000.0, 128_000.0])
_MOST_CANDIDATES = 16
_MOST_STRONG = 256
_STRONG = 0.7  # of the most votes
_MOST_VOTES = 2_000_000
_MOST_RATES = 40
_TRUST = 3
_PLENTY = 12
_SCALE_FLOOR_NS = 200.0
_WIDEST_NS = 200_000.0
_CONNECTED = 0.5


@dataclass(frozen=True)
class ClockLine:
    """t_first = t_second + offset + slope * (t_second - middle), for times of two ranks.

    Attributes:
        offset_ns: Difference at `middle_ns`.
        slope: Relative difference of rates.
        middle_ns: A time of the second rank.
        scale_ns: Standard deviation of the remaining differences, robust.
        count: Coincidences found.
        share: Their share of the events that had a chance of one.
        certainty: 1 if no other offset explains nearly as many, down to 0 if another does as well.
    """

    offset_ns: float
    slope: float
    middle_ns: float
    scale_ns: float
    count: int
    share: float
    certainty: float

    def apply(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Times of the second rank on the first's clock."""
        return times + self.offset_ns + self.slope * (times - self.middle_ns)

    def then(self, outer: ClockLine) -> ClockLine:
        """The second rank's relation to a third, to which `outer` relates the first: both relations composed."""
        return ClockLine(
            self.offset_ns + outer.offset_ns + outer.slope * (self.middle_ns + self.offset_ns - outer.middle_ns),
            self.slope + outer.slope + self.slope * outer.slope,
            self.middle_ns,
            math.hypot(self.scale_ns, outer.scale_ns),
            min(self.count, outer.count),
            min(self.share, outer.share),
            min(self.certainty, outer.certainty),
        )


@dataclass(frozen=True)
class Ends:
    """Ends of synchronising operations of one rank, by time.

    Attributes:
        time: End, ns, float64.
        key: What must be equal to coincide, below 2^15.
        packed: `key` and `time` in one sorted number.
        keyed: The time of each of `packed`.
        keys: The distinct keys.
    """

    time: NDArray[np.float64]
    key: NDArray[np.int64]
    packed: NDArray[np.int64]
    keyed: NDArray[np.float64]
    keys: NDArray[np.int64]


_KEY = 1 << 48


def ends_of(time: NDArray[np.float64], key: NDArray[np.int64]) -> Ends:
    """Ends, which are sorted here. Times must be from 0 to 2^48 ns (three days)."""
    by_time = np.argsort(time, kind="stable")
    time, key = time[by_time], key[by_time]
    packed = _packed(key, time)
    order = np.argsort(packed, kind="stable")
    packed = packed[order]
    keys = packed // _KEY
    return Ends(time, key, packed, time[order], keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys)


def relate(first: Ends, second: Ends, window_ns: float | None) -> ClockLine | None:
    """The line of the second rank's clock against the first's, or None if their ends show none.

    Args:
        first: Ends of the first rank.
        second: Ends of the second.
        window_ns: How far the offset can be from 0; None for any.
    """
    if not np.array_equal(first.keys, second.keys):
        keys = np.intersect1d(first.keys, second.keys, assume_unique=True)
        if not len(keys):
            return None
        first, second = (ends_of(e.time[m], e.key[m]) for e in (first, second) for m in [np.isin(e.key, keys)])
    best: ClockLine | None = None
    for place in (0.5, 0.25, 0.75, 0.02, 0.98):
        candidates = _candidates(first, second, window_ns, place)
        found = [c for c in (_extended(first, second, *candidate) for candidate in candidates[:3]) if c is not None]
        found.sort(key=_worth, reverse=True)
        if found and (best is None or _worth(found[0]) > _worth(best)):
            others = [_worth(c) for c in found[1:] if abs(c.offset_ns - found[0].offset_ns) > _BIN_NS / 4]
            rival = max(others, default=0.0) / _worth(found[0]) if _worth(found[0]) > 0 else 1.0
            # a few coincidences are hardly more than chance
            certainty = min(float(np.clip(4.0 * (1.0 - rival), 0.0, 1.0)), found[0].count / _PLENTY)
            best = replace(found[0], certainty=certainty)
        if best is not None and best.share > _CONNECTED:
            return best
    return best if best is not None and best.count >= _TRUST and best.share > _CONNECTED / 2 else None


class NumberedEnds(NamedTuple):
    """Ends of synchronising operations of one rank, by a number that is the same on all ranks and distinct on each.

    Attributes:
        number: Number, ascending.
        time: End, ns, float64.
    """

    number: NDArray[np.int64]
    time: NDArray[np.float64]


def relate_numbered(first: NumberedEnds, second: NumberedEnds) -> ClockLine | None:
    """The line of the second rank's clock against the first's by ends of equal number; None if there are few.

    Its scale is wide if the numbers are not of the same operations.
    """
    _, one, other = np.intersect1d(first.number, second.number, assume_unique=True, return_indices=True)
    if len(one) < _TRUST:
        return None
    times = second.time[other]
    middle = float(times.min() + times.max()) / 2
    offset, slope, scale, close = _fitted(times - middle, first.time[one] - times, 0.0)
    count = int(close.sum())
    return ClockLine(offset, slope, middle, scale, count, count / len(one), min(count / _PLENTY, 1.0))


def _worth(line: ClockLine) -> float:
    return line.count * float(np.log(_WIDEST_NS / max(line.scale_ns, _SCALE_FLOOR_NS)))


class Vote(NamedTuple):
    """An offset that ends of a clump of the second rank vote for.

    Attributes:
        offset_ns: The offset.
        worth: What its coincidences are worth.
        begin_ns: First time of the clump; likewise `end_ns` its last.
        differences: The differences around the offset, ascending.
    """

    offset_ns: float
    worth: float
    begin_ns: float
    end_ns: float
    differences: NDArray[np.float64]


def _candidates(first: Ends, second: Ends, window_ns: float | None, place: float) -> list[tuple[float, float, float]]:
    """Offsets that many ends of a clump of the second rank vote for, best first: offset, first and last time of the clump."""
    found = offset_votes(first, second, window_ns, place)
    found.sort(key=lambda f: (-f.worth, abs(f.offset_ns)))
    return [(f.offset_ns, f.begin_ns, f.end_ns) for f in found if f.worth >= 0.6 * found[0].worth]


def offset_votes(first: Ends, second: Ends, window_ns: float | None, place: float, rate: float = 0.0) -> list[Vote]:
    """Offsets that ends of a clump of the second rank vote for.

    Args:
        first: Ends of the first rank.
        second: Ends of the second.
        window_ns: How far the offset can be from 0; None for any.
        place: Where in the second rank's events the clump is, from 0 to 1.
        rate: By how much the clocks' rates may differ; 0 if the clump is too short to show it.
    """
    window = np.inf if window_ns is None else window_ns
    low, high = first.time[0] - window, first.time[-1] + window
    i, j = np.searchsorted(second.time, (low, high))
    if window_ns is not None and i < j:  # rather where the first rank has events even if the offset is 0
        k, m = np.searchsorted(second.time, (first.time[0], first.time[-1]))
        i, j = (k, m) if m - k >= CLUMP else (i, j)
    if i >= j:
        return []
    begin = int(np.clip(i + (j - i) * place - CLUMP / 2, i, max(i, j - CLUMP)))
    rows = np.arange(begin, min(begin + CLUMP, j))
    times = second.time[rows]
    middle = float(times[0] + times[-1]) / 2
    steps = min(int(rate * float(times[-1] - times[0]) / _BIN_NS), _MOST_RATES)
    found: list[Vote] = []
    for slope in (np.arange(-steps, steps + 1) * (rate / max(steps, 1))).tolist():
        found += _votes(first, second.key[rows], times + slope * (times - middle), window)
    return found


def _votes(first: Ends, key: NDArray[np.int64], times: NDArray[np.float64], window: float) -> list[Vote]:
    rows = np.arange(len(times))
    lows, highs = (np.searchsorted(first.packed, _packed(key, times + w)) for w in (-window, window))
    votes = highs - lows
    while votes[rows].sum() > _MOST_VOTES and len(rows) > 8:
        rows = rows[::2]
    times, lows, highs, votes = times[rows], lows[rows], highs[rows], votes[rows]
    if not votes.any():
        return []
    some = votes > 0
    piles = _piles(first.keyed, times[some], lows[some], highs[some])
    votes_of = piles.many + piles.beside
    # where steps are alike to a bin's width, all shifts by whole steps have as many votes: the sharper peak must not be
    # lost among them, and without one, the small shifts must not be lost
    strong = np.flatnonzero(votes_of >= _STRONG * votes_of.max())
    strong = strong[np.argsort(np.abs(piles.lowest[strong]), kind="stable")[:_MOST_STRONG]]
    top = np.unique(np.concatenate((strong, *(_most(v, 2 * _MOST_CANDIDATES) for v in (votes_of, piles.sharp)))))
    differences, heads = piles.of(top)
    gap = max(float(first.time[-1] - first.time[0]) / max(len(first.time), 1), 4.0 * _WIDTHS_NS[-1])
    worth, middle, reach = np.empty(len(top)), np.empty(len(top)), np.empty(len(_WIDTHS_NS), np.int64)
    core.densest_windows(differences, heads, votes_of[top], _WIDTHS_NS, np.log(gap / _WIDTHS_NS), reach, worth, middle)
    places = np.empty(len(top), np.int64)
    places = places[: core.pick_apart(middle, float(_BIN_NS), places)]
    begin, end = float(times[0]), float(times[-1])
    ends = heads + votes_of[top]
    return [Vote(float(middle[p]), float(worth[p]), begin, end, differences[int(heads[p]) : int(ends[p])]) for p in places.tolist()]


def _most(values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The places of the `count` largest values, of equal ones the first."""
    if len(values) <= count:
        return np.arange(len(values))
    limit = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > limit)
    return np.concatenate((above, np.flatnonzero(values == limit)[: count - len(above)]))


@dataclass(frozen=True)
class _Piles:
    """The differences that were voted for, by bins.

    Attributes:
        many: Votes of each bin that has any, ascending; `beside`: those of the next higher bin.
        sharp: The most of each that are within two `_FINE_NS`.
        lowest: No difference in each is smaller.
        of: The differences in some of these bins and the next ones, ascending, and where those of each begin.
    """

    many: NDArray[np.int64]
    beside: NDArray[np.int64]
    sharp: NDArray[np.int64]
    lowest: NDArray[np.float64]
    of: Callable[[NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.int64]]]


def _piles(keyed: NDArray[np.float64], times: NDArray[np.float64], lows: NDArray[np.int64], highs: NDArray[np.int64]) -> _Piles:
    """The differences between the times of the first rank, from low to high, and each of those that vote."""
    # times are in order but for a part of a nanosecond, hence bins to spare
    least, most = float((keyed[lows] - times).min()) - 1.0, float((keyed[highs - 1] - times).max()) + 1.0
    bins = int((most - least) / _BIN_NS) + 2
    count = int((highs - lows).sum())
    if bins > count:
        return _sparse_piles(keyed, times, lows, highs, least, count)
    fine = np.zeros(bins * _FINES, np.int32)
    core.count_differences(keyed, times, lows, highs, least, 1.0 / _FINE_NS, fine)
    votes, sharp = np.empty(bins, np.int64), np.empty(bins, np.int64)
    core.widen_bins(fine, _FINES, votes, sharp)
    numbers = np.flatnonzero(votes)

    def of(chosen: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        top = numbers[chosen]
        wanted = np.zeros(bins, np.bool_)
        wanted[top] = wanted[top + 1] = True
        kept = np.where(wanted, votes, 0)
        differences = np.empty(int(kept.sum()))
        differences = differences[: core.select_differences(keyed, times, lows, highs, least, 1.0 / _BIN_NS, wanted, differences)]
        differences.sort()
        return differences, np.cumsum(kept)[top] - kept[top]

    return _Piles(votes[numbers], votes[numbers + 1], sharp[numbers], (least + numbers * float(_BIN_NS)).astype(np.float64), of)


def _sparse_piles(
    keyed: NDArray[np.float64],
    times: NDArray[np.float64],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    least: float,
    count: int,
) -> _Piles:
    """The same for so few differences, `count` of them, that most bins have none."""
    differences = np.empty(count)
    core.all_differences(keyed, times, lows, highs, differences)
    differences.sort()
    room = np.empty((4, count), np.int64)
    numbers, begin, many, sharp = room[:, : core.pile_up(differences, least, 1.0 / _FINE_NS, _FINES, *room)]
    beside = np.append(np.where(numbers[1:] == numbers[:-1] + 1, many[1:], 0), 0)
    return _Piles(many, beside, sharp, least + numbers * float(_BIN_NS), lambda chosen: (differences, begin[chosen]))


def _extended(first: Ends, second: Ends, offset: float, begin: float, end: float) -> ClockLine | None:
    """The line through a candidate, extended from the cluster over all events that continue to coincide."""
    slope, middle, scale = 0.0, (begin + end) / 2, 20_000.0
    reach = max((end - begin) / 2, 1e6)
    whole = max(second.time[-1] - middle, middle - second.time[0], 1e6)
    first_pass = True
    while True:
        rows = slice(*np.searchsorted(second.time, (middle - reach, middle + reach + 1)).tolist())
        times = second.time[rows]
        predicted = times + offset + slope * (times - middle)
        nearest = nearest_ends(first, second.key[rows], predicted)
        rest = nearest - predicted
        # a rate may be off by some ppm when the range doubles
        near = np.abs(rest) <= (_BIN_NS if first_pass else min(max(8 * scale, 4_000.0) + 1e-5 * reach, _WIDEST_NS))
        if near.sum() < min(_TRUST, len(second.time)):
            return None
        offset, slope, scale, close = _fitted(times[near] - middle, (nearest - times)[near], slope)
        first_pass = False
        if reach >= whole:
            break
        reach = min(reach * 2, whole)
    low, high = first.time[0] - offset, first.time[-1] - offset
    chance = int(((times >= low - 1e6) & (times <= high + 1e6)).sum())
    count = int(close.sum())
    return ClockLine(offset, slope, middle, scale, count, count / max(chance, count, 1), 1.0) if count else None


def nearest_ends(first: Ends, keys: NDArray[np.int64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """The time of the first rank's event of the same key that is nearest to each time; far away if there is none."""
    wanted = _packed(keys, times)
    at = np.searchsorted(first.packed, wanted)
    before, after = first.packed[np.maximum(at - 1, 0)], first.packed[np.minimum(at, len(first.packed) - 1)]
    chosen = np.where(np.abs(wanted - before) <= np.abs(after - wanted), before, after)
    result: NDArray[np.float64] = (chosen - keys * _KEY).astype(np.float64)
    return result


def _packed(key: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.int64]:
    """Key and time in one number that sorts like the pair."""
    packed: NDArray[np.int64] = key * _KEY + np.clip(np.rint(time), 0, _KEY - 1).astype(np.int64)
    return packed


def _fitted(x: NDArray[np.float64], difference: NDArray[np.float64], slope: float) -> tuple[float, float, float, NDArray[np.bool_]]:
    """A robust line through differences: offset at 0, slope, scale, and which are on it."""
    close, line = np.zeros(len(x), np.bool_), np.array([0.0, slope, 0.0])
    core.robust_line(x, difference, _TRUST, close, np.empty(len(x)), line)
    return float(line[0]), float(line[1]), max(float(line[2]), _SCALE_FLOOR_NS), close
