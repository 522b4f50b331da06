"""When ranks are slower than others: values made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.recipes.analysis.lateness import ALWAYS, SINCE, SOMETIMES, slower_steps

MS = 1_000_000


def times(slow, *, ranks=6, steps=14, factor=1.3, seed=1):
    """Times of 10 ms that vary by 0.5 %; `slow(rank, step)` says which are `factor` as long."""
    draw = np.random.default_rng(seed)
    usual = 10 * MS * (1 + 0.005 * draw.standard_normal((ranks, steps)))
    return usual * np.array([[factor if slow(r, s) else 1.0 for s in range(steps)] for r in range(ranks)])


@pytest.mark.parametrize(
    ("slow", "when", "steps"),
    [
        (lambda r, s: r == 2, ALWAYS, range(14)),
        (lambda r, s: r == 2 and s >= 9, SINCE, range(9, 14)),
        (lambda r, s: r == 2 and s in (3, 4, 11), SOMETIMES, (3, 4, 11)),
        (lambda r, s: r == 2 and s == 5, SOMETIMES, (5,)),
    ],
)
def test_a_rank_and_its_steps(slow, when, steps):
    own_ns = times(slow)
    (row,) = slower_steps(own_ns)
    slower = slower_steps(own_ns)[row]
    assert (row, slower.when, np.flatnonzero(slower.steps).tolist()) == (2, when, list(steps))
    assert slower.slowdown == pytest.approx(1.3, rel=0.03)
    assert slower.excess_ns == pytest.approx(3 * MS * len(steps), rel=0.07)


def test_ranks_alike_are_not_slower_and_several_can_be():
    assert slower_steps(times(lambda *_: False)) == {}
    assert slower_steps(np.full((1, 9), np.nan)) == {}
    lacking = times(lambda r, s: r == 4 or (r == 1 and s >= 8))
    lacking[4, :2] = np.nan
    slower = slower_steps(lacking)
    assert {row: found.when for row, found in slower.items()} == {1: SINCE, 4: ALWAYS}
    assert slower[4].steps.tolist() == [False] * 2 + [True] * 12, "the steps that all have"
