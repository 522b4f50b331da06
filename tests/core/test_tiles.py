"""The sweeps of views against sets of points and against lanes found by trying."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core import tiles

INTERVALS = st.lists(st.tuples(st.integers(-40, 90), st.integers(-5, 40), st.integers(0, 2)), max_size=25)


def exclusive_time(intervals, first, last, level, bins):
    starts, lengths, kinds = (np.array([i[k] for i in intervals], np.int64) for k in range(3))
    out = np.zeros((3, bins), np.int64)
    tiles.add_exclusive_time(
        starts, starts + lengths, kinds.astype(np.int8), first, last, level, np.empty(3, np.int64), out
    )
    return out


@given(INTERVALS.map(sorted), st.integers(-20, 30), st.integers(0, 4), st.integers(1, 12), st.data())
def test_each_point_in_time_counts_for_the_first_kind_that_covers_it(intervals, first, level, bins, data):
    last = first + data.draw(st.integers(0, bins << level))
    covered = [
        {p for s, n, k in intervals if k == kind for p in range(s, s + n) if first <= p < last} for kind in range(3)
    ]
    alone = [covered[0], covered[1] - covered[0], covered[2] - covered[1] - covered[0]]
    expected = [[sum((p - first) >> level == b for p in points) for b in range(bins)] for points in alone]
    assert exclusive_time(intervals, first, last, level, bins).tolist() == expected


def test_bins_may_end_at_the_end_of_time():
    last = (1 << 63) - 1
    first = last - ((1 << 62) - 1)
    found = exclusive_time([(first - 5, 105, 0), (last - 7, 7, 1)], first, last, 62, 1)
    assert found.tolist() == [[100], [7], [0]]


@together(("first", "last", "level"), [(0, 1, -1), (0, 1, 63), (0, 1 << 62, 3), (1, 0, 3), (-(1 << 63), 1 << 62, 62)])
def test_bins_that_there_cannot_be_are_refused(first, last, level):
    with pytest.raises(ValueError, match=r"level|bins"):
        exclusive_time([(0, 1, 0)], first, last, level, 1)


@pytest.mark.parametrize(("kind", "bins"), [(3, 8), (-1, 8), (0, 4)])
def test_kinds_and_bins_that_there_are_not_are_refused(kind, bins):
    with pytest.raises(IndexError):
        exclusive_time([(0, 8, kind)], 0, 8, 0, bins)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=25), st.integers(1, 4))
def test_an_interval_is_on_the_first_lane_without_an_earlier_one_that_has_not_ended(pairs, most):
    spans = sorted((s, s + n) for s, n in pairs)
    found = np.empty(len(spans), np.int8)
    starts, ends = (np.array([s[k] for s in spans], np.int64) for k in (0, 1))
    tiles.assign_lanes(starts, ends, np.full(most, -(1 << 63)), found)
    lanes = []
    for start, _ in spans:
        taken = {lane for (_, end), lane in zip(spans, lanes, strict=False) if end > start}
        lanes.append(next((lane for lane in range(most) if lane not in taken), most - 1))
    assert found.tolist() == lanes
