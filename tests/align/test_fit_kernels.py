"""Kernels of the alignment against the same in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align import fit_kernels, voting
from alltrace.align.line_kernel import robust_line
from alltrace.align.medians import middle
from alltrace.align.members import Evidence, meet


@pytest.mark.parametrize("count", [1, 2, 3, 12, 13, 14, 101, 1_000, 4_097])
@pytest.mark.parametrize("kinds", [2, 50, 10**9])
def test_medians(count, kinds):
    generator = np.random.default_rng(count)
    for values in (generator.integers(0, kinds, count).astype(float), np.arange(count, 0, -1.0), np.arange(count) * 1.0):
        assert middle(values.copy(), count) == np.median(values)
        assert middle(values.copy(), (count + 1) // 2) == np.median(values[: (count + 1) // 2])


@pytest.fixture
def block():
    generator = np.random.default_rng(1)
    ends, present = generator.uniform(0, 1e9, (30, 5)), generator.random((30, 5)) < 0.8
    present[3] = False
    return ends, present


def test_residuals_are_against_the_median_of_those_that_are_there(block):
    ends, present = block
    ahead, rate, found = np.arange(5) * 1e6, np.arange(5) * 1e-6, np.empty(ends.shape)
    fit_kernels.late(ends, present, ahead, rate, 5e8, np.empty(5), found)
    times = ends - ahead - rate * (ends - 5e8)
    for i in range(30):
        if present[i].any():
            assert found[i, present[i]] == pytest.approx((times[i] - np.median(times[i, present[i]]))[present[i]])
    assert not found[~present].any()
    own = np.empty(found.size)
    assert own[: fit_kernels.sizes(found, present, own)] == pytest.approx(np.abs(found[present]))


@pytest.mark.parametrize("tukey", [True, False])
def test_weights(block, tukey):
    residual, present = block
    residual, found = (residual - 5e8) / 1e6, np.empty(residual.shape)
    fit_kernels.weigh(residual, present, 70.0, 4.685, 0.2, tukey, found)
    shape = np.clip(1 - (residual / (4.685 * 70)) ** 2, 0, None) ** 2 * np.where(residual > 0, 0.2, 1.0)
    shape = shape if tukey else 1 / np.maximum(np.abs(residual) / 70, 1)
    assert found == pytest.approx(np.where(present, shape / 70**2, 0.0), rel=1e-12)


def test_normal_equations_are_those_of_the_mean_taken_off(block):
    ends, present = block
    weights = np.where(present, np.random.default_rng(2).uniform(0.1, 2, ends.shape), 0.0)
    unit, host = np.array([0, 1, 1, 2, 0]), np.array([0, 0, 0, 1, 1])
    ahead, rate = np.arange(5) * 1e3, np.zeros(5)
    cc, cb, bb, y_c, y_b = np.zeros((3, 3)), np.zeros((3, 2)), np.zeros((2, 2)), np.zeros(3), np.zeros(2)
    fit_kernels.gather(
        ends, weights, unit, host, ahead, rate, 5e8, True, np.empty(5), np.zeros(3), np.zeros(2), cc, cb, bb, y_c, y_b
    )
    want, right = np.zeros((5, 5)), np.zeros(5)
    for i in np.flatnonzero(present.any(axis=1)):
        w = weights[i]
        z = (ends[i] - 5e8) / 1e9
        design = np.concatenate((np.eye(3)[unit], np.eye(2)[host] * z[:, None]), axis=1)
        matrix = np.diag(w) - np.outer(w, w) / w.sum()
        want += design.T @ matrix @ design
        right += design.T @ matrix @ (ends[i] - ahead)
    assert np.block([[cc, cb], [cb.T, bb]]) == pytest.approx(want, rel=1e-9, abs=1e-9)
    assert np.concatenate((y_c, y_b)) == pytest.approx(right, rel=1e-6, abs=1.0)


def test_votes_and_piles():
    generator = np.random.default_rng(3)
    first, second = np.sort(generator.uniform(0, 1e8, 400)), np.sort(generator.uniform(0, 1e8, 20))
    low, high = np.searchsorted(first, second - 2e7), np.searchsorted(first, second + 2e7)
    differences = np.concatenate([first[a:b] - s for s, a, b in zip(second, low, high, strict=True)])
    least, width = differences.min() - 1.0, 8192.0
    fine = np.zeros(8 * (int((differences.max() - least) / (8 * width)) + 2), np.int32)
    voting.tally(first, second, low, high, least, 1 / width, fine)
    assert (fine == np.bincount(((differences - least) / width).astype(int), minlength=len(fine))).all()
    votes, sharp = np.empty(len(fine) // 8, np.int64), np.empty(len(fine) // 8, np.int64)
    voting.summed(fine, 8, votes, sharp)
    assert (votes == fine.reshape(-1, 8).sum(axis=1)).all()
    assert (sharp == (fine + np.append(fine[1:], 0)).reshape(-1, 8).max(axis=1)).all()
    wanted, out = votes >= np.sort(votes)[-5], np.empty(len(differences))
    out = np.sort(out[: voting.gathered(first, second, low, high, least, 1 / (8 * width), wanted, out)])
    mine = wanted[((differences - least) / (8 * width)).astype(int)]
    assert out == pytest.approx(np.sort(differences[mine]))


def test_the_sharpest_pile_is_worth_most():
    values = np.array([0.0, 900, 1_000, 1_100, 5_000, 0.0, 10, 20, 3_000, 3_001])
    worth, typical = np.empty(2), np.empty(2)
    widths, worths = np.array([50.0, 500.0]), np.array([2.0, 1.0])
    voting.sharpest(values, np.array([0, 5]), np.array([5, 5]), widths, worths, np.empty(2, np.int64), worth, typical)
    assert worth.tolist() == [3.0, 6.0]
    assert typical.tolist() == [1_000.0, 10.0]
    places = np.empty(5, np.int64)
    assert places[: voting.apart(np.array([0.0, 5, 100, 96, 111]), 10.0, places)].tolist() == [0, 2, 4]


def test_a_line_leaves_out_what_is_off_it():
    generator = np.random.default_rng(4)
    x = np.sort(generator.uniform(-1e9, 1e9, 500))
    difference = 7e6 + 3e-6 * x + generator.normal(0, 100, 500)
    difference[::20] += 50_000
    close, line = np.empty(500, np.bool_), np.array([0.0, 0.0, 0.0])
    assert robust_line(x, difference, 3, close, np.empty(500), line)
    slope, centre = np.polyfit(x[close], difference[close], 1)
    assert line[:2] == pytest.approx([centre, slope], rel=1e-9)
    assert 100 < line[2] < 200
    assert not close[::20].any()
    assert close.sum() == 475
    assert not robust_line(x[:0], difference[:0], 3, close[:0], np.empty(0), line)


def test_clocks_confirm_a_matching_by_which_all_ends_meet():
    ends = np.array([0, 5_000_000, 10_000_000, 15_200_000])
    evidence = Evidence(
        np.array([0, 0, 1, 1]),
        np.zeros(4, np.int64),
        np.array([3, 8, 3, 8]),
        ends - 1,
        ends,
        np.ones(4, np.bool_),
        np.zeros(4, np.int8),
    )
    assert meet(evidence, {3: 5_000_000, 8: 0})
    assert not meet(evidence, {3: 4_100_000, 8: 0})
    assert not meet(evidence, {3: 0, 8: 0})
