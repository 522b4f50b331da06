"""Matching by order, where the ends of an instance scatter as far as on real machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.align.collectives import quality, simulated
from tests.align.grids import Grid, execute
from tests.align.tables import match_tables

from alltrace.align.related_clocks import Placing, placing_of
from alltrace.align.store import aligned
from alltrace.api import open_run

NAMED = {
    "data": Grid(data=8, causal=True),
    "tensor and data on one stream": Grid(tensor=2, data=4, streams="one", causal=True),
    "tensor, data and stages": Grid(tensor=2, data=2, stages=2, micro=4, noise=0.05, causal=True),
}
NAMELESS = {
    "wide tensor and data on one stream": Grid(tensor=4, data=4, hosts=4, streams="one", causal=True),
    "data and stages on one stream": Grid(tensor=1, data=4, stages=2, micro=4, causal=True),
}


def of_grid(grid, *, named):
    executed = execute(grid)
    executed = executed if named else executed.anonymous()
    return executed, match_tables(executed.made.tables, executed.made.texts, placing=placing_of(executed.placed))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("late_ns", [20e3, 200e3])
@pytest.mark.parametrize("grid", NAMED.values(), ids=NAMED)
def test_named_operations_are_matched_however_far_ends_scatter(grid, late_ns):
    executed, matching = of_grid(replace(grid, late_ns=late_ns, seed=5), named=True)
    assert quality(matching, executed.made) == (1.0, 1.0)
    assert executed.groups == {g.ranks for g in matching.groups}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grid", NAMELESS.values(), ids=NAMELESS)
def test_communicators_that_nothing_names_are_inferred_from_who_waits_for_whom(grid):
    executed, matching = of_grid(replace(grid, late_ns=20e3, seed=0), named=False)
    assert quality(matching, executed.made) == (1.0, 1.0)
    assert executed.groups == {g.ranks for g in matching.groups}
    assert matching.reason is None


def test_lost_operations_and_a_late_start_shift_no_other():
    made = simulated(2, ranks=8, tensor=4, steps=30).dropped(0.05, 102, {2: 0.4})
    assert quality(match_tables(made.tables, made.texts, placing=Placing(made.shifts_ns)), made) == (1.0, 1.0)


def test_nothing_is_matched_where_nothing_is():
    assert match_tables({}, lambda ids: ids).members.num_rows == 0


@pytest.mark.sampled(3)
@pytest.mark.corpus
@pytest.mark.parametrize(
    ("report", "pairs"), [("h100x2_nccl_sendrecv", 33), ("mfu_before_2gpu", 33), ("mfu_after_2gpu", 31)]
)
def test_two_devices_that_exchange_meet_in_their_order(corpus, tmp_path, report, pairs):
    run = open_run(corpus / "nsys" / f"{report}_nsys2026.2.sqlite", cache_dir=tmp_path)
    rows = run.recipe("collectives").to_arrow().to_pylist()
    assert sum(r["instances"] for r in rows) == pairs
    assert sum(r["incomplete"] for r in rows) == 0
    members = aligned(run).members.sort_by([("rank", "ascending"), ("arrival_ns", "ascending")])
    by_rank = members.column("instance").to_numpy().reshape(2, pairs)
    assert (by_rank[0] == by_rank[1]).all()  # the n-th of one device with the n-th of the other
    assert (members.column("arrival_ns").to_numpy() < members.column("last_end_ns").to_numpy()).all()
