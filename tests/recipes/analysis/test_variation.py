"""Variation by rank, rotating variation and random variation, on generated values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alltrace.recipes.analysis.variation import _NORMAL, _apart, _between, _noise, variation

LEAST = 0.005


def noise(seed, ranks, steps, deviation=0.01):
    return np.random.default_rng(seed).normal(1.0, deviation, (ranks, steps))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("deviation", [0.002, 0.05])
def test_noise_alone_makes_a_rank_stand_out_once_in_a_hundred_times_at_most(ranks, deviation):
    found = [variation(noise(seed, ranks, 12, deviation), LEAST) for seed in range(200)]
    assert sum(f.persistent.any() or f.sometimes.any() for f in found) <= 2
    assert sum(f.rotates for f in found) <= 4


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 64])
def test_a_slow_rank_in_noise_is_found_and_no_other(ranks):
    for seed in range(20):
        values = noise(seed, ranks, 12)
        values[1] *= 1.1
        found = variation(values, LEAST)
        assert found.persistent.tolist() == [r == 1 for r in range(ranks)]
        assert found.level[1] == pytest.approx(1.1, abs=0.03)


def test_half_of_the_ranks_can_be_slow():
    values = noise(1, 16, 10)
    values[8:] *= 1.08
    assert variation(values, LEAST).persistent.tolist() == [False] * 8 + [True] * 8


def test_the_usual_differences_between_ranks_name_none():
    levels = np.random.default_rng(5).normal(1.0, 0.01, (64, 1))
    assert not variation(levels * noise(1, 64, 20, 0.001), LEAST).persistent.any()
    assert variation(levels * noise(1, 64, 20, 0.001), LEAST, spread=False).persistent.any()


def test_the_share_between_ranks_is_that_of_the_variances():
    rng = np.random.default_rng(2)
    values = 1 + rng.normal(0, 0.03, (400, 1)) + rng.normal(0, 0.03, (400, 50))
    assert variation(values, LEAST).between == pytest.approx(0.5, abs=0.06)


def test_the_share_between_ranks_with_unequal_numbers_of_steps():
    values = np.array([[1, 2, np.nan], [4, 5, 6], [2, 4, np.nan], [9, np.nan, np.nan]])
    # without the last, of which one step says nothing: means 1.5, 5 and 3 of 7 / 3 steps, and 0.5 + 2 + 2 within
    between, within = 7 / 3 * np.var([1.5, 5, 3], ddof=1), 4.5 / (1 + 2 + 1)
    assert _between(values) == pytest.approx((between - within) / (between + 4 / 3 * within))
    assert _between(values[[0, 3]]) == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ranks=st.integers(2, 12),
    steps=st.integers(1, 12),
    slow=st.floats(1.0, 2.0),
    scale=st.floats(0.01, 1e9),
    hole=st.booleans(),
)
def test_order_scale_and_what_all_ranks_share_do_not_matter(seed, ranks, steps, slow, scale, hole):
    rng = np.random.default_rng(seed)
    values = rng.normal(1.0, 0.02, (ranks, steps))
    values[0] *= slow
    if hole:
        values[rng.integers(ranks)] = np.nan
    order = rng.permutation(ranks)
    plain = variation(values, LEAST)
    other = variation(values[order] * scale * rng.uniform(0.5, 2.0, steps), LEAST)
    for one, two in (
        (plain.persistent, other.persistent),
        (plain.sometimes, other.sometimes),
        (plain.slow, other.slow),
    ):
        assert (one[order] == two).all()
    assert not (plain.persistent & plain.sometimes).any()
    assert not plain.slow[plain.persistent | plain.sometimes].any()
    assert 0 <= plain.between <= 1


def test_the_deviation_within_few_ranks_is_pooled_and_that_of_many_from_their_median():
    deviations = np.array([[-1.0, 1.0, -1.0, 1.0]] * 3)
    # a rank's median takes a degree of freedom, and each mean of four steps one of theirs
    assert _noise(deviations, np.ones((3, 4), np.bool_)) == pytest.approx(np.sqrt(3 / 2 * 4 / 3))
    assert _noise(np.repeat(deviations[:1], 8, axis=0), np.ones((8, 4), np.bool_)) == pytest.approx(
        _NORMAL * np.sqrt(4 / 3)
    )
    assert np.isnan(_noise(deviations, np.array([[True, False, False, False]] * 3)))


def test_parts_that_differ_by_less_than_counts_are_not_apart():
    values = 1.0 + np.array([[0.003] * 6 + [0.006] * 2])
    assert _apart(values, 0.002).tolist() == [[False] * 6 + [True] * 2]
    assert not _apart(values, LEAST).any()
