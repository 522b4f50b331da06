"""Medians against short computations in plain Python."""

from __future__ import annotations

from statistics import median as median_of

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core import fits

LENGTHS = [1, 2, 3, 12, 13, 14, 101, 1_000, 4_097]


@together("count", LENGTHS)
@together("kinds", [2, 50, 10**9])
def test_medians_of_some_of_the_values(count, kinds):
    generator = np.random.default_rng(count)
    for values in (
        generator.integers(0, kinds, count).astype(float),
        np.arange(count, 0, -1.0),
        np.arange(count) * 1.0,
    ):
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
