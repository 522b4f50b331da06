"""All ranks on one clock by relations of pairs, and what stamps say before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.align.collectives import quality
from tests.align.grids import Grid, execute
from tests.align.tables import match_tables, timelines_of

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import Solution
from alltrace.align.pair_clocks import Ends, relate_partly
from alltrace.align.related_clocks import Placing, fitted_clocks, placing_of, related_clocks
from alltrace.run.manifest import Clock


def clocks_of(executed, placing):
    timelines = timelines_of(executed.made.tables, executed.made.texts)
    return related_clocks(timelines, placing)


def farthest_apart_ns(executed):
    """How far the clocks of all ranks, which are of one component, are apart at worst."""
    clocks = clocks_of(executed, placing_of(executed.placed))
    assert len({c.component for c in clocks.values()}) == 1
    times = np.array([0.0, executed.span_ns])
    common = np.array([
        clocks[r].common(times * (1 + executed.drift[r]) + executed.offset_ns[r] - executed.made.shifts_ns[r])
        for r in clocks
    ])  # fmt: skip
    return np.ptp(common, axis=0).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_ranks_of_all_hosts_are_on_one_clock_within_their_scatter(named):
    executed = execute(Grid(tensor=2, data=4, hosts=4, offset_s=60.0, late_ns=20e3, causal=True, seed=2))
    assert farthest_apart_ns(executed if named else executed.anonymous()) < 100e3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("late_ns", [5e3, 20e3])
def test_stages_of_a_pipeline_are_not_a_microbatch_apart(late_ns, seed):
    # microbatches are 2 ms apart, nearly alike, and stamps are off by hundreds
    grid = Grid(
        tensor=1,
        data=2,
        stages=4,
        micro=8,
        layers=1,
        steps=8,
        streams="links",
        world=False,
        late_ns=late_ns,
        causal=True,
    )
    assert farthest_apart_ns(execute(replace(grid, seed=seed)).anonymous()) < 100e3


def test_what_nothing_relates_stays_apart():
    executed = execute(Grid(tensor=2, data=2, hosts=2, world=False, offset_s=0.0))
    tables = {r: t for r, t in executed.made.tables.items() if r in (0, 1)}
    alone = {2: executed.made.tables[3].slice(0, 0)}
    timelines = timelines_of({**tables, **alone}, executed.made.texts)
    assert set(related_clocks(timelines)) == {0, 1}


@pytest.mark.slow
def test_hours_apart_is_another_recording():
    executed = execute(Grid(data=4, hosts=2, offset_s=0.0, stamp_ms=0.0))
    shifts = {r: s + (3_600 * 10**9 if r > 1 else 0) for r, s in executed.made.shifts_ns.items()}
    clocks = clocks_of(executed, Placing(shifts))
    assert clocks[0].component == clocks[1].component != clocks[2].component == clocks[3].component


def test_reports_that_state_their_hosts_clock_share_it():
    ranks = [PlacedRank(0, "a", 0, 100, 40), PlacedRank(1, "a", 1, 160, 98), PlacedRank(2, "b", 2, 5)]
    placing = placing_of(ranks)
    assert placing.units == {0: ("host", "a"), 1: ("host", "a"), 2: ("report", 2)}
    assert placing.shifts_ns == {0: 40 + 62, 1: 98 + 62, 2: 5}
    assert placing.same_rate(0, 1)
    assert not placing.same_rate(0, 2)


def test_fitted_clocks_are_those_of_the_solution():
    executed = execute(Grid(tensor=2, data=2, hosts=2, offset_s=0.0, stamp_ms=0.0)).anonymous()
    timelines = timelines_of(executed.made.tables, executed.made.texts)
    ranks = [PlacedRank(r, "ab"[r // 2], r, 1_000 * r) for r in range(4)]
    ahead = {0: 0, 1: 40, 2: 7_000_000, 3: 7_000_000}
    hosts = (Clock("a", 0, 0.0, 1, 9, 0, 0), Clock("b", 7_000_000, 25.0, 1, 9, 0, 300))
    solution = Solution(hosts, {}, ahead, dict.fromkeys(range(4), 0), {0: 0, 1: 0, 2: 300, 3: None})
    before = related_clocks(timelines)
    clocks = fitted_clocks(timelines, before, solution, ranks)
    second = 1_000_000_000

    def common(rank, true_ns):
        """The common time of a true time, which a clock that is ahead by its offset and rate has stamped."""
        rate = 25e-6 if rank > 1 else 0.0
        return clocks[rank].common(true_ns / (1 - rate) + ahead[rank] - 1_000 * rank)

    for true_ns in (0.0, second, 60.0 * second):
        assert [common(r, true_ns) - common(0, true_ns) for r in (1, 2, 3)] == pytest.approx([0.0] * 3, abs=1.0)
    assert [clocks[r].scale_ns for r in range(4)] == [0.0, 0.0, 300.0, before[3].scale_ns]
    assert [clocks[r].certainty for r in range(4)] == [1.0, 1.0, 1.0, before[3].certainty]


def test_operations_without_names_are_matched_again_by_fitted_clocks_until_nothing_changes():
    grid = Grid(tensor=2, data=4, hosts=4, late_ns=20e3, causal=True, stamp_ms=0.0, seed=2)
    executed = execute(grid).anonymous()
    found = match_tables(executed.made.tables, executed.made.texts, placing=placing_of(executed.placed))
    assert quality(found, executed.made) == (1.0, 1.0)
    solution = found.matching.solution
    assert solution is not None
    assert {m: c.component for m, c in found.clocks.items()} == solution.components
    scales = {m: c.scale_ns for m, c in found.clocks.items()}
    assert scales == {m: float(error) for m, error in solution.errors_ns.items()}


def test_stages_are_related_by_the_half_of_their_ends_that_they_share():
    rng = np.random.default_rng(3)
    shared = np.cumsum(rng.uniform(5e6, 9e6, 60))
    own, others = (
        np.sort(np.concatenate((shared + rng.normal(0, 2_000.0, 60), rng.uniform(0, 4e8, 60)))) for _ in range(2)
    )
    none, key = np.full(120, -1), np.zeros(120, np.int64)
    line = relate_partly(Ends(own, key, none), Ends(others - 1.7e9, key, none), rate=False)
    assert line is not None
    assert line.offset_ns == pytest.approx(1.7e9, abs=2_000.0)
