"""Ranks whose times are in doubt, from their ends."""

from __future__ import annotations

import numpy as np

from alltrace.align.run_matching import _most_off, _reason

OTHERS = np.arange(100) * 1e9


def test_a_clock_that_steps_or_runs_at_another_rate_is_in_doubt():
    stepped = np.where(np.arange(100) >= 40, 5e6, 0.0)
    apart, why = _reason(OTHERS, stepped)
    assert apart == 5e6
    assert why == "its clock steps by 5.0 ms against the others', 40.000 s after its first operation"
    assert _reason(OTHERS, stepped / 5.001) is None  # less than a millisecond
    apart, why = _reason(OTHERS, OTHERS * 0.25)
    assert why == "its clock runs 1.25 times as fast as the others'"
    assert apart == np.ptp([np.median(part) for part in np.array_split(OTHERS * 0.25, 8)])
    assert _reason(OTHERS, OTHERS * 0.0099) is None
    assert _reason(OTHERS, OTHERS * -0.5)[1] == "its clock runs 0.50 times as fast as the others'"
    assert _reason(OTHERS[::-1], OTHERS * 0.25) is None


def test_the_rank_that_is_off_in_most_of_its_communicators_is_named_if_it_is_alone():
    ends = np.stack([OTHERS, OTHERS, OTHERS + np.where(np.arange(100) >= 40, 5e6, 0.0)])
    who = np.array([3, 5, 9])
    assert _most_off([(who, ends)])[0] == 9
    assert _most_off([(who[:1], ends[:1])]) is None
    assert _most_off([(who[:2], ends[:2])]) is None
    assert _most_off([(who[1:], ends[1:])]) is None  # of two it is not known which
    # rank 9 is off in both of its communicators, rank 5 in one of two
    assert _most_off([(who[1:], ends[1:]), (who, ends)])[0] == 9
    two = np.stack([OTHERS, OTHERS, OTHERS, ends[2] * 1.0, OTHERS + np.where(np.arange(100) >= 70, 4e6, 0.0)])
    assert _most_off([(np.arange(5), two)]) is None
    two[4] = OTHERS + np.where(np.arange(100) >= 70, 2e6, 0.0)
    assert _most_off([(np.arange(5), two)])[0] == 3
