"""The measures of slowness, on jobs that can be done in the head."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.replay.slowdown import share_recovered, slowdown, slowdown_by, worst

ACTUAL = np.array([10, 30, 5, 5])  # two workers, two steps: every step takes as long as its slower worker
IDEAL = np.array([10, 10, 5, 5])
WORKER = np.array([0, 1, 0, 1])


def steps(work):
    return float(max(work[0], work[1]) + max(work[2], work[3]))


def test_slowdown_is_the_time_over_the_ideal_one():
    assert slowdown(steps, ACTUAL, IDEAL) == pytest.approx(35 / 15)
    assert slowdown_by(steps, ACTUAL, IDEAL, WORKER) == {0: 1.0, 1: pytest.approx(35 / 15)}
    assert slowdown(lambda _: 0.0, ACTUAL, IDEAL) == 1.0


def test_the_slow_worker_regains_all_and_the_other_nothing():
    assert share_recovered(steps, ACTUAL, IDEAL, WORKER == 1) == 1.0
    assert share_recovered(steps, ACTUAL, IDEAL, WORKER == 0) == 0.0
    assert share_recovered(steps, IDEAL, IDEAL, WORKER == 0) == 0.0


def test_the_worst_are_at_least_one_and_ties_go_to_the_lowest():
    assert worst({0: 1.0, 1: 1.5, 2: 1.5}) == [1]
    assert worst(dict.fromkeys(range(100), 1.0)) == [0, 1, 2]
    assert worst({}) == []
