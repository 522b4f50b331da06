"""Sums over items in ranges, and paths from the outermost range to each; ranges are arrays of thread, start, end."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.nvtx_projection import Line, Spans, calls_within
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, blocks
from alltrace.trace.distinct import distinct
from alltrace.trace.name_stems import stems

# Names of ranges as recipes add them up: without the counters in them (`alltrace.trace.name_stems`).

_FEW_NAMES = 1_000  # the most names of a table that are remembered


def stems_of(rank: Rank, ids: Any) -> tuple[Int64, list[str | None]]:
    """The stems of range names: for each id the row of its stem, and the stems, each once, None for no name."""
    kinds, places = distinct(ids)
    names = rank.texts(pa.array(kinds, pa.int64()))
    codes, words = _known_stems(tuple(names.to_pylist())) if len(names) <= _FEW_NAMES else _stems(names)
    return codes[places], list(words)


@lru_cache(256)
def _known_stems(names: tuple[str | None, ...]) -> tuple[Int64, tuple[str | None, ...]]:
    """`_stems`, remembered: most ranks have the same names."""
    return _stems(pa.array(names, pa.string()))


def _stems(names: Any) -> tuple[Int64, tuple[str | None, ...]]:
    encoded = pc.dictionary_encode(stems(names), null_encoding="encode")
    codes: Int64 = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, tuple(encoded.dictionary.to_pylist())


_DEEPEST = 64


@dataclass(frozen=True)
class Intervals:
    """Intervals on threads: int64 arrays of one length; an end is not before its start."""

    thread: Int64
    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.start)

    def of(self, rows: Any) -> "Intervals":
        return Intervals(self.thread[rows], self.start[rows], self.end[rows])

    def around(self, items: "Intervals") -> Int64:
        """The rows of those that can have some of the items inside, on whichever thread."""
        begin, end = (items.start.min(), items.end.max()) if len(items) else (0, 0)
        return np.flatnonzero((self.end >= begin) & (self.start <= end))


def sums_inside(nodes: Intervals, items: Intervals, *values: NDArray[Any]) -> list[NDArray[Any]]:
    """For each node the sum of each of `values` over the items inside it on its thread, in the values' type."""
    spans, start, end = _on_one_line(nodes, items)
    totals = [np.zeros(len(nodes), v.dtype) for v in values]
    for pieces in calls_within(spans, start, end):
        for total, value in zip(totals, values, strict=True):
            before = np.concatenate((np.zeros(1, value.dtype), np.cumsum(pieces.of(value))))
            total += before[pieces.stop] - before[pieces.first]
    return totals


def innermost_node(nodes: Intervals, items: Intervals) -> Int64:
    """The row of the innermost node around each item, which starts last, of equal ones the inner; -1 for none."""
    inner, order = np.full(len(items), -1, np.int64), np.argsort(items.start, kind="stable")
    for some in blocks(len(items)):
        rows = order[some][items.thread[order[some]] >= 0]  # an item that is not known is on no thread
        own = items.of(rows)
        near = nodes.around(own)
        # of nodes that start together the shortest is the inner one, and of equal ones the later row
        near = near[np.lexsort((-near, nodes.end[near], nodes.start[near]))]
        spans, start, end = _on_one_line(nodes.of(near), own)
        at = spans.innermost(start, end)
        inner[rows[at >= 0]] = near[at[at >= 0]]
    return inner


def outermost(group: Int64, start: Int64, end: Int64) -> Flags:
    """Which intervals are in no other of their group; of equal intervals, only the first row counts as outermost."""
    order = np.lexsort((-end, start, group))
    _, dense = np.unique(group, return_inverse=True)
    line = Line(1 + int(dense.max(initial=0)), start, end)
    place = line.place(dense.astype(np.int64), end)[order]
    covered = np.concatenate((np.zeros(1, np.bool_), np.maximum.accumulate(place)[:-1] >= place[1:]))[: len(order)]
    result = np.empty(len(order), np.bool_)
    result[order] = ~covered
    return result


def paths(depth: Int64, parent: Int64, labels: Int64, texts: Sequence[str], separator: str) -> tuple[Int64, list[str]]:
    """The path of labels to each range, as an index, and the paths; below the 64th level a range has its parent's."""
    path_of = np.full(len(depth), -1, np.int64)
    joined: list[str] = []
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(_DEEPEST + 1))
    for level in range(_DEEPEST):
        rows = order[edges[level] : edges[level + 1]]
        if not len(rows):
            break
        outer = np.where(parent[rows] >= 0, path_of[np.maximum(parent[rows], 0)], -1)
        kinds, place = np.unique(np.stack((outer, labels[rows])), axis=1, return_inverse=True)
        path_of[rows] = len(joined) + place.ravel()
        joined += [
            texts[label] if path < 0 else f"{joined[path]}{separator}{texts[label]}" for path, label in kinds.T.tolist()
        ]
    for row in order[edges[_DEEPEST] :].tolist():
        path_of[row] = path_of[parent[row]]
    return path_of, joined


def _on_one_line(nodes: Intervals, items: Intervals) -> tuple[Spans, Int64, Int64]:
    threads = 1 + max(int(nodes.thread.max(initial=0)), int(items.thread.max(initial=0)))
    line = Line(threads, nodes.start, nodes.end, items.start, items.end)
    spans = Spans(line.place(nodes.thread, nodes.start), line.place(nodes.thread, nodes.end), nodes.end - nodes.start)
    return spans, line.place(items.thread, items.start), line.place(items.thread, items.end)
