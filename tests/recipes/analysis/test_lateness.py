from __future__ import annotations

import numpy as np
import pytest

import alltrace
from alltrace.recipes.analysis.lateness import (
    ALWAYS,
    SINCE,
    SOMETIMES,
    causes,
    causing_together,
    over_steps,
    slow_together,
    slower_steps,
)
from alltrace.synth import write_run


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


# How lateness behaves: planted in simulated runs, and by hand.


SMALL = {"ranks": 8, "hosts": 2, "steps": 8, "layers": 6, "kernels_per_layer": 6, "warmup_steps": 0}
IN_TURN = [f"slow-rank:ranks={1 + 4 * (step % 2)}:factor=1.4:steps={step}" for step in range(14)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("layout", "faults", "values", "culprits", "pattern"),
    [
        ("healthy", ["slow-host:hosts=1:factor=1.3"], {}, {4, 5, 6, 7}, "node"),
        ("pipeline", ["slow-rank:ranks=2,3:factor=1.4"], {}, {2, 3}, "stage"),
        ("healthy", ["slow-rank:ranks=3:factor=1.5:steps=4-5"], {"steps": 12}, {3}, "transient"),
        ("healthy", IN_TURN, {"steps": 14}, {1, 5}, "rotating"),
        ("tensor-data", ["slow-rank:ranks=3:factor=1.3"], {}, {3}, "recurring"),
    ],
)
def test_the_pattern_is_that_planted(tmp_path, layout, faults, values, culprits, pattern):
    write_run(layout, tmp_path / "reports", **{**SMALL, **values, "faults": tuple(faults)}, ideal=True)
    rows = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache").recipe("stragglers").to_pylist()
    late = [r for r in rows if r["caused_ns"]]
    assert late[0]["rank"] in culprits
    assert {r["pattern"] for r in late if r["rank"] in culprits} == {pattern}
    if pattern in ("node", "stage", "recurring"):
        assert pattern not in {r["pattern"] for r in late if r["rank"] not in culprits}


def test_half_in_three_steps_is_transient_and_most_steps_are_recurring():
    steps = np.arange(10)
    found = over_steps(np.array([0, 1, 2]), np.array([0] * 7 + [1] * 3), steps, np.array([9] * 7 + [5, 5, 5]))
    assert found == {0: "recurring", 1: "transient"}
    assert over_steps(np.array([0]), np.array([0]), np.array([-1]), np.array([7])) == {}


def test_a_group_is_slow_only_where_each_of_it_is_and_nobody_else():
    hosts = [[0, 1], [2, 3]]
    assert slow_together(hosts, {0: 0.01, 1: 0.0, 2: 0.2, 3: 0.15}) == {2, 3}
    assert slow_together(hosts, {0: 0.01, 1: 0.0, 2: 0.2, 3: 0.05}) == set()
    assert slow_together(hosts, {0: 0.1, 1: 0.0, 2: 0.2, 3: 0.15}) == set()
    assert slow_together(hosts, {0: 0.0, 1: 0.0, 2: 0.02, 3: 0.02}) == set()


def test_a_group_causes_waits_together_only_where_each_has_its_part():
    hosts = [[0, 1], [2, 3]]
    assert causing_together(hosts, {0: 5, 1: 5, 2: 60, 3: 30}) == {2, 3}
    assert causing_together(hosts, {0: 5, 1: 5, 2: 85, 3: 5}) == set()
    assert causing_together(hosts, {0: 0, 1: 0, 2: 0, 3: 0}) == set()


# When ranks are slower than others: values made by hand.


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
