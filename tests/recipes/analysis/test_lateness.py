from __future__ import annotations

import numpy as np
import pytest

from alltrace.recipes.analysis.lateness import causes


def test_a_cause_is_what_goes_beyond_the_median_of_the_others():
    # three operations: of four ranks, of two, and one at which nobody's wait counts
    instance, rank = np.array([0, 0, 0, 0, 1, 1, 2, 2]), np.array([0, 1, 2, 3, 0, 1, 0, 1])
    last = np.array([3, 3, 3, 3, 0, 0, -1, -1])
    before = np.zeros((8, 4), np.int64)
    before[:4, 0] = (10, 30, 20, 100)
    before[:4, 3] = (5, 7, 6, 16)
    before[4:6, 1] = (9, 4)
    before[6:, 2] = (1_000, 0)
    found = causes(instance, rank, last, before)
    assert sorted(found) == [0, 3]
    assert (found[3].name, found[3].excess_ns) == ("compute", (80, 0, 0, 10))
    assert found[3].share == pytest.approx(80 / 90)
    assert (found[0].name, found[0].excess_ns) == ("communication", (0, 5, 0, 0))


def test_an_excess_within_the_rounding_of_times_has_no_cause():
    before = np.zeros((3, 4), np.int64)
    before[:, 3] = (10, 10, 14)
    found = causes(np.zeros(3, np.int64), np.arange(3), np.full(3, 2), before)
    assert (found[2].name, found[2].share, found[2].excess_ns) == (None, 0.0, (0, 0, 0, 4))
    before[2, 3] += 1
    assert causes(np.zeros(3, np.int64), np.arange(3), np.full(3, 2), before)[2].name == "host"


def test_of_an_even_number_of_others_the_median_lies_between_two():
    before = np.zeros((5, 4), np.int64)
    before[:, 2] = (1, 4, 7, 8, 20)
    found = causes(np.zeros(5, np.int64), np.arange(5), np.full(5, 4), before)
    assert found[4].excess_ns == (0, 0, 14, 0)  # 20 - 5.5, whole ns
    assert causes(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), before[:0]) == {}
