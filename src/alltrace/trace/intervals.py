"""Interval arithmetic: unions, overlaps, bins, classes of time, gaps, concurrency.

Intervals are half-open `[start, end)` in int64 nanoseconds, given as two arrays of one length; one whose end is not
after its start has no length and covers nothing. `Merged` is a set of intervals in normal form, which the set
operations take and return. All results are exact integers. Tracks are taken apart with `by_track`.

Sweeps over sorted intervals are compiled (`alltrace.core.intervals`); what NumPy does in a few passes is left to it.
Nesting and look-ups in named ranges are in `alltrace.trace.nesting`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.core import intervals as core
from alltrace.trace.arrays import Int64

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


class Merged(NamedTuple):
    """A set of points in time as disjoint intervals: ascending, none touching the next, none without length."""

    starts: Int64  # int64 array of m starts, ns
    ends: Int64  # int64 array of m ends, ns

    @property
    def total_ns(self) -> int:
        """The time covered, exact even where it is more than an int64 holds."""
        return int((self.ends.view(np.uint64) - self.starts.view(np.uint64)).sum())

    @property
    def durations_ns(self) -> Int64:
        """The length of each interval, int64 array of m."""
        return _as_int64(self.ends.view(np.uint64) - self.starts.view(np.uint64))


NOTHING = Merged(np.empty(0, np.int64), np.empty(0, np.int64))


def merge(starts: Int64, ends: Int64) -> Merged:
    """The union of intervals; touching ones become one."""
    # `starts`: int64 array of n starts, ns; in any order, fastest when ascending.
    starts, ends = _int64(starts), _int64(ends)
    out_starts, out_ends = np.empty_like(starts), np.empty_like(ends)
    count = core.merge_sorted(starts, ends, out_starts, out_ends)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        count = core.merge_sorted(starts[order], ends[order], out_starts, out_ends)
    if 2 * count >= len(starts):
        # what is behind them was never written, and takes no memory
        return Merged(out_starts[:count], out_ends[:count])
    return Merged(out_starts[:count].copy(), out_ends[:count].copy())


def union(sets: Iterable[Merged]) -> Merged:
    filled = [s for s in sets if len(s.starts)]
    if not filled:
        return NOTHING
    if len(filled) == 1:
        return filled[0]
    return merge(np.concatenate([s.starts for s in filled]), np.concatenate([s.ends for s in filled]))


def closed(merged: Merged, pause_ns: int) -> Merged:
    """A set with its pauses below `pause_ns` closed."""
    if not len(merged.starts):
        return merged
    apart = np.append(merged.starts[1:] - merged.ends[:-1] >= pause_ns, True)
    return Merged(merged.starts[np.roll(apart, 1)], merged.ends[apart])


def intersection(a: Merged, b: Merged) -> Merged:
    if not len(a.starts) or not len(b.starts):
        return NOTHING
    total = len(a.starts) + len(b.starts)
    out_starts, out_ends = np.empty(total, np.int64), np.empty(total, np.int64)
    count = core.intersect(*a, *b, out_starts, out_ends)
    return Merged(out_starts[:count].copy(), out_ends[:count].copy())


def difference(a: Merged, b: Merged) -> Merged:
    return intersection(a, _complement(b, INT64_MIN, INT64_MAX)) if len(a.starts) and len(b.starts) else a


def clip(merged: Merged, start: int, end: int) -> Merged:
    if end <= start:
        return NOTHING
    first = int(np.searchsorted(merged.ends, start, "right"))
    last = int(np.searchsorted(merged.starts, end, "left"))
    if first >= last:
        return NOTHING
    return Merged(np.maximum(merged.starts[first:last], start), np.minimum(merged.ends[first:last], end))


def gaps(merged: Merged, start: int | None = None, end: int | None = None) -> Merged:
    """What a set leaves open between its intervals."""
    # `start`: also count the time from here to the first interval; None for the first interval's start. `end`: also
    # count the time from the last interval to here; None for the last interval's end.
    if (start is None and end is None) or (not len(merged.starts) and (start is None or end is None)):
        return Merged(merged.ends[:-1].copy(), merged.starts[1:].copy())
    low = int(merged.starts[0]) if start is None else start
    high = int(merged.ends[-1]) if end is None else end
    return _complement(merged, low, high)


def overlap_ns(starts: Int64, ends: Int64, merged: Merged) -> Int64:
    """How much of each interval a set covers."""
    # `starts`: int64 array of n starts, ns; in any order, fastest when ascending. Returns int64 array of n, ns.
    starts, ends = _int64(starts), _int64(ends)
    out = np.empty(len(starts), np.int64)
    before = np.empty(len(merged.starts) + 1, np.uint64)
    if not core.overlap(starts, ends, *merged, before, out):
        order = np.argsort(starts, kind="stable")
        ascending = np.empty_like(out)
        core.overlap(starts[order], ends[order], *merged, before, ascending)
        out[order] = ascending
    return out


def bin_edges(start: int, end: int, bins: int) -> Int64:
    """The edges of `bins` equal parts of `[start, end)`: int64 array of bins + 1, ns; parts differ by 1 ns at most."""
    # Raises `ValueError`: there is no bin, or the span has no length or does not fit into int64.
    if bins < 1 or not 0 < end - start <= INT64_MAX:
        raise ValueError(f"cannot part [{start}, {end}) into {bins} bins")
    whole, rest = divmod(end - start, bins)
    steps = np.arange(bins + 1, dtype=np.int64)
    return start + (steps * whole + steps * rest // bins)


def bin_coverage_ns(merged: Merged, edges: Int64) -> Int64:
    """How much of each bin a set covers."""
    # `edges`: int64 array of b + 1 ascending edges, ns, such as from `bin_edges`. Returns int64 array of b, ns; at most
    # the bins' lengths.
    return _as_int64(np.diff(_covered_before(merged, _int64(edges))))


def bin_load_ns(starts: Int64, ends: Int64, edges: Int64) -> Int64:
    """The summed time that intervals spend in each bin; two that overlap count twice."""
    # `starts`: int64 array of n starts, ns, in any order. `edges`: int64 array of b + 1 ascending edges, ns. Returns
    # int64 array of b, ns. A sum that does not fit into int64 is cut to its largest value.
    starts, ends = _int64(starts), _int64(ends)
    long = ends > starts
    points = _int64(edges)
    # The part before x is the sum of (x - start) over starts before x less that of (x - end) over ends before x. The
    # sums may pass 64 bits; modulo 2**64 their difference is still right, as long as the result fits.
    before = _sum_before(np.sort(starts[long]), points) - _sum_before(np.sort(ends[long]), points)
    return _as_int64(np.diff(before))


def classify_ns(classes: Sequence[Merged], start: int, end: int) -> list[int]:
    """How the time of `[start, end)` divides into classes, the earlier class first where they overlap."""
    # `classes`: n sets, by priority. `start`: start of the span, ns. `end`: end of the span, ns. Returns n + 1 exact
    # times in ns: of each class what no earlier one covers, and what none covers. They sum to the span.
    times: list[int] = []
    covered = NOTHING
    before = 0
    for merged in classes:
        covered = union((covered, clip(merged, start, end)))
        total = covered.total_ns
        times.append(total - before)
        before = total
    times.append(max(end - start, 0) - before)
    return times


def exclusive(classes: Sequence[Merged]) -> list[Merged]:
    """The intervals of each class that no earlier class covers; n sets, disjoint, with the union of the given ones."""
    result: list[Merged] = []
    covered = NOTHING
    for merged in classes:
        result.append(difference(merged, covered))
        covered = union((covered, merged))
    return result


class Concurrency(NamedTuple):
    times: Int64  # int64 array of m ascending distinct times, ns, at which the number changes
    counts: Int64  # int64 array of m: open from `times[i]` to `times[i + 1]`; the last is 0


def concurrency(starts: Int64, ends: Int64) -> Concurrency:
    """How many of the intervals are open at each time. `starts`: int64 array of n starts, ns, in any order."""
    starts, ends = _int64(starts), _int64(ends)
    long = ends > starts
    starts, ends = np.sort(starts[long]), np.sort(ends[long])
    points = np.concatenate((starts, ends))
    order = np.argsort(points, kind="stable")  # of two sorted halves: they are merged
    points = points[order]
    last = np.append(points[1:] != points[:-1], [True]) if len(points) else np.zeros(0, np.bool_)
    times = points[last]
    open_now = np.cumsum(np.where(order < len(starts), 1, -1))[last]
    changes = np.concatenate(([True], open_now[1:] != open_now[:-1])) if len(times) else np.zeros(0, np.bool_)
    return Concurrency(times[changes], open_now[changes].astype(np.int64, copy=False))


def containing(merged: Merged, points: Int64) -> Int64:
    """Which interval of a set holds each point: int64 array of p indices, -1 for none."""
    # `points`: int64 array of p times, ns.
    points = _int64(points)
    index = np.searchsorted(merged.starts, points, "right").astype(np.int64) - 1
    if len(merged.starts):
        index[points >= merged.ends[index]] = -1  # an index of -1 looks at the last end, and stays -1 either way
    return index


def nearest(merged: Merged, points: Int64) -> Int64:
    """Which interval of a set is nearest to each point: int64 array of p indices, -1 when the set is empty."""
    # The distance to an interval is 0 inside it; of equally near ones the earlier is taken. `points`: int64 array of p
    # times, ns.
    points = _int64(points)
    count = len(merged.starts)
    if not count:
        return np.full(len(points), -1, np.int64)
    after = np.searchsorted(merged.starts, points, "right").astype(np.int64)
    left = np.maximum(after - 1, 0)
    right = np.minimum(after, count - 1)
    ends = merged.ends[left]
    unsigned = points.view(np.uint64)
    # The last point of an interval is end - 1: at the end itself the distance is 1.
    to_left = np.where(points < ends, np.uint64(0), unsigned - ends.view(np.uint64) + np.uint64(1))
    to_left[after == 0] = np.iinfo(np.uint64).max
    to_right = merged.starts[right].view(np.uint64) - unsigned
    to_right[after == count] = np.iinfo(np.uint64).max
    return np.where(to_right < to_left, right, left)


def by_track(*tracks: NDArray[Any]) -> Iterator[tuple[tuple[int, ...], NDArray[np.intp] | slice]]:
    """The rows of each track, in ascending order of the tracks."""
    # `tracks`: one or more integer arrays of n that together identify the track of a row. Yields the track's values and
    # its rows: a slice if every track's rows are adjacent, as in a run's files, otherwise the ascending row numbers.
    if not tracks or not len(tracks[0]):
        return
    order: NDArray[np.intp] | None = None
    if _descends(tracks):
        order = np.lexsort(tracks[::-1])
        tracks = tuple(t[order] for t in tracks)
    change = np.zeros(len(tracks[0]) - 1, np.bool_)
    for track in tracks:
        change |= track[1:] != track[:-1]
    bounds = [0, *(np.flatnonzero(change) + 1).tolist(), len(tracks[0])]
    for first, last in pairwise(bounds):
        rows = slice(first, last) if order is None else order[first:last]
        yield tuple(int(t[first]) for t in tracks), rows


def merge_by_track(tracks: NDArray[Any], starts: Int64, ends: Int64) -> dict[int, Merged]:
    """The union of the intervals of each track, by the track's code. `tracks`: integer array of n codes."""
    return {track[0]: merge(starts[rows], ends[rows]) for track, rows in by_track(tracks)}


