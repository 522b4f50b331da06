"""Which NVTX ranges contain which calls, and which GPU work follows from that: exact, on data that need not be nested.

A range contains a call when both are of one thread and range.start <= call.start and call.end <= range.end. GPU work
belongs to the ranges that contain the API call which launched it. Ranges of different domains and start/end ranges
overlap freely, so no stack is assumed anywhere:

* `Spans.innermost` returns, for each call, the containing range that starts last (of several that start together, the
  one that comes first in the input). It finds the last range at or before the call that ends late enough, in a tree of
  maxima over the sorted ranges. The option `nvtx-name` of the kernel reports needs this; `launch_spans` returns its
  ranges.
* `Spans.parents` returns, for each range, the shortest of the ranges that contain it. Where ranges nest that is the one
  that starts last; if some cross, all are searched.
* `calls_within` lists, for each range, the calls inside as pieces of sorted lists: the calls of a thread hardly ever
  nest, so those inside a range are neighbours. Nested calls are spread over several lists. From these pieces counts
  follow by subtraction, and minima and maxima by doubling (`reduce_pieces`).

All times are int64 and every comparison is of whole ns. Work is O(n log n) in array operations; nothing is compiled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.launched_work import launches_of
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.collecting import whole_columns
from alltrace.run.launch_matching import CALLS, Launches
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, integers

_INT64_MAX = np.iinfo(np.int64).max
_RANGE = 50  # searching the calls of one further range costs as much as reading this many calls

_WORK = {"start": 0, "end": 0, "process": -1, "correlation": -1}
SPAN_COLUMNS = ("start", "end", "thread", "end_thread", "name", "domain", "kind", "source_row")
"""The columns of `ranges` that `launch_spans` reads."""

PROJECTION_READS: dict[str, tuple[str, ...]] = {
    "ranges": SPAN_COLUMNS,
    "kernels": ("start", "end", "process", "correlation"),
    "copies": ("start", "end", "process", "correlation"),
    "api": CALLS,
}
"""What `projection` reads."""


class Line:
    """One number line with the times of all threads, one thread after the other, so that intervals never touch."""

    def __init__(self, threads: int, *times: Int64) -> None:
        filled = [t for t in times if len(t)]
        self._low = min((int(t.min()) for t in filled), default=0)
        self._width = max((int(t.max()) for t in filled), default=0) - self._low + 1
        self._ranked: Int64 | None = None
        if self._width * max(threads, 1) >= _INT64_MAX:
            self._ranked = np.unique(np.concatenate(filled))
            self._low, self._width = 0, len(self._ranked)

    def place(self, thread: Int64, time: Int64) -> Int64:
        """The places of times of threads; the order of the times of one thread is kept."""
        at = time if self._ranked is None else np.searchsorted(self._ranked, time).astype(np.int64)
        return thread * self._width + (at - self._low)


class Spans:
    """Ranges on a `Line`; `length` is the duration, as places have no distances, for `parents` alone."""

    def __init__(self, start: Int64, end: Int64, length: Int64) -> None:
        self.start = start
        self.end = end
        self.length = length

    def innermost(self, start: Int64, end: Int64) -> Int64:
        """The row of the containing range that starts last for each call; -1 if no range contains it."""
        order = np.lexsort((-np.arange(len(self.start)), self.start))
        tree = _MaxTree(self.end[order])
        at = tree.last_at_least(np.searchsorted(self.start[order], start, side="right") - 1, end)
        result = np.full(len(start), -1, np.int64)
        result[at >= 0] = order[at[at >= 0]]
        return result

    def contain(self, start: Int64, end: Int64) -> Flags:
        """Whether any range contains each call: determined by the latest end of the ranges that start no later."""
        order = np.argsort(self.start, kind="stable")
        reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(self.end[order])))
        result: Flags = reach[np.searchsorted(self.start[order], start, side="right")] >= end
        return result

    def parents(self) -> Int64:
        """The row of the shortest other range that contains each range, or -1.

        Of equally short ones it is the one that starts first, then the one that comes first; of ranges with the same
        start and end, an earlier row is outside a later one.
        """
        count = len(self.start)
        order = np.argsort(self.start)
        start = self.start[order]
        if (start[1:] == start[:-1]).any():  # of two that start together the longer is outside
            order = np.lexsort((-self.end, self.start))
            start = self.start[order]
        end = self.end[order]
        result = np.full(count, -1, np.int64)
        nested = _nested(start, end)
        if nested is not None:
            result[order] = np.where(nested >= 0, order[nested], -1)
            return result
        tree = _MaxTree(end)
        before = np.arange(-1, count - 1, dtype=np.int64)
        at = tree.last_at_least(before, end)
        extended = start < end
        points = start[~extended]  # a point where one range ends and another starts is in both
        meeting = np.isin(points, end[extended]) & np.isin(points, start[extended]) if len(points) else points
        if meeting.any() or (tree.last_at_least(before, start + 1) > at).any():
            at = self._shortest(order, start, end, at)
        result[order] = np.where(at >= 0, order[at], -1)
        return result

    def _shortest(self, order: Int64, start: Int64, end: Int64, last: Int64) -> Int64:
        """The parents if ranges cross: the shortest of the earlier ranges that end no earlier."""
        length = self.length[order]
        # among containing ranges of one length, those at the same place are nested: the last of them is the inner one
        same = np.concatenate(([False], (start[1:] == start[:-1]) & (end[1:] == end[:-1])))
        rank = np.empty(len(order), np.int64)
        group_first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        rank[np.lexsort((-np.arange(len(order)), group_first, length))] = np.arange(len(order))
        rows = np.arange(len(order), dtype=np.int64)
        best = prefix_minima(end, rank, rows, end)
        by_rank = np.empty(len(order), np.int64)
        by_rank[rank] = rows
        return np.where(last >= 0, by_rank[np.minimum(best, len(order) - 1)], -1)


def _nested(start: Int64, end: Int64) -> Int64 | None:
    """For each range (ascending starts) the last open one before, or -1; None if some cross, or one has no length."""
    if not (start < end).all():
        return None
    count = len(start)
    rows = np.arange(count, dtype=np.int64)
    # as many are open as started before and have not ended; while ranges nest, the innermost is the last with one less
    depth = rows - np.searchsorted(np.sort(end), start, side="right")
    keys = np.sort(depth * count + rows)
    inner = depth > 0
    place = np.searchsorted(keys, (depth[inner] - 1) * count + rows[inner]) - 1
    parent = np.full(count, -1, np.int64)
    parent[inner] = keys[place] % count
    return parent if (end[parent[inner]] >= end[inner]).all() else None


class _MaxTree:
    """Maxima over the aligned blocks of 1, 2, 4, ... values."""

    def __init__(self, values: Int64) -> None:
        levels = [values]
        while len(levels[-1]) > 1:
            last = levels[-1]
            pairs = np.maximum(last[0 : len(last) // 2 * 2 : 2], last[1::2])
            levels.append(np.concatenate((pairs, last[-1:])) if len(last) % 2 else pairs)
        self._values = np.concatenate(levels)
        self._first = np.concatenate(([0], np.cumsum([len(level) for level in levels]))).astype(np.int64)

    def last_at_least(self, position: Int64, bound: Int64) -> Int64:
        """The largest index up to `position` with a value of at least `bound`, or -1."""
        result = np.full(len(position), -1, np.int64)
        open_rows = np.flatnonzero(position >= 0)
        block, wanted = position[open_rows].astype(np.int64), bound[open_rows]
        level = np.zeros(len(open_rows), np.int64)
        hits: list[tuple[Int64, Int64, Int64]] = []
        while len(open_rows):  # go left and up until a block holds a value that is large enough
            holds = self._values[self._first[level] + block] >= wanted
            if holds.any():
                hits.append((open_rows[holds], block[holds], level[holds]))
                on = ~holds
                open_rows, block, wanted, level = open_rows[on], block[on], wanted[on], level[on]
            climbs = block & 1 == 0  # the first of two: the part left of it is the left neighbor of the block above
            level = level + climbs
            block = np.where(climbs, (block >> 1) - 1, block - 1)
            on = block >= 0
            open_rows, block, wanted, level = open_rows[on], block[on], wanted[on], level[on]
        if hits:
            rows, blocks, levels = (np.concatenate(part) for part in zip(*hits, strict=True))
            least = bound[rows]
            while len(rows):  # and down again, to the right half if that holds one
                done = levels == 0
                result[rows[done]] = blocks[done]
                rows, blocks, levels, least = rows[~done], blocks[~done] * 2 + 1, levels[~done] - 1, least[~done]
                inside = blocks < self._first[levels + 1] - self._first[levels]
                at = self._first[levels] + np.where(inside, blocks, 0)
                right = inside & (self._values[at] >= least)
                blocks = np.where(right, blocks, blocks - 1)
        return result


def prefix_minima(value: Int64, key: Int64, prefix: Int64, bound: Int64) -> Int64:
    """The smallest key over the first `prefix` rows with a value of at least `bound`; int64's largest if there is none.

    Works on rows in any order, in O((n + q) log^2 n): a merge-sort tree, one level at a time.
    """
    count = len(value)
    best = np.full(len(prefix), _INT64_MAX, np.int64)
    distinct, rank = np.unique(-value, return_inverse=True)
    allowed = np.searchsorted(distinct, -bound, side="right")  # ranks below this are values of at least the bound
    for level in range(max(count, 1).bit_length()):
        size = 1 << level
        whole = count // size * size
        if not whole:
            break
        ranks = rank[:whole].reshape(-1, size)
        by_value = np.argsort(ranks, axis=1, kind="stable")
        blocks = np.arange(whole // size, dtype=np.int64)
        flat = (np.take_along_axis(ranks, by_value, axis=1) + blocks[:, None] * (len(distinct) + 1)).ravel()
        asks = np.flatnonzero((prefix >> level) & 1)
        block = (prefix[asks] >> (level + 1)) << 1
        last = np.searchsorted(flat, block * (len(distinct) + 1) + allowed[asks], side="left") - 1
        some = last >= block * size
        minima = np.minimum.accumulate(
            np.take_along_axis(key[:whole].reshape(-1, size), by_value, axis=1), axis=1
        ).ravel()
        best[asks[some]] = np.minimum(best[asks[some]], minima[last[some]])
    return best


@dataclass(frozen=True)
class Pieces:
    """Some calls, sorted, and for each range which of them it contains."""

    # rows of the calls, in the order of their start and of their end; None if that is all of them in their order
    calls: Int64 | None
    first: Int64  # for each range, the first of `calls` inside
    stop: Int64  # one past the last; not below `first`

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of `calls` among the values of all calls; not a copy if these are all."""
        return values if self.calls is None else values[self.calls]

    def within_any(self, calls: int) -> Flags:
        """Whether each of `calls` is in any range."""
        count = calls if self.calls is None else len(self.calls)
        ranges_around = np.cumsum(
            np.bincount(self.first, minlength=count + 1) - np.bincount(self.stop, minlength=count + 1)
        )
        result: Flags = ranges_around[:count] > 0
        return result

    @cached_property
    def levels(self) -> list[Int64]:
        """The ranges with calls inside, by the logarithm of how many: number k has those with 2^k to 2^(k+1) - 1."""
        length = self.stop - self.first
        rows = np.flatnonzero(length)
        level = np.frexp(length[rows].astype(np.float64))[1] - 1  # lengths are far below 2^53
        return [rows[level == k] for k in range(int(level.max(initial=-1)) + 1)]

    @cached_property
    def doubled(self) -> int:
        """The number of first `levels` for which to read all calls; for the others, only the ranges' calls.

        For each call a look costs about as much as looking through does, and each range as much as `_RANGE` calls.
        """
        length, calls = self.stop - self.first, int(self.stop.max(initial=0))
        through = np.array([_RANGE * len(rows) + int(length[rows].sum()) for rows in self.levels])
        left = np.arange(len(through), 0, -1)
        cheaper = np.flatnonzero(np.cumsum(through[::-1])[::-1] < left * calls)
        return int(cheaper[0]) if len(cheaper) else len(through)


