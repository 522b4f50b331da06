from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alltrace.recipes.analysis import nvtx_projection
from alltrace.recipes.analysis.nvtx_projection import (
    Line,
    Spans,
    calls_within,
    close_ends,
    prefix_minima,
    reduce_pieces,
)

INTERVAL = st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 12))
INTERVALS = st.lists(INTERVAL, max_size=40)
Rows = list[tuple[int, int, int]]


def columns(rows: Rows) -> list[np.ndarray]:
    """Thread, start and end."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return [table[:, 0], table[:, 1], table[:, 1] + table[:, 2]]


def laid_out(ranges: Rows, calls: Rows, scale: int) -> tuple[Spans, np.ndarray, np.ndarray]:
    """On one line; a large scale makes the line too long for int64, so that times are replaced by their ranks."""
    thread, start, end = columns(ranges)
    owner, begin, close = columns(calls)
    line = Line(3, start * scale, end * scale, begin * scale, close * scale)
    spans = Spans(line.place(thread, start * scale), line.place(thread, end * scale), end - start)
    return spans, line.place(owner, begin * scale), line.place(owner, close * scale)


def holds(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] <= b[1] and a[1] + a[2] >= b[1] + b[2]


@given(INTERVALS, INTERVALS, st.sampled_from([1, 1 << 57]))
def test_innermost_is_the_last_to_start(ranges: Rows, calls: Rows, scale: int) -> None:
    spans, start, end = laid_out(ranges, calls, scale)
    expected = []
    for call in calls:
        around = [i for i, r in enumerate(ranges) if holds(r, call)]
        expected.append(max(around, key=lambda i: (ranges[i][1], -i)) if around else -1)
    assert spans.innermost(start, end).tolist() == expected


@given(INTERVALS, st.sampled_from([1, 1 << 57]))
def test_the_parent_is_the_shortest_around(ranges: Rows, scale: int) -> None:
    spans, _, _ = laid_out(ranges, [], scale)
    expected = []
    for i, child in enumerate(ranges):
        around = [j for j, r in enumerate(ranges) if j != i and holds(r, child) and not (r == child and j > i)]
        best = min((ranges[j][2], ranges[j][1]) for j in around) if around else None
        expected.append(max((j for j in around if (ranges[j][2], ranges[j][1]) == best), default=-1))
    assert spans.parents().tolist() == expected


@given(INTERVALS, INTERVALS, st.sampled_from([0, 1, 50]))
def test_calls_within_are_all_and_only_those(ranges: Rows, calls: Rows, cost: int) -> None:
    spans, start, end = laid_out(ranges, calls, 1)
    before, nvtx_projection._RANGE = nvtx_projection._RANGE, cost  # how much it takes until ranges are looked through
    try:
        check_calls_within(spans, start, end, ranges, calls)
    finally:
        nvtx_projection._RANGE = before


def check_calls_within(spans: Spans, start: np.ndarray, end: np.ndarray, ranges: Rows, calls: Rows) -> None:
    found: list[list[int]] = [[] for _ in ranges]
    values = (start * 7 + end * 3) % 11
    smallest = np.full(len(ranges), 99, np.int64)
    largest = np.full(len(ranges), -1, np.int64)
    around = np.zeros(len(calls), np.int64)
    for pieces in calls_within(spans, start, end):
        for i in range(len(ranges)):
            found[i] += pieces.of(np.arange(len(calls)))[pieces.first[i] : pieces.stop[i]].tolist()
        around[pieces.of(np.arange(len(calls)))] += pieces.within_any(len(calls))
        reduce_pieces(values, pieces, np.minimum, smallest)
        reduce_pieces(values, pieces, np.maximum, largest)
    inside = [[j for j, c in enumerate(calls) if holds(r, c)] for r in ranges]
    assert [sorted(f) for f in found] == inside
    assert around.tolist() == [int(any(holds(r, c) for r in ranges)) for c in calls]
    assert smallest.tolist() == [min((int(values[j]) for j in js), default=99) for js in inside]
    assert largest.tolist() == [max((int(values[j]) for j in js), default=-1) for js in inside]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=40), st.data())
def test_prefix_minima(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.tuples(st.integers(0, len(rows)), st.integers(-1, 10)), max_size=20))
    value, key = np.array(rows, np.int64).reshape(-1, 2).T
    prefix, bound = np.array(asked, np.int64).reshape(-1, 2).T
    found = prefix_minima(value, key, prefix, bound)
    none = np.iinfo(np.int64).max
    assert found.tolist() == [min((k for v, k in rows[:p] if v >= b), default=none) for p, b in asked]


def test_open_ranges_end_with_the_last() -> None:
    table = pa.table({"start": [1, 2, 3], "end": pa.array([None, 9, 5])})
    assert close_ends(table).to_pylist() == [9, 9, 5]
    assert close_ends(table, pa.chunked_array([[20, 4]])).to_pylist() == [20, 9, 5]
    assert close_ends(table.slice(0, 1)).to_pylist() == [1]
    later = pa.table({"start": [1, 20, 30], "end": pa.array([9, None, None], pa.int64())})
    assert close_ends(later).to_pylist() == [9, 30, 30]  # none ends before it starts


def parents(starts, ends):
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    return Spans(start, end, end - start).parents().tolist()


def test_parents_of_ranges_that_nest_and_of_some_that_do_not():
    # two in one, one of them with a twin; then one that begins where the first ends
    assert parents([10, 0, 20, 20, 100], [20, 100, 40, 40, 120]) == [1, -1, 1, 2, -1]
    # the second crosses the first, so the shortest around the third counts
    assert parents([0, 5, 6], [8, 20, 7]) == [-1, -1, 0]
    # a point where one ends and one begins is in both, and the shorter counts
    assert parents([0, 10, 10], [10, 30, 10]) == [-1, -1, 0]
