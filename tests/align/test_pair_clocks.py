"""The relation of two clocks by the pattern of ends."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.pair_clocks import ClockLine, Ends, _equal_order, relate, relate_partly


def ends(time, key=None, number=None):
    time = np.asarray(time, float)
    count = len(time)
    return Ends(
        time,
        np.zeros(count, np.int64) if key is None else np.asarray(key),
        np.full(count, -1, np.int64) if number is None else np.asarray(number),
    )


def made_up(scatter_ns, *, count=300, drift=0.0, offset=7.3e11, seed=1):
    rng = np.random.default_rng(seed)
    true = np.cumsum(rng.uniform(3e5, 2e6, count)) + 1e12
    first = true + rng.exponential(scatter_ns, count)
    second = (true + rng.exponential(scatter_ns, count)) * (1.0 + drift) + offset
    return true, first, second


@pytest.mark.parametrize("scatter_ns", [500.0, 20e3, 200e3])
def test_offset_and_scatter_follow_from_the_pattern_whatever_the_scatter(scatter_ns):
    true, first, second = made_up(scatter_ns)
    line = relate(ends(first), ends(second[40:]), rate=False)
    assert np.abs(line.apply(true + 7.3e11) - true).max() < 0.3 * scatter_ns
    assert line.scale_ns == pytest.approx(1.43 * scatter_ns, rel=0.4)
    assert line.certainty > 0.9


def test_a_rate_is_found_where_it_shows_and_not_otherwise():
    _, first, second = made_up(2e3, drift=2e-5)
    assert relate(ends(first), ends(second)).slope == pytest.approx(-2e-5, rel=0.1)
    _, first, second = made_up(20e3)
    assert relate(ends(first), ends(second)).slope == 0.0


def test_numbers_decide_where_steps_are_exactly_alike():
    steps = np.arange(50) * 1e6
    line = relate(ends(steps[:40], number=np.arange(40)), ends(steps[:40] + 5e9, number=np.arange(10, 50)), rate=False)
    assert line.offset_ns == pytest.approx(-5e9 + 1e7)


def test_ranks_that_share_the_operations_of_one_key_are_related_by_these():
    _, first, second = made_up(2e3)
    _, one, other = made_up(2e3, seed=2)
    other += 1.3e9 * np.random.default_rng(3).uniform(size=len(other))  # of other operations
    key = np.repeat([5, 7], len(first))
    line = relate_partly(
        ends(np.concatenate([first, one]), key), ends(np.concatenate([second, other]), key), rate=False
    )
    assert line.offset_ns == pytest.approx(-7.3e11, abs=2e3)
    assert line.certainty > 0.9


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize(("lost", "scatter_ns"), [(1, 50.0), (6, 50.0), (6, 20e3)])
def test_where_steps_repeat_exactly_no_offset_is_more_than_a_guess(lost, scatter_ns, partly):
    rng = np.random.default_rng(5)
    step = np.cumsum(rng.uniform(1e5, 2e6, 12))
    times = (np.arange(16)[:, None] * 3e7 + step).reshape(-1)
    first, second = (times + rng.exponential(scatter_ns, len(times)) for _ in range(2))
    first, second = first[: -12 * lost or None], second[12 * lost :] - lost * 3e7  # stamps are whole steps off
    line = (relate_partly if partly else relate)(ends(first), ends(second), rate=False)
    assert line.offset_ns == pytest.approx(0.0, abs=2 * scatter_ns)
    assert 0.0 < line.certainty <= 0.5


@pytest.mark.parametrize(("longer", "least", "most"), [(slice(8, 9), 0.5, 0.7), (slice(2, 16, 2), 0.9, 1.0)])
def test_steps_that_are_longer_than_others_make_an_offset_sure(longer, least, most):
    rng = np.random.default_rng(5)
    step = np.cumsum(rng.uniform(1e5, 2e6, 12))
    begins = np.full(16, 3e7)
    begins[longer] += rng.uniform(2e5, 8e5, len(begins[longer]))
    times = (np.cumsum(begins)[:, None] + step).reshape(-1)
    line = relate(ends(times + rng.normal(0, 50, len(times))), ends(times[12:] + 5e9), rate=False)
    assert line.offset_ns == pytest.approx(-5e9, abs=100)
    assert least < line.certainty <= most


@pytest.mark.parametrize("wobbling", [slice(0, 12), slice(34, 46), slice(68, 80)])
def test_order_relates_ends_of_which_one_piece_fits_nowhere_else(wobbling):
    true = np.arange(80) * 1e6
    assert not _equal_order(ends(true), ends(true + 5e9))
    true[wobbling] += np.random.default_rng(1).uniform(-4e5, 4e5, 12)
    assert _equal_order(ends(true), ends(true + 5e9))
    assert not _equal_order(ends(true), ends(true[:-1] + 5e9))


def test_the_fewest_ends_that_order_can_relate():
    few = np.array([0.0, 1e6, 5e6, 6e6, 13e6, 29e6])
    assert _equal_order(ends(few), ends(few + 5e9))
    assert not _equal_order(ends(few[:5]), ends(few[:5] + 5e9))


def test_ends_without_a_common_key_relate_nothing():
    assert relate(ends(np.arange(9) * 1e6), ends(np.arange(9) * 1e6, key=[1] * 9)) is None
    assert relate(ends([1.0, 2.0]), ends([1.0, 2.0])) is None


def test_relations_are_turned_and_joined_as_applying_them_in_turn_gives():
    inner, outer = ClockLine(5e8, 3e-5, 1e12, 300.0, 9, 0.9), ClockLine(-2e8, -1e-5, 2e12, 400.0, 7, 0.8)
    times = np.array([1e12, 1.5e12, 3e12])
    assert inner.then(outer).apply(times) == pytest.approx(outer.apply(inner.apply(times)), abs=0.01, rel=0)
    assert inner.then(outer).scale_ns == pytest.approx(500.0)
    assert inner.reversed().apply(inner.apply(times)) == pytest.approx(times, abs=0.5, rel=0)
