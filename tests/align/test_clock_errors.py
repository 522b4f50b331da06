"""How far fitted clocks may be off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alltrace.align.clock_errors import Limits, bounds_between, errors_over_time, lateness, limits
from alltrace.align.clock_fit import Cells, Clocks, ends_of
from alltrace.align.clock_sharing import Units
from alltrace.align.clocks import solve
from benchmarks.accuracy_clocks import Job, simulate

JOB = Job(hosts=3, per_host=4, tensor=2, steps=12, layers=2, span_s=20.0, drift_ppm=0.0, stamp_ms=0.0)


def errors_by_scatter(jitter_ns):
    simulated = simulate(replace(JOB, jitter_ns=jitter_ns, seed=8))
    return np.array([c.error_ns for c in solve(simulated.evidence, simulated.ranks).clocks[1:]])


def test_the_error_grows_with_the_scatter():
    ratio = errors_by_scatter(20_000.0) / errors_by_scatter(2_000.0)
    assert (ratio > 5).all()
    assert (ratio < 20).all()


def lateness_of(always_ns, scatter_ns):
    """The standard deviations found of what members are always late, of ranks in rows and in columns of a square.

    Rows are hosts.
    """
    side = 8
    rank = np.arange(side * side)
    row, column = rank // side, rank % side
    block = np.concatenate((row, side + column))
    order = np.argsort(block, kind="stable")
    kind, ranks = np.repeat([0, 1], side * side)[order], np.concatenate((rank, rank))[order]
    rng = np.random.default_rng(5)
    scatter, always = np.array(scatter_ns)[kind] ** 2, np.array(always_ns)[kind]
    late, noise = rng.normal(0.0, always), scatter / 400
    none = np.zeros(len(late))
    cells = Cells(block[order], ranks, np.arange(len(late)), kind, late, none, none, scatter, noise, none + np.inf)
    found = lateness(cells, np.arange(len(late)), Units(row, row, np.zeros(side * side)), 1, np.zeros(side * side))
    return [float(np.sqrt(found.always[kind == k].mean())) for k in (0, 1)]


def test_members_late_far_beyond_their_scatter_say_nothing_of_others():
    rows, columns = lateness_of((300.0, 30.0), (3.0, 100.0))
    assert 10.0 < columns < 60.0
    assert rows > 150.0


def test_what_several_lengths_of_operations_show_of_a_member_is_one_observation():
    assert 0.8 < errors_by_lengths(8) / errors_by_lengths(1) < 1.2


@pytest.mark.parametrize("stamp_ms", [0.0, 2.0])
def test_a_hosts_offset_is_surer_than_those_of_its_ranks_if_these_have_their_own(stamp_ms):
    simulated = simulate(replace(JOB, stamp_ms=stamp_ms, seed=8))
    solution = solve(simulated.evidence, simulated.ranks)
    for host, clock in list(enumerate(solution.clocks))[1:]:
        of_ranks = [solution.errors_ns[p.rank] for p in simulated.ranks if p.rank // JOB.per_host == host]
        assert clock.error_ns < 0.95 * min(of_ranks) if stamp_ms else {clock.error_ns} == set(of_ranks)


def errors_by_lengths(lengths):
    """What is found of members that are late by 50 in operations of some lengths, which scatter by 100."""
    rng = np.random.default_rng(6)
    member = np.tile(np.arange(16), lengths)
    block = np.repeat(np.arange(lengths), 16)
    late, none = rng.normal(0.0, 50.0, 16)[member], np.zeros(len(member))
    cells = Cells(block, member, member, block, late, none, none, none + 1e4, none + 1.0, none + np.inf)
    found = lateness(
        cells, np.arange(len(member)), Units(np.arange(16) // 8, np.arange(16) // 8, np.zeros(16)), 1, np.zeros(16)
    )
    return float(np.sqrt(found.always.mean()))


def test_the_first_hosts_clock_has_no_error():
    simulated = simulate(replace(JOB, seed=8))
    assert solve(simulated.evidence, simulated.ranks).clocks[0].error_ns == 0


def test_intervals_hold_the_truth():
    held = []
    for seed in range(15):
        simulated = simulate(replace(JOB, seed=seed, outliers=0.0))
        solution = solve(simulated.evidence, simulated.ranks)
        held += [
            abs(c.offset_ns - simulated.offset_ns[4 * h]) <= c.error_ns for h, c in enumerate(solution.clocks) if h
        ]
    assert 0.85 <= np.mean(held) <= 1.0


def test_over_a_time_an_interval_holds_offset_and_rate_together():
    """A bound at one end or both: of a sum of independent normal errors, and of two sums that are independent as
    well."""
    alone, none, one_side, both_sides = errors_over_time(
        np.array([300.0, 300.0, 300.0, 300.0]), np.array([0.0, 0.0, 0.0, 400.0]), np.array([0.0, 0.0, 400.0, 400.0])
    )
    assert alone == none == pytest.approx(300.0)
    assert one_side == pytest.approx(500.0, rel=0.05)
    assert 1.02 * 500.0 < both_sides < 1.16 * 500.0
    equal = errors_over_time(np.array([300.0]), np.array([300.0]), np.array([300.0]))[0]
    assert equal == pytest.approx(300.0 * np.sqrt(2) * 2.24 / 1.96, rel=0.03)


NO_ERROR = Clocks(np.zeros(3), np.zeros(3), 0.0)


def limits_of(*instances, clocks=NO_ERROR, clock=(0, 1, 2), unused=()):
    """(one, other, by how much one may be ahead of other) of instances, each of rows of (rank, start, end)."""
    rows = [(n, 0, *row) for n, its in enumerate(instances) for row in its]
    ends = ends_of(*(np.array(c, float if n > 2 else np.int64) for n, c in enumerate(zip(*rows, strict=True))))
    used = ~np.isin(np.arange(len(ends.rank)), unused)
    found = limits(ends, used, clocks, np.array(clock))
    return sorted(zip(found.one.tolist(), found.other.tolist(), found.most_ns.tolist(), strict=True)), found


def test_a_clock_may_be_ahead_until_its_end_is_before_the_last_start():
    rows, found = limits_of([(0, 10, 100), (1, 40, 90), (2, 30, 95)])
    # rank 1 starts last and ends first
    assert rows == [(0, 1, 60), (1, 0, 80), (1, 2, 60), (2, 1, 55)]
    assert (found.broken, found.broken_ns) == (0, 0)


def test_the_tightest_instance_counts_and_those_with_outliers_do_not():
    loose, tight = [(0, 10, 100), (1, 40, 90)], [(0, 200, 230), (1, 205, 228)]
    assert limits_of(loose, tight)[0] == [(0, 1, 25), (1, 0, 28)]
    assert limits_of(loose, tight, unused=(2,))[0] == [(0, 1, 60), (1, 0, 80)]
    assert limits_of(loose, tight, clock=(0, 0, 2))[0] == []


def test_a_law_that_is_broken_is_counted_whether_it_is_used_or_not():
    late = [(0, 10, 30), (1, 50, 90)]
    rows, found = limits_of(late, [(0, 100, 190), (1, 140, 180)])
    assert (rows, found.broken, found.broken_ns) == ([(0, 1, -20), (1, 0, 80)], 1, 20)
    assert limits_of(late, unused=(0,))[1].broken == 1
    ahead = Clocks(np.array([0.0, 25.0, 0.0]), np.zeros(3), 0.0)
    assert limits_of(late, clocks=ahead)[1].broken == 0


def test_how_far_a_clock_can_be_from_an_origin_is_the_shortest_way_of_the_wider_direction():
    found = Limits(np.array([0, 1, 1, 2, 0]), np.array([1, 0, 2, 1, 2]), np.array([5.0, 7.0, 10.0, -3.0, 30.0]), 0)
    assert found.reach(np.array([True, False, False])).tolist() == [0.0, 7.0, 15.0]
    assert found.reach(np.array([False, False, True])).tolist() == [15.0, 10.0, 0.0]
    assert found.broken_ns == 3.0


def test_the_tightest_messages_but_those_that_may_be_matched_wrongly_bound_two_clocks():
    # of 100 messages each way, which take 7 to 106, the tightest is left out; the other clock is 20 ahead
    took = np.arange(100) + 7.0
    there, back = np.stack((np.zeros(100), took + 20.0), axis=1), np.stack((np.zeros(100), took - 20.0), axis=1)
    end = np.concatenate((there, back[:, ::-1])).ravel()
    instance, node = np.repeat(np.arange(200), 2), np.tile([3, 5], 200)
    direction = np.concatenate((np.tile([1, -1], 100), np.tile([-1, 1], 100))).astype(np.int8)
    assert bounds_between(instance, node, direction, end) == [(8.0, 3, 5, 20.0, 200)]
    assert bounds_between(instance[:200], node[:200], direction[:200], end[:200]) == []