def calls_within(spans: Spans, start: Int64, end: Int64) -> Iterator[Pieces]:
    """The calls inside each range; every contained call is in the piece of exactly one of the results."""
    rest: Int64 | None = None if (start[1:] > start[:-1]).all() else np.lexsort((end, start))
    while rest is None or len(rest):
        starts, ends = (start, end) if rest is None else (start[rest], end[rest])
        calls, rows, rest = rest, rest, np.zeros(0, np.int64)
        if (ends[1:] < ends[:-1]).any():  # some are nested in earlier calls
            within = ends < np.maximum.accumulate(ends)
            rows = np.arange(len(start), dtype=np.int64) if rows is None else rows
            calls, rest, starts, ends = rows[~within], rows[within], starts[~within], ends[~within]
        first = np.searchsorted(starts, spans.start, side="left")
        stop = np.maximum(np.searchsorted(ends, spans.end, side="right"), first)
        yield Pieces(calls, first, stop)


def reduce_pieces(values: Int64, pieces: Pieces, ufunc: np.ufunc, into: Int64) -> None:
    """Combine `into`, a number per range, with the values of its piece of calls, by `np.minimum` or `np.maximum`."""
    block = pieces.of(values)
    wide = pieces.levels[pieces.doubled :]
    if wide:
        rows = np.concatenate(wide)
        rows = rows[np.argsort(pieces.first[rows])]  # so that the part between two of them is searched at most once
        first, stop = pieces.first[rows], pieces.stop[rows]
        last = len(block) - 1  # no place may come after it
        combined = ufunc.reduceat(block, np.stack((first, np.minimum(stop, last)), axis=1).ravel())[::2]
        into[rows] = ufunc(into[rows], np.where(stop > last, ufunc(combined, block[last]), combined))
    for k, now in enumerate(pieces.levels[: pieces.doubled]):
        if len(now):
            combined = ufunc(block[pieces.first[now]], block[pieces.stop[now] - (1 << k)])
            into[now] = ufunc(into[now], combined)
        if len(block) > 1 << k:
            block = ufunc(block[: -(1 << k)], block[1 << k :])


