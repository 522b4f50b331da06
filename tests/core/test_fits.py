"""The loops of the fit of clocks against short computations in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median as median_of

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core import fits

LENGTHS = [1, 2, 3, 12, 13, 14, 101, 1_000, 4_097]
TIMES = st.lists(st.integers(0, 3_000).map(float), min_size=1, max_size=40)


@together("count", LENGTHS)
@together("kinds", [2, 50, 10**9])
def test_medians_of_some_of_the_values(count, kinds):
    generator = np.random.default_rng(count)
    for values in (generator.integers(0, kinds, count).astype(float), np.arange(count, 0, -1.0), np.arange(count) * 1.0):
        assert fits.median(values.copy(), count) == np.median(values)
        assert fits.median(values.copy(), (count + 1) // 2) == np.median(values[: (count + 1) // 2])


@given(st.lists(st.floats(-1e18, 1e18) | st.integers(-3, 3).map(float), min_size=1, max_size=80))
def test_the_median_reorders_the_values_and_loses_none(values):
    given_values = np.array(values)
    assert fits.median(given_values, len(values)) == median_of(values)
    assert sorted(given_values.tolist()) == sorted(values)


@pytest.mark.parametrize("count", [-1, 0, 4])
def test_there_is_no_median_of_no_values_or_of_more_than_there_are(count):
    with pytest.raises(IndexError):
        fits.median(np.zeros(3), count)


@given(st.lists(st.lists(st.integers(-9, 9).map(float), max_size=20), max_size=9))
def test_medians_of_runs_and_0_for_an_empty_one(runs):
    values = np.array([v for run in runs for v in run], np.float64)
    first, found = np.cumsum([0, *map(len, runs)]), np.full(len(runs), np.nan)
    fits.medians(values, first, np.empty(max(map(len, runs), default=0)), found)
    assert found.tolist() == [median_of(run) if run else 0.0 for run in runs]


def test_a_line_leaves_out_what_is_off_it():
    generator = np.random.default_rng(4)
    x = np.sort(generator.uniform(-1e9, 1e9, 500))
    difference = 7e6 + 3e-6 * x + generator.normal(0, 100, 500)
    difference[::20] += 50_000
    close, line = np.empty(500, np.bool_), np.array([0.0, 0.0, 0.0])
    assert fits.robust_line(x, difference, 3, close, np.empty(500), line)
    slope, centre = np.polyfit(x[close], difference[close], 1)
    assert line[:2] == pytest.approx([centre, slope], rel=1e-9)
    assert 100 < line[2] < 200
    assert not close[::20].any()
    assert close.sum() == 475
    rest = [abs(d - line[0] - line[1] * t) for t, d, c in zip(x, difference, close, strict=True) if c]
    assert line[2] == pytest.approx(1.4826 * median_of(rest) + 50.0)
    assert not fits.robust_line(x[:0], difference[:0], 3, close[:0], np.empty(0), line)


def test_a_line_through_few_points_keeps_its_slope_and_finds_its_centre():
    x, beside = np.linspace(-1e9, 1e9, 7), np.array([0, 10, 20, 30, 1e5, 1e5, 1e5])
    close, line = np.empty(7, np.bool_), np.array([0.0, 2e-6, 0.0])
    assert fits.robust_line(x, 300.0 + 2e-6 * x + beside, 3, close, np.empty(7), line)
    assert close.tolist() == [True] * 4 + [False] * 3
    assert line.tolist() == pytest.approx([315.0, 2e-6, 1.4826 * 10 + 50])


def test_a_line_through_a_short_time_keeps_its_slope():
    x = np.linspace(-4e7, 4e7, 51)
    close, line = np.empty(51, np.bool_), np.array([0.0, 2e-6, 0.0])
    assert fits.robust_line(x, 300.0 + 2.5e-6 * x, 3, close, np.empty(51), line)
    assert close.all()
    assert line.tolist() == pytest.approx([300.0, 2e-6, 1.4826 * np.median(np.abs(0.5e-6 * x)) + 50])


@given(TIMES, TIMES, st.integers(0, 1_000), st.sampled_from([16, 100, 250]))
@example([5.0], [5.0], 0, 16)
def test_differences_are_counted_and_selected_by_bins(partners, times, window, width):
    first, second = np.array(sorted(partners)), np.array(times)
    lows, highs = np.searchsorted(first, second - window), np.searchsorted(first, second + window, side="right")
    differences = [first[k] - second[i] for i in range(len(second)) for k in range(lows[i], highs[i])]
    least = -window - 1.0
    bins = int((2 * window + 2) / (8 * width)) + 2
    fine, fine_width = np.zeros(8 * bins, np.int32), float(width)
    fits.count_differences(first, second, lows, highs, least, 1 / fine_width, fine)
    counts = Counter(int((d - least) * (1 / fine_width)) for d in differences)
    assert fine.tolist() == [counts[b] for b in range(8 * bins)]

    wide, densest = np.empty(bins, np.int64), np.empty(bins, np.int64)
    fits.widen_bins(fine, 8, wide, densest)
    assert wide.tolist() == [sum(counts[b] for b in range(8 * w, 8 * w + 8)) for w in range(bins)]
    assert densest.tolist() == [max(counts[b] + counts[b + 1] for b in range(8 * w, 8 * w + 8)) for w in range(bins)]

    wanted, out = wide >= wide.max(), np.empty(len(differences))
    found = out[: fits.select_differences(first, second, lows, highs, least, 1 / (8 * fine_width), wanted, out)]
    assert found.tolist() == [d for d in differences if wanted[int((d - least) * (1 / (8 * fine_width)))]]


@together("far", [-2.0, 4.0, 1e300, -1e300, np.inf, np.nan])
def test_a_difference_beyond_the_bins_is_refused(far):
    one = (np.array([far]), np.zeros(1), np.array([0]), np.array([1]), 0.0, 1.0)
    with pytest.raises(IndexError, match="there are 4"):
        fits.count_differences(*one, np.zeros(4, np.int32))
    with pytest.raises(IndexError, match="there are 4"):
        fits.select_differences(*one, np.ones(4, np.bool_), np.zeros(1))


PARTS = st.lists(st.lists(st.integers(0, 300).map(float), min_size=1, max_size=25).map(sorted), min_size=1, max_size=4)


@given(PARTS)
@example([[0.0, 900, 1_000, 1_100, 5_000], [0.0, 10, 20, 3_000, 3_001]])
def test_the_densest_window_is_worth_most(parts):
    widths, worths = [50.0, 500.0], [2.0, 1.0]
    counts = np.array([len(p) for p in parts])
    worth, middle = np.empty(len(parts)), np.empty(len(parts))
    fits.densest_windows(
        np.concatenate(parts),
        np.cumsum(counts) - counts,
        counts,
        np.array(widths),
        np.array(worths),
        np.empty(2, np.int64),
        worth,
        middle,
    )
    for part, found, its_middle in zip(parts, worth.tolist(), middle.tolist(), strict=True):
        windows = [
            (value * len(inside), inside)
            for at, begin in enumerate(part)
            for width, value in zip(widths, worths, strict=True)
            for inside in [[v for v in part[at:] if v <= begin + width]]
        ]
        most, first = max(windows, key=lambda w: w[0])  # of equal ones the first
        assert (found, its_middle) == (most, median_of(first))


@given(st.integers(1, 4), st.integers(1, 30), st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**32))
def test_the_sharpest_window_of_rows_by_what_is_around_it(rows, columns, most, width, seed):
    random = np.random.default_rng(seed)
    values = np.sort(random.integers(0, most, (rows, columns)).astype(float), axis=1)
    worths, middles = [], []
    for row in values.tolist():
        many, at = max((sum(begin <= v <= begin + width for v in row[at:]), -at) for at, begin in enumerate(row))
        middle = row[-at] + width / 2
        chance = (sum(middle - 50 <= v < middle + 50 for v in row) - many + 0.5) * width / (100 - width)
        worths.append(many * math.log(many / chance) - (many - chance) if many > chance else 0.0)
        middles.append(middle)
    row, worth, middle = fits.sharpest_window(values, float(width), 50.0)
    assert worth == pytest.approx(max(worths))
    assert row == next(r for r, w in enumerate(worths) if w == pytest.approx(worth, rel=1e-12))
    assert middle == middles[row]


def test_values_that_are_not_there_have_no_window():
    for shape in ((2, 0), (0, 2)):
        with pytest.raises(IndexError, match="no values"):
            fits.sharpest_window(np.empty(shape), 1.0, 1.0)


@given(st.lists(st.integers(0, 200).map(float), max_size=30), st.integers(0, 40))
@example([0.0, 5, 100, 96, 111], 10)
def test_picked_values_are_apart(values, distance):
    picked = []
    for place, value in enumerate(values):
        if all(abs(value - values[p]) > distance for p in picked):
            picked.append(place)
    out = np.empty(len(values), np.int64)
    assert out[: fits.pick_apart(np.array(values), float(distance), out)].tolist() == picked


@given(st.lists(st.integers(0, 400).map(float), max_size=40), st.integers(1, 8))
@example([0.0, 1, 9, 10, 19, 20, 21, 100], 2)
def test_piles_of_few_values_are_those_of_all_bins(values, factor):
    values.sort()
    fine = np.bincount((np.array(values) / 10).astype(np.int64), minlength=48 * factor).astype(np.int32)
    counts, densest = np.empty(48, np.int64), np.empty(48, np.int64)
    fits.widen_bins(fine, factor, counts, densest)
    room = np.empty((4, len(values)), np.int64)
    bins, begins, many, most = room[:, : fits.pile_up(np.array(values), 0.0, 0.1, factor, *room)]
    assert bins.tolist() == np.flatnonzero(counts).tolist()
    assert many.tolist() == counts[bins].tolist()
    assert most.tolist() == densest[bins].tolist()
    assert begins.tolist() == [next(i for i, v in enumerate(values) if v // (10 * factor) == b) for b in bins.tolist()]


def test_every_difference_is_written_and_none_outside():
    out = np.empty(3)
    fits.all_differences(np.array([1.0, 3.0, 8.0]), np.array([1.0, 2.0]), np.array([0, 2]), np.array([2, 3]), out)
    assert out.tolist() == [0.0, 2.0, 6.0]
    with pytest.raises(IndexError):
        fits.all_differences(np.array([1.0]), np.array([1.0]), np.array([0]), np.array([2]), out)
