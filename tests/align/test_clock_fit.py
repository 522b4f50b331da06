"""What the fit of clocks is made of."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.clock_fit import Clocks, Sums, ends_of, late_ends, levels, measured, medians, robust_levels


def ends(rows):
    """The ends of rows of (instance, communicator, rank, start, end)."""
    instance, communicator, rank, start, end = np.array(rows, np.int64).T.copy()
    return ends_of(instance, communicator, rank, start.astype(float), end.astype(float))


def clocks(*ahead_ns, rate=None, t0=0.0):
    return Clocks(np.array(ahead_ns, float), np.zeros(len(ahead_ns)) if rate is None else np.array(rate, float), t0)


def steady(late_ns, count, communicator=0):
    """Collectives of two ranks, 1 ms apart; the second ends `late_ns` later in the n-th."""
    rows = []
    for n in range(count):
        rows += [(n, communicator, 0, 1_000_000 * n, 1_000_000 * n + 50_000)]
        rows += [(n, communicator, 1, 1_000_000 * n, 1_000_000 * n + 50_000 + late_ns(n))]
    return ends(rows)


def test_ends_are_of_instances_with_several_members_and_of_cells_by_communicator_and_rank():
    found = ends([(0, 0, 1, 5, 20), (0, 0, 0, 0, 10), (1, 0, 0, 30, 40), (2, 1, 2, 50, 60), (2, 1, 0, 51, 61)])
    assert found.numbers.tolist() == [0, 2]
    assert found.first.tolist() == [0, 2, 4]
    assert found.rank.tolist() == [0, 1, 0, 2]
    assert found.end.tolist() == [10.0, 20.0, 61.0, 60.0]
    assert found.block.tolist() == [0, 0, 1, 1]
    assert found.rank_of_cell[found.cell].tolist() == found.rank.tolist()


def test_a_rank_with_two_devices_has_a_cell_for_each():
    rows = [(n, 0, rank, 100 * n, 100 * n + 10 + k) for n in range(3) for k, rank in enumerate([0, 0, 1])]
    found = ends(rows)
    assert sorted(found.rank_of_cell.tolist()) == [0, 0, 1]
    assert np.bincount(found.cell).tolist() == [3, 3, 3]


def test_without_some_ends_their_instances_with_one_member_left_are_gone():
    found = ends([(0, 0, 0, 0, 10), (0, 0, 1, 0, 11), (1, 0, 0, 20, 30), (1, 0, 1, 20, 31), (1, 0, 2, 20, 32)])
    kept = found.only(found.rank != 0)
    assert kept.numbers.tolist() == [1]
    assert kept.end.tolist() == [31.0, 32.0]
    assert kept.first.tolist() == [0, 2]


def test_ends_are_late_against_the_median_of_their_instance():
    found = ends([(0, 0, 0, 0, 10), (0, 0, 1, 0, 14), (0, 0, 2, 0, 100)])
    late, middle = late_ends(found, clocks(0, 0, 0))
    assert (late.tolist(), middle.tolist()) == ([-4.0, 0.0, 86.0], [14.0])
    late, middle = late_ends(found, clocks(0, 0, 80))
    assert (late.tolist(), middle.tolist()) == ([-4.0, 0.0, 6.0], [14.0])


def test_times_on_one_clock_are_without_offset_and_rate():
    times = clocks(100, -50, rate=[0.0, 1e-3], t0=1_000.0).true(np.array([0, 1]), np.array([5_000.0, 5_000.0]))
    assert times.tolist() == pytest.approx([4_900.0, 5_050.0 - 4.0])


def test_medians_are_of_each_run_of_values():
    values = np.array([3.0, 1.0, 2.0, 8.0, 4.0])
    assert medians(values, np.array([0, 3, 3, 5])).tolist() == [2.0, 0.0, 6.0]


def test_sums_are_by_key_of_rows_and_of_columns():
    keys = np.array([2, 0, 2])
    assert Sums(keys, 4)(np.array([1.0, 2.0, 5.0])).tolist() == [2.0, 0.0, 6.0, 0.0]
    assert Sums(keys)(np.array([[1.0, 10.0], [2.0, 20.0], [5.0, 50.0]])).tolist() == [
        [2.0, 20.0],
        [0.0, 0.0],
        [6.0, 60.0],
    ]


def test_a_cell_is_late_by_the_mean_of_its_ends_without_outliers():
    found = steady(lambda n: 9_000_000 if n == 7 else 600 + 10 * (n % 2), 64)
    cells = measured(found, clocks(0, 0))
    assert cells.rank.tolist() == [0, 1]
    # the level of the block is taken off, so each is off by half
    assert cells.late_ns.tolist() == pytest.approx([-302.5, 302.5], abs=1.0)
    assert cells.slope == pytest.approx(0.0, abs=1e-7)


def test_a_cell_of_which_half_are_outliers_is_no_surer_than_these_are():
    rows = []
    for n in range(64):
        late = [50 * (n % 3), 60 * (n % 2), 70 * (n % 5 > 2), 2_000_000 * (n % 2)]
        rows += [(n, 0, rank, 1_000_000 * n, 1_000_000 * n + 50_000 + ns) for rank, ns in enumerate(late)]
    noise = measured(ends(rows), clocks(0, 0, 0, 0)).noise
    assert np.sqrt(noise[3] / noise[0]) > 1_000
    assert noise[:3].max() < 2 * noise[:3].min()


def test_a_cell_that_grows_later_has_a_slope():
    found = steady(lambda n: 20 * n, 64)
    cells = measured(found, clocks(0, 0, t0=31.5e6))
    # 20 ns in 1 ms, shared by both
    assert cells.slope.tolist() == pytest.approx([-1e-5, 1e-5], rel=1e-3)
    # the mean time of all ends is half a step and the duration after that
    assert cells.time_ns.tolist() == pytest.approx([50_000, 50_000], abs=1_500)


def test_only_blocks_of_several_parts_compare_them():
    rows = [(n, 0, r, 100 * n, 100 * n + 10) for n in range(20) for r in (0, 1)]
    rows += [(20 + n, 1, r, 100 * n, 100 * n + 10) for n in range(20) for r in (1, 2)]
    cells = measured(ends(rows), clocks(0, 0, 0))
    assert cells.rank[cells.between(np.array([0, 1, 2]))].tolist() == [0, 1, 1, 2]
    assert cells.rank[cells.between(np.array([0, 0, 1]))].tolist() == [1, 2]
    assert not len(cells.between(np.zeros(3, np.int64)))


def test_levels_and_offsets_are_fitted_together_in_every_component():
    block, unit = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 3, 4])
    values = np.array([[10.0], [13.0], [100.0], [95.0], [7.0], [9.0]])
    found = levels(block, unit, np.ones(6), values, np.ones(5, np.bool_))[:, 0]
    assert np.diff(found[:3]).tolist() == pytest.approx([3.0, -5.0])
    assert found[4] - found[3] == pytest.approx(2.0)
    # of all answers the nearest to 0, where the middle unit is of two blocks
    assert found[:3] @ [1, 2, 1] == pytest.approx(0.0)
    assert found[3:].sum() == pytest.approx(0.0)


def test_levels_are_by_weight_and_leave_units_that_are_not_free_at_0():
    block, unit, weight = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1.0, 1.0, 3.0, 3.0])
    values = np.array([[0.0, 1.0], [4.0, 1.0], [0.0, 5.0], [8.0, 9.0]])
    found = levels(block, unit, weight, values, np.array([False, True]))
    assert found.tolist() == [[0.0, 0.0], pytest.approx([7.0, 3.0])]


def test_a_value_that_is_far_off_counts_little():
    block, unit = np.repeat(np.arange(20), 2), np.tile([0, 1], 20)
    values = np.where(unit == 1, 5.0, 0.0)
    values[1] += 1e6
    free = np.array([False, True])
    plain = levels(block, unit, np.ones(40), values[:, None], free)[1, 0]
    found, left = robust_levels(block, unit, np.ones(40), values, free)
    assert plain == pytest.approx(5.0 + 1e6 / 20)
    assert found[1] == pytest.approx(5.0, abs=1.0)
    assert np.abs(left[2:]).max() < 1.0
    assert np.abs(left[:2]).max() > 1e5


def test_few_operations_of_a_length_are_compared_with_the_commonest_of_their_communicator():
    rows = [
        (n, 0, r, 1_000_000 * n, 1_000_000 * n + (500_000 if n % 20 == 0 else 5_000)) for n in range(60) for r in (0, 1)
    ]
    found = ends(rows)
    assert found.block.tolist() == [0, 0]
    assert np.bincount(found.cell).tolist() == [60, 60]


def test_members_have_one_role_in_all_lengths_and_blocks_alike_are_as_large_and_as_long():
    rows = [(n, 0, r, 1_000_000 * n, 1_000_000 * n + (500_000 if n % 2 else 5_000)) for n in range(60) for r in (0, 1)]
    rows += [(60 + n, 1, r, 1_000_000 * n, 1_000_000 * n + 5_000) for n in range(30) for r in (2, 3)]
    found = ends(rows)
    assert found.rank_of_cell.tolist() == [0, 1, 0, 1, 2, 3]
    assert found.role.tolist() == [0, 1, 0, 1, 2, 3]
    assert found.like[0] == found.like[4] != found.like[2]


def test_blocks_that_are_alike_have_one_scatter():
    rows = [(n, 0, r, 1_000_000 * n, 1_000_000 * n + 50_000 + r * (n % 2) * 2_000) for n in range(64) for r in (0, 1)]
    rows += [(64 + n, 1, r, 1_000_000 * n, 1_000_000 * n + 50_000) for n in range(64) for r in (2, 3)]
    cells = measured(ends(rows), clocks(0, 0, 0, 0))
    assert cells.scatter == pytest.approx(((1.4826 * 500 + 1) ** 2 + 1) / 2, rel=0.01)