def launch_spans(rank: Rank) -> Any:
    """The rank's ranges that GPU work can belong to, with all ends known, in the order of their report.

    These are push/pop ranges and the start/end ranges that ended on the thread they started on. A range that was still
    open ends at the latest start or end of any range of the rank.

    Returns a `pyarrow.Table` with `start`, `end`, `thread`, `name`, `domain`, `kind`, `source_row` and `open` (whether
    it was).
    """
    table = _spans_of(rank)
    rows = integers(table.column("source_row"), -1)
    if (rows[1:] < rows[:-1]).any():
        table = pc.take(table, pa.array(np.argsort(rows, kind="stable")))
    return table


def _spans_of(rank: Rank) -> Any:
    """`launch_spans`, in the order of the table."""
    table = rank.table("ranges", SPAN_COLUMNS)
    table = table.append_column("open", pc.is_null(table.column("end")))
    table = table.set_column(1, "end", close_ends(table))
    keep = pc.and_(
        pc.and_(pc.is_null(table.column("end_thread")), pc.is_valid(table.column("thread"))),
        pc.is_valid(table.column("start")),
    )
    table = table if pc.all(keep, min_count=0).as_py() else pc.filter(table, keep)
    return table.drop_columns(["end_thread"])


@dataclass(frozen=True)
class Projection:
    """The ranges of a rank that GPU work belongs to, and where that work ran."""

    ranges: Any  # the ranges, as `launch_spans` returns them, only those with work
    first: Int64  # first start of the work of each, ns
    last: Int64  # last end
    operations: Int64  # distinct correlation ids of the work
    parent: Int64  # row of the shortest other of these ranges that contains each, -1 for none
    # the work with a call in no range: a table with `start`, `end`, `correlation` and `thread` of the call
    outside: Any


