"""Steps of clocks in the middle of a run."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.clock_fit import Clocks, ends_of
from alltrace.align.clock_jumps import find_jump, step_of

MS = 1e6


@pytest.mark.parametrize("at", [40, 100, 163])
@pytest.mark.parametrize("step", [700.0, -700.0])
def test_values_step_where_they_change_however_high_they_are(at, step):
    times = np.arange(200) * MS
    values = 9_000.0 + np.random.default_rng(at).normal(0, 20.0, 200)
    values[at:] += step
    found = step_of(times, values)
    assert found is not None
    assert (found[0], found[2]) == (times[at], at < 100)
    assert found[1] == pytest.approx(step, rel=0.05)
    assert found[3] == pytest.approx(20.0, rel=0.3)


def test_values_that_grow_steadily_or_are_few_do_not_step():
    times = np.arange(200) * MS
    noise = np.random.default_rng(2).normal(0, 20.0, 200)
    assert step_of(times, 5.0 * np.arange(200) + noise) is None
    assert step_of(times, noise) is None
    assert step_of(times[:31], noise[:31] + 1_000.0 * (np.arange(31) > 15)) is None


def test_a_clock_steps_whatever_its_ranks_are_late_by():
    # five ranks on two clocks; the second clock steps by 40 us after 120 of 200 operations, and each rank is late by
    # its own time
    late, clock = np.array([0.0, 9e3, -30e3, 60e3, -90e3]), np.array([0, 0, 0, 1, 1])
    instance, rank = (a.reshape(-1) for a in np.meshgrid(np.arange(200), np.arange(5), indexing="ij"))
    end = (
        MS * instance
        + late[rank]
        + 40e3 * clock[rank] * (instance >= 120)
        + np.random.default_rng(1).normal(0, 500.0, 1000)
    )
    ends = ends_of(instance, np.zeros(1000, np.int64), rank, end - 1e5, end)
    clocks = Clocks(np.zeros(5), np.zeros(5), 0.0)
    jump = find_jump(ends, clocks, clock, [])
    assert jump is not None
    assert (jump.clock, jump.keep_after) == (1, False)
    assert jump.step_ns == pytest.approx(40e3, rel=0.1)
    assert jump.at_ns == pytest.approx(120 * MS, abs=MS / 2)
    assert find_jump(ends, clocks, clock, [0, 1]) is None
    assert find_jump(ends, clocks, 0 * clock, []) is None  # within one clock nothing steps
