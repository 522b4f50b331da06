"""The course of one rank's clock against another's, from the ends of their operations alone."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.pairwise_clock_fit import NumberedEnds, ends_of, relate, relate_numbered

STEP_NS = 2_000_000


def ends(jitter_ns, seed=3, count=400):
    """Steps of equal length but for a jitter: shifted by a whole step, as many ends coincide to within that jitter."""
    generator = np.random.default_rng(seed)
    return 1e12 + STEP_NS * np.arange(count) + generator.integers(0, jitter_ns + 1, count)


@pytest.mark.parametrize("jitter_ns", [0, 9_000])
@pytest.mark.parametrize("offset_ns", [0, 150_000, -400_000])
def test_steps_of_one_length_are_not_taken_for_their_neighbours(jitter_ns, offset_ns):
    times = ends(jitter_ns)
    first, second = (ends_of(t, np.zeros(len(t), np.int64)) for t in (times, times - offset_ns))
    course = relate(first, second, 1.5e9)
    assert course.offset_ns == pytest.approx(offset_ns, abs=200)
    assert course.count == len(times)


def test_a_jitter_tells_a_shift_by_whole_steps():
    times = ends(9_000)
    first, second = (ends_of(t, np.zeros(len(t), np.int64)) for t in (times[40:], times - 30 * STEP_NS))
    course = relate(first, second, 1.5e9)
    assert course.offset_ns == pytest.approx(30 * STEP_NS, abs=200)


def test_a_late_start_leaves_the_offset():
    times = ends(9_000)
    first, second = (ends_of(t, np.zeros(len(t), np.int64)) for t in (times, times[100:] - 5_000))
    course = relate(first, second, 1.5e9)
    assert course.offset_ns == pytest.approx(5_000, abs=200)
    assert course.count == len(times) - 100


def nearly_alike(seed=5, steps=202, layers=10):
    """Steps of ten operations of one kind, whose lengths differ by microseconds: shifts by any number of operations look alike."""
    generator = np.random.default_rng(seed)
    inside = 790_000 + generator.integers(0, 3_000, (steps, layers))
    inside[:, -1] += 2_070_000 + generator.integers(-7_000, 7_000, steps)
    return 1e12 + np.cumsum(inside.reshape(-1)).astype(np.float64)


@pytest.mark.parametrize("offset_ns", [0, 5_000_000, 414_000_000, -1_200_000_000])
def test_an_offset_of_many_steps_is_not_lost_among_shifts_that_look_alike(offset_ns):
    times = nearly_alike()
    late = np.random.default_rng(6).integers(0, 600, len(times))
    first, second = (
        ends_of(t, np.zeros(len(t), np.int64)) for t in (times, (times - 1e12) * (1 + 19e-6) + 1e12 - offset_ns + late)
    )
    course = relate(first, second, 1.5e9)
    assert course.count == len(times)
    assert course.slope == pytest.approx(-19e-6, abs=1e-7)
    assert course.apply(second.time) == pytest.approx(times, abs=2_000)


def test_ends_days_apart_are_related_without_a_window():
    times = ends(9_000)
    first, second = (ends_of(t, np.zeros(len(t), np.int64)) for t in (times, times[30:] + 1.5e14))
    # a course that goes on for hours of which nothing is recorded makes most bins empty
    times = np.concatenate((times, times[-1] + 7e13 + np.arange(1, 30) * STEP_NS))
    longer = ends_of(times, np.zeros(len(times), np.int64))
    for one in (first, longer):
        assert relate(one, second, None).offset_ns == pytest.approx(-1.5e14, abs=200)


@pytest.mark.parametrize("right", [0.8, 0.4])
def test_ends_of_equal_number_show_the_line_if_most_are_on_it(right):
    rng = np.random.default_rng(1)
    number = np.sort(rng.choice(10_000, 200, replace=False))
    time = np.cumsum(rng.uniform(5e6, 15e6, 200))
    wrong = rng.random(200) >= right
    other = (time - 3e6) * (1 - 20e-6) + rng.normal(0, 200, 200) + np.where(wrong, rng.uniform(2e6, 9e6, 200), 0.0)
    line = relate_numbered(NumberedEnds(number[::2], time[::2]), NumberedEnds(number[10:], other[10:]))
    assert (line.scale_ns < 1_000) == (right > 0.5)
    if right > 0.5:
        assert line.apply(other[~wrong]) == pytest.approx(time[~wrong], abs=2_000)
        assert line.share == pytest.approx(1 - wrong[10::2].mean(), abs=0.02)


def test_two_equal_numbers_are_no_line():
    one = NumberedEnds(np.array([1, 2]), np.array([1e6, 2e6]))
    assert relate_numbered(one, one) is None