def project(rank: Rank) -> Projection:
    """Project the rank's ranges on the GPU work (kernels, copies and fills) launched inside them."""
    ranges = _spans_of(rank)
    work = _work_of(rank, ranges)
    rows = np.flatnonzero(work.last > -_INT64_MAX)
    rows = rows[np.argsort(integers(ranges.column("source_row"), -1)[rows], kind="stable")]
    worked = Spans(work.spans.start[rows], work.spans.end[rows], work.spans.length[rows])
    first, last, operations = work.first[rows], work.last[rows], work.operations[rows]
    return Projection(pc.take(ranges, pa.array(rows)), first, last, operations, worked.parents(), work.outside)


class _Work(NamedTuple):
    """A rank's ranges as `Spans`, each with the attributes of `Projection`; `last` is the least number without any."""

    spans: Spans
    first: Int64
    last: Int64
    operations: Int64
    outside: Any


def _work_of(rank: Rank, ranges: Any) -> _Work:
    """The work launched inside each of `ranges`; the temporary arrays of a million launches are released here."""
    start, end, process, correlation = whole_columns(rank, ("kernels", "copies"), _WORK)
    calls = launches_of(rank, process, correlation)
    spans, call_start, call_end = on_one_line(ranges, calls.thread, calls.start, calls.end)
    count = len(spans.start)
    first, last = np.full(count, _INT64_MAX, np.int64), np.full(count, -_INT64_MAX, np.int64)
    earliest, latest = start[calls.op], end[calls.op]
    if calls.many is not None:
        at = calls.first_op()
        earliest, latest = np.minimum.reduceat(earliest, at), np.maximum.reduceat(latest, at)
    number = np.zeros(count, np.int64)
    lost = np.ones(len(call_start), np.bool_)
    for pieces in calls_within(spans, call_start, call_end):
        reduce_pieces(earliest, pieces, np.minimum, first)
        reduce_pieces(latest, pieces, np.maximum, last)
        number += pieces.stop - pieces.first
        lost[slice(None) if pieces.calls is None else pieces.calls] = ~pieces.within_any(len(lost))
    number -= _repeated(spans, calls, call_start, call_end)
    call = calls.call_of_pair()
    pairs = np.flatnonzero(lost[call])
    at = calls.op[pairs]
    outside = {"start": start[at], "end": end[at], "correlation": correlation[at], "thread": calls.thread[call[pairs]]}
    return _Work(spans, first, last, number, pa.table(outside))


