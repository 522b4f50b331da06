"""Parts of the search for the line between two clocks, on arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from alltrace.align.pair_clocks import (
    ClockLine,
    Ends,
    _coincidences,
    _cost,
    _distinct,
    _equal_order,
    _fitted,
    _lines,
    _numbered,
    _of_one_run,
    _places,
    _refined,
    _related,
    _repeats,
    _sets,
    _sharpened,
    _surely,
    _theil,
    _variances,
    _weights,
    nearest_ends,
)


def ends(time, key=None, number=None):
    time = np.asarray(time, float)
    key, number = (np.full(len(time), n) if v is None else np.asarray(v) for n, v in ((0, key), (-1, number)))
    return Ends(time, key, number)


def line(offset=0.0, slope=0.0, middle=0.0, scale=1.0):
    return ClockLine(offset, slope, middle, scale, 20, 1.0)


def test_lines_are_composed_and_turned():
    times = np.array([1e9, 5e9, 9e9])
    one, other = ClockLine(500.0, 2e-5, 3e9, 30.0, 40, 0.9), ClockLine(-800.0, -1e-5, 2e9, 40.0, 30, 0.7)
    both = one.then(other)
    assert both.apply(times) == pytest.approx(other.apply(one.apply(times)), abs=1e-3)
    assert (both.scale_ns, both.count, both.certainty) == (50.0, 30, 0.7)
    assert one.reversed().apply(one.apply(times)) == pytest.approx(times, abs=1e-3)


def test_variances_are_those_of_the_differences_at_each_place():
    rng = np.random.default_rng(0)
    times, piece = np.sort(rng.uniform(0, 1e7, 9000)), np.sort(rng.uniform(0, 1e5, 5))
    found = _variances(piece, times)
    assert len(found) == 8996
    for at in (0, 1, 4000, 8191, 8192, 8995):
        assert found[at] == pytest.approx(np.var(piece - times[at : at + 5]), rel=1e-4, abs=1.0)


def test_a_piece_is_laid_where_it_fits_and_keys_are_equal():
    second = ends(
        [0, 10_000, 30_000, 60_000, 100_000, 110_000, 130_000, 160_000, 200_000], key=[0, 0, 0, 0, 0, 1, 0, 0, 0]
    )
    found = _places(np.array([5.0, 20_005.0, 50_005.0]), np.zeros(3, np.int64), second)
    assert found[0].tolist() == [10_000.0, 30_000.0, 60_000.0]
    assert [110_000.0, 130_000.0, 160_000.0] not in found.tolist()


def test_equal_numbers_make_pairs_if_they_are_there_once():
    first, second = ends([1, 2, 3, 4, 5], number=[7, 8, 9, 9, 6]), ends([10, 20, 30, 40], number=[8, 7, 6, -1])
    assert [v.tolist() for v in _numbered(first, second)] == [[5.0, 1.0, 2.0], [30.0, 20.0, 10.0]]
    assert _numbered(first, second.take(slice(0, 2))) is None


def test_the_nearest_end_of_equal_key_counts_if_it_is_mutual():
    partner, mutual = nearest_ends(ends([0, 100, 205]), ends([1, 90, 130, 300], key=[0, 0, 0, 1]), line())
    assert partner[:3].tolist() == [0.0, 100.0, 100.0]
    assert np.isnan(partner[3])
    assert mutual.tolist() == [True, True, False, False]


def test_what_a_line_costs():
    time = np.arange(10) * 1e6
    cost = _cost(line(offset=1e6), ends(time), ends(time[:8] - 1e6 + 800.0))
    assert cost.sharpest == pytest.approx(math.log(1000.0))
    assert cost.usual == pytest.approx(math.log(1000.0))
    assert cost.shared == 8
    assert cost.all == pytest.approx(math.log(1000.0) + 4.0 * 0.2 + 0.3 * math.log10(2.0))


def test_how_sure_a_line_is():
    assert _surely(1.0, []) == 1.0
    assert _surely(1.0, [1.0, 4.0]) == 0.0
    assert _surely(1.0, [1.25, 9.0]) == pytest.approx(2 * (1 - math.exp(-0.25)))
    assert _surely(1.0, [3.0]) == 1.0


def test_each_piece_speaks_once_for_a_line():
    assert _weights(np.array([[0.5, 0.2, 0.9], [-1.0, 0.3, -2.0]]), np.array([0, 0, 2])).tolist() == [0.5 + 0.9, 0.3]


def test_lines_that_are_close_to_one_before_are_left_out():
    rankings = [
        [(0.0, 0.0, 0.0), (5.0, 0.0, 0.0), (20.0, 0.0, 0.0), (40.0, 0.0, 0.0)],
        [(60.0, 0.0, 0.0), (21.0, 0.0, 0.0), (80.0, 0.0, 0.0)],
    ]
    assert [offset for offset, _, _ in _distinct(rankings, 10.0)] == [0.0, 20.0, 60.0, 80.0]
    turned = [[(0.0, 0.0, 1000.0), (0.0, 0.1, 0.0)]]  # the second is 100 ahead where the first is measured
    assert len(_distinct(turned, 99.0)) == 2
    assert len(_distinct(turned, 101.0)) == 1


def test_ends_of_two_runs_wander_apart_and_those_of_one_do_not():
    rng = np.random.default_rng(3)
    second = np.arange(60) * 1e6
    late = rng.normal(0.0, 1e3, 60)
    assert _of_one_run(second + late, second, line(scale=1e3))
    assert not _of_one_run(second + np.cumsum(late), second, line(scale=1e4))
    assert _of_one_run(
        second + np.where(np.arange(60) < 30, 0.0, 3e3) + late, second, line(scale=1e4)
    )  # a clock that was set
    assert _of_one_run(second[:15] + np.cumsum(late[:15]), second[:15], line(scale=1e4))  # too few to tell


def test_where_most_ends_coincide_there_is_a_line():
    rng = np.random.default_rng(7)
    own = np.sort(rng.uniform(0, 1e9, 40))
    others = np.sort(np.concatenate((own[:22] - 3e6, rng.uniform(0, 1e9, 20))))
    found = _coincidences(ends(own), ends(others))
    assert found[0][0] == pytest.approx(3e6, abs=1.0)
    assert found[0][1:] == (0.0, pytest.approx(others.mean()))
    assert _coincidences(ends(own[:12]), ends(others[:12])) == []


def test_a_part_that_is_much_sharper_decides():
    rng = np.random.default_rng(11)
    second = np.sort(rng.uniform(0, 2e10, 600))
    shared = rng.random(600) < 0.4
    first = second + np.where(
        shared, 7e5 + 1e-4 * (second - 1e10) + rng.normal(0.0, 50.0, 600), rng.uniform(-4e6, 4e6, 600)
    )
    order = np.argsort(first)
    wide = ClockLine(0.0, 0.0, 1e10, 3e6, 600, 0.4)
    found = _sharpened(ends(first[order]), ends(second), wide, rate=True)
    assert found.slope == pytest.approx(1e-4, rel=0.01)
    assert found.offset_ns - 7e5 == pytest.approx(0.0, abs=5e3)
    assert found.scale_ns < 1e4
    assert found.certainty == 0.4
    assert (
        _sharpened(ends(first[order]), ends(second), ClockLine(0.0, 0.0, 1e10, 100.0, 600, 0.4), rate=True).scale_ns
        == 100.0
    )


def test_the_line_through_ends_is_robust_and_has_a_rate_only_where_it_shows():
    x = np.arange(200) * 1e8
    left = np.random.default_rng(5).normal(0.0, 100.0, 200)
    left[:10] += 1e7
    found = _fitted(x * (1 + 3e-6) + 500.0 + left, x, rate=True)
    assert found.slope == pytest.approx(3e-6, abs=1e-8)
    assert found.middle_ns == x[-1] / 2
    assert found.offset_ns == pytest.approx(500.0 + 3e-6 * found.middle_ns, abs=60.0)
    assert found.scale_ns == pytest.approx(105.0, abs=25.0)
    assert 180 <= found.count <= 190
    assert _fitted(x + left, x, rate=True).slope == 0.0
    assert _fitted(x * (1 + 3e-6) + left, x, rate=False).slope == 0.0
    assert _theil(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.0, 9.0, 2.0, 15.0, 0.0])) == pytest.approx(
        (1.0 + 3.0) / 2
    )
    assert _theil(np.array([1.0]), np.array([1.0])) == 0.0


def test_pieces_are_long_short_and_of_the_commonest_key():
    key = np.array([0] * 12 + [1] * 20)
    sets = list(_sets(ends(np.arange(32.0), key), ends(np.arange(40.0), np.array([0] * 15 + [1] * 25))))
    assert [(len(some.time), len(others.time), many, length) for some, others, many, length in sets] == [
        (32, 40, 16, 16), (32, 40, 16, 8), (20, 25, 16, 8)
    ]  # fmt: skip
    short = list(_sets(ends(np.arange(16.0)), ends(np.arange(40.0))))
    assert [(many, length) for _, _, many, length in short] == [(16, 16)]
    few = list(_sets(ends(np.arange(30.0), [0] * 22 + [1] * 8), ends(np.arange(30.0), [0] * 5 + [1] * 25)))
    assert len(few) == 2  # eight of the commonest key are too few


def test_lines_go_through_the_offsets_of_several_pieces():
    rng = np.random.default_rng(12)
    first = np.cumsum(rng.uniform(3e5, 2e6, 80))
    second = (first - 5e6) / (1 + 1e-4)
    offset, slope, middle = _lines(ends(first), ends(second), rate=True)[0]
    assert ClockLine(offset, slope, middle, 1.0, 1, 1.0).apply(second) == pytest.approx(first, abs=50.0)
    assert all(slope == 0.0 for _, slope, _ in _lines(ends(first), ends(second), rate=False))
    assert len(_lines(ends(first), ends(second), rate=True)) <= 4
    assert _lines(ends(first[:3], [0, 0, 1]), ends(second[:3], [1, 1, 0]), rate=True) == []


def test_a_line_is_fitted_to_the_nearest_ends():
    rng = np.random.default_rng(13)
    second = np.cumsum(rng.uniform(3e5, 2e6, 60))
    first = second + 7e5 + rng.normal(0.0, 200.0, 60)
    found = _refined(ends(first), ends(second), 7e5 + 4e4, 0.0, 0.0, rate=True)
    assert (found.offset_ns, found.count) == (pytest.approx(7e5, abs=80.0), 60)
    assert found.scale_ns == pytest.approx(200.0, rel=0.3)
    assert (
        _refined(ends(first, np.zeros(60, np.int64)), ends(second, np.ones(60, np.int64)), 7e5, 0.0, 0.0, rate=True)
        is None
    )


def test_other_places_of_the_middle_piece_are_periods_away():
    time = np.cumsum(np.tile([1e5, 1e5, 3e5, 5e5], 30))
    best = ClockLine(0.0, 0.0, 0.0, 1.0, 120, 1.0)
    found = [line.offset_ns for line in _repeats(ends(time), ends(time), best, 5e4)]
    assert len(found) == 2
    assert all(abs(offset) == 1e6 for offset in found)
    alone = np.cumsum(np.random.default_rng(1).uniform(3e5, 2e6, 60))
    assert all(abs(line.offset_ns) > 5e4 for line in _repeats(ends(alone), ends(alone), best, 5e4))


def test_equal_sequences_relate_ranks_where_a_piece_fits_nowhere_else():
    rng = np.random.default_rng(14)
    time = np.cumsum(rng.uniform(3e5, 2e6, 40))
    assert _equal_order(ends(time), ends(time + 9e9))
    assert not _equal_order(ends(time), ends(time + 9e9, [0] * 39 + [1]))
    assert not _equal_order(ends(time), ends(time[:-1]))
    assert not _equal_order(ends(time[:5]), ends(time[:5]))
    assert not _equal_order(ends(np.arange(40) * 1e6), ends(np.arange(40) * 1e6))
    noise = rng.normal(0.0, 3e5, 40)
    assert not _equal_order(ends(time), ends(time + noise))


def test_how_sure_a_relation_is():
    rng = np.random.default_rng(15)
    first = np.cumsum(rng.uniform(3e5, 2e6, 100))
    late = rng.normal(0.0, 500.0, 100)
    cost, found = _related(ends(first), ends(first + late), rate=False)
    assert (found.certainty, found.count) == (1.0, pytest.approx(100, abs=2))
    assert cost == pytest.approx(math.log(0.385 * 500 + 200), abs=0.3)
    few = _related(ends(first[:8]), ends(first[:8] + late[:8]), rate=False)
    assert few[1].certainty == few[1].count / 16
    steps = np.arange(100) * 1e6
    alike = _related(ends(steps), ends(steps + late), rate=False)[1]
    assert alike.certainty <= 0.5  # stamps and overlap alone tell periods
    other = _related(ends(first), ends(np.cumsum(rng.uniform(3e5, 2e6, 100))), rate=False)[1]
    assert other.certainty < 0.3
