"""All ranks on one clock by relations of pairs, and what stamps say before."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.grids import Grid, execute
from tests.align.tables import timelines_of

from alltrace.align.placed_ranks import PlacedRank
from alltrace.align.related_clocks import Placing, placing_of, related_clocks


def clocks_of(executed, placing):
    timelines = timelines_of(executed.made.tables, executed.made.texts)
    return related_clocks(timelines, placing)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_ranks_of_all_hosts_are_on_one_clock_within_their_scatter(named):
    executed = execute(Grid(tensor=2, data=4, hosts=4, offset_s=60.0, late_ns=20e3, causal=True, seed=2))
    executed = executed if named else executed.anonymous()
    clocks = clocks_of(executed, placing_of(executed.placed))
    assert len({c.component for c in clocks.values()}) == 1
    times = np.array([0.0, executed.span_ns])
    common = np.array([
        clocks[r].common(times * (1 + executed.drift[r]) + executed.offset_ns[r] - executed.made.shifts_ns[r]) for r in clocks
    ])  # fmt: skip
    assert np.ptp(common, axis=0).max() < 100e3


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