def projection(rank: Rank) -> Projection:
    """`project`, made once for all recipes that share the rank's tables."""
    return once(rank, "projection", lambda: project(rank))


def _repeated(spans: Spans, calls: Launches, start: Int64, end: Int64) -> Int64:
    """For each range, the calls inside that have the correlation id of an earlier call inside.

    A driver call within its runtime call may have. Both are inside if the interval from the first start to the last end
    is.
    """
    result = np.zeros(len(spans.start), np.int64)
    if calls.one_call_each():
        return result
    order = np.lexsort((end, start, calls.correlation, calls.thread))
    thread, ids = calls.thread[order], calls.correlation[order]
    again = (thread[1:] == thread[:-1]) & (ids[1:] == ids[:-1])
    if again.any():
        one, other = order[:-1][again], order[1:][again]
        for pieces in calls_within(spans, np.minimum(start[one], start[other]), np.maximum(end[one], end[other])):
            result += pieces.stop - pieces.first
    return result


def on_one_line(ranges: Any, thread: Int64, start: Int64, end: Int64) -> tuple[Spans, Int64, Int64]:
    """The ranges of a table with `start`, `end` and `thread`, and the places of some calls, on one line."""
    owner, begin, close = (integers(ranges.column(c)) for c in ("thread", "start", "end"))
    line = Line(1 + max(int(owner.max(initial=0)), int(thread.max(initial=0))), begin, close, start, end)
    return (
        Spans(line.place(owner, begin), line.place(owner, close), close - begin),
        line.place(thread, start),
        line.place(thread, end),
    )


def close_ends(table: Any, *others: Any) -> Any:
    """The ends of the ranges; open ones end at the latest start or end of any, or the latest of `others`."""
    ends = table.column("end")
    if not ends.null_count:
        return ends
    latest = [pc.max(column).as_py() for column in (ends, table.column("start"), *others)]
    return pc.fill_null(ends, max((t for t in latest if t is not None), default=0))


def innermost_ranges(rank: Rank, thread: Int64, start: Int64, end: Int64) -> Any:
    """The name id of the range around each call that starts last; null if there is none or it has no name."""
    table = launch_spans(rank)
    spans, call_start, call_end = on_one_line(table, thread, start, end)
    rows = spans.innermost(call_start, call_end)
    names = table.column("name")
    return (
        pc.take(names.combine_chunks(), pa.array(rows, mask=rows < 0))
        if len(names)
        else pa.nulls(len(rows), pa.int64())
    )