def _descends(tracks: tuple[NDArray[Any], ...]) -> bool:
    """Whether any row sorts before the one above it."""
    equal = np.ones(len(tracks[0]) - 1, np.bool_)
    for track in tracks:
        if (equal & (track[1:] < track[:-1])).any():
            return True
        equal &= track[1:] == track[:-1]
    return False


def _int64(values: NDArray[Any]) -> Int64:
    return np.ascontiguousarray(values, np.int64)


def _as_int64(values: NDArray[np.uint64]) -> Int64:
    signed: Int64 = np.minimum(values, np.uint64(INT64_MAX)).astype(np.int64)
    return signed


def _complement(merged: Merged, start: int, end: int) -> Merged:
    inside = clip(merged, start, end)
    starts = np.concatenate((np.array([start], np.int64), inside.ends))
    ends = np.concatenate((inside.starts, np.array([end], np.int64)))
    long = starts < ends
    return Merged(starts[long], ends[long])


def _covered_before(merged: Merged, points: Int64) -> NDArray[np.uint64]:
    """The length of a set before each point."""
    starts, ends = merged.starts.view(np.uint64), merged.ends.view(np.uint64)
    whole = np.concatenate((np.zeros(1, np.uint64), np.cumsum(ends - starts)))
    index = np.searchsorted(merged.starts, points, "left")
    before = whole[index]
    inside = np.flatnonzero(index > 0)
    at = index[inside] - 1
    beyond = np.where(merged.ends[at] > points[inside], ends[at] - points[inside].view(np.uint64), np.uint64(0))
    before[inside] -= beyond
    return before


def _sum_before(times: Int64, points: Int64) -> NDArray[np.uint64]:
    """The sum of (point - time) over the ascending times before each point, modulo 2**64."""
    summed = np.concatenate((np.zeros(1, np.uint64), np.cumsum(times.view(np.uint64), dtype=np.uint64)))
    index = np.searchsorted(times, points, "left")
    return index.astype(np.uint64) * points.view(np.uint64) - summed[index]
