"""Which ranks meet, by order, overlap and transfers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.collectives import Made, table_of
from tests.align.grids import Grid, execute
from tests.align.tables import timelines_of

from alltrace.align.communicators_by_order import _classes, _in_pairs, _judged, _Verdict, communicators_by_order
from alltrace.align.related_clocks import RankClock, placing_of, related_clocks
from alltrace.align.timelines import NamedTimelines


def inferred(grid):
    executed = execute(grid).anonymous()
    placing = placing_of(executed.placed)
    timelines = timelines_of(executed.made.tables, executed.made.texts)
    first = communicators_by_order(timelines, related_clocks(timelines, placing))
    clocks = related_clocks(NamedTimelines(timelines, first.of, len(first.scores)), placing)
    return timelines, communicators_by_order(timelines, clocks)


def test_places_of_a_period_on_one_stream_are_of_their_own_communicators():
    timelines, found = inferred(
        Grid(tensor=2, data=4, streams="one", stamp_ms=0.0, hosts=1, late_ns=300.0, causal=True)
    )
    one = found.of(0).reshape(10, -1)
    assert (one == one[0]).all()  # each step is like the first
    assert len(set(one[0].tolist())) == 3  # tensor, data and all
    assert (found.of(1) == found.of(0))[:16].all()
    assert len(found.scores) == len({n for r in timelines.extents for n in found.of(r).tolist()}) == 7
    assert all(0.0 <= s <= 1.0 for s in found.scores)


def test_a_rank_alone_has_no_communicator():
    _, found = inferred(Grid(tensor=2, data=1, hosts=1, world=False))
    assert set(found.of(0).tolist()) == {0}
    assert np.array_equal(found.of(0), found.of(1))


@pytest.mark.parametrize(
    ("groups", "known", "one_by_one"),
    [
        ([[(0, 1), (0, 1), (2, 3), (2, 3)]], [], False),  # two stages, twice
        ([[(0, 1), (0, 1), (2, 3), (2, 3)]], [{(0, 1), (2, 3)}], True),  # members of a smaller group run in step
        ([[(0, 1), (0, 1), (2, 3), (2, 3)]], [{(0, 1, 2, 3)}], False),  # all are in the group of all
        ([[(0, 1), (0, 1), (), ()]], [], True),  # some meet nobody
        (
            [[(0, 1), (0, 1), (2, 3), (2, 3)], [(0, 2), (1, 3), (0, 2), (1, 3)]],
            [],
            True,
        ),  # now with one, now with another
        ([[(0, 1, 2, 3)] * 4], [], False),  # experts
    ],
)
def test_messages_are_paired_one_by_one_where_members_only_seem_to_meet(groups, known, one_by_one):
    verdict = _Verdict(np.arange(len(groups)), groups, [0.9] * len(groups))
    assert _in_pairs(verdict, [frozenset(its) for its in known], 4) is one_by_one


def test_streams_that_do_the_same_at_other_times_are_of_one_class():
    """Two pairs of which the second is always half a step behind, so that their operations never run at once."""
    rng = np.random.default_rng(3)
    begin = np.cumsum(rng.uniform(8e6, 12e6, 40)).astype(np.int64)
    tables = {}
    for rank in range(4):
        waits = rng.integers(0, 400_000, 40)
        start = begin + 4_000_000 * (rank // 2) - waits
        end = begin + 4_000_000 * (rank // 2) + 600_000 + rng.integers(0, 3_000, 40)
        tables[rank] = table_of(
            start=start,
            end=end,
            device=[0] * 40,
            stream=[7 + rank] * 40,
            op=["AllReduce"] * 40,
            evidence=["kernel"] * 40,
        )
    timelines = timelines_of(tables, Made({}, {}, {}).texts)
    clocks = {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents}
    alike = list(_classes(timelines, clocks))
    assert [[lane.rank for lane in its.lanes] for its in alike] == [[0, 1, 2, 3]]
    found = communicators_by_order(timelines, clocks)
    assert [set(found.of(rank).tolist()) for rank in range(4)] == [{0}, {0}, {1}, {1}]


@pytest.mark.parametrize(("apart_ns", "clear"), [(5_000, False), (3_000_000, True)])
def test_a_stream_that_could_be_anothers_leaves_both_of_their_classes_in_doubt(apart_ns, clear):
    """Two ranks send on one stream and receive on another, at nearly the same time or not."""
    begin = np.cumsum(np.random.default_rng(4).uniform(8e6, 12e6, 40)).astype(np.int64)
    tables = {}
    for rank in range(2):
        end = np.concatenate((begin, begin + apart_ns)) + 600_000 + 1_000 * rank
        tables[rank] = table_of(
            start=end - 500_000,
            end=end,
            device=[0] * 80,
            stream=[7 + rank] * 40 + [20 + rank] * 40,
            op=["SendRecv"] * 80,
            evidence=["exchange"] * 80,
        )
    timelines = timelines_of(tables, Made({}, {}, {}).texts)
    clocks = {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents}
    assert [its.clear for its in _classes(timelines, clocks)] == [clear, clear]


@pytest.mark.parametrize(("late_ns", "groups"), [(20_000_000, 1), (100_000, 2)])
def test_half_of_the_ranks_do_not_transfer_for_as_long_as_one_of_the_others_is_late(late_ns, groups):
    """Of four ranks that meet the first one is always late by as much, so the others would be as alike in groups of
    their own."""
    rng = np.random.default_rng(3)
    met = 50_000_000 * np.arange(1, 13)
    known = [(0, 2), (1, 3)]
    tables = {}
    for rank in range(4):
        start = met - (0 if rank == 0 else late_ns) - rng.integers(0, 2_000, 12)
        end = met + 40_000 + rng.integers(0, 9_000, 12)
        tables[rank] = table_of(
            start=start, end=end, device=[0] * 12, stream=[7] * 12, op=["AllReduce"] * 12, evidence=["kernel"] * 12
        )
    timelines = timelines_of(tables, Made({}, {}, {}).texts)
    clocks = {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents}
    (alike,) = _classes(timelines, clocks)
    verdict = _judged(alike, {frozenset(known): {99}}, set())
    assert verdict is not None
    assert {len(set(of_place)) for of_place in verdict.groups} == {groups}


@pytest.mark.parametrize(("op", "evidence", "sure"), [("AllReduce", "kernel", True), ("SendRecv", "exchange", False)])
def test_ranks_in_step_that_may_exchange_messages_in_pairs_are_in_no_larger_group(op, evidence, sure):
    """Four ranks do the same at the same time, so that times fit the four as well as two pairs."""
    rng = np.random.default_rng(5)
    met = 10_000_000 * np.arange(1, 41)
    tables = {}
    for rank in range(4):
        start, end = met - rng.integers(0, 2_000, 40), met + 400_000 + rng.integers(0, 2_000, 40)
        tables[rank] = table_of(
            start=start, end=end, device=[0] * 40, stream=[7] * 40, op=[op] * 40, evidence=[evidence] * 40
        )
    timelines = timelines_of(tables, Made({}, {}, {}).texts)
    clocks = {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents}
    (alike,) = _classes(timelines, clocks)
    verdict = _judged(alike, {frozenset({(0, 1, 2, 3)}): {99}}, set())
    assert (verdict is not None and verdict.groups == [[(0, 1, 2, 3)] * 4]) is sure
    assert sure or verdict is None


def test_ranks_of_a_grid_of_which_one_has_no_report_meet_where_times_fit_all():
    """Of four ranks that meet the third is missing; the fourth and the first are as alike as any two."""
    rng = np.random.default_rng(2)
    met = 10_000_000 * np.arange(1, 41)
    tables = {}
    for rank in (0, 1, 3):
        start, end = met - rng.integers(0, 2_000, 40), met + 400_000 + rng.integers(0, 2_000, 40)
        tables[rank] = table_of(
            start=start, end=end, device=[0] * 40, stream=[7] * 40, op=["AllReduce"] * 40, evidence=["kernel"] * 40
        )
    timelines = timelines_of(tables, Made({}, {}, {}).texts)
    clocks = {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents}
    (alike,) = _classes(timelines, clocks)
    verdict = _judged(alike, {}, set())
    assert verdict is not None
    assert verdict.groups == [[(0, 1, 3)] * 3]


def test_clocks_that_are_off_do_not_hide_the_operations_over_hosts_on_a_stream():
    """Four ranks of each of two hosts, and each with that of the other host in few places of a step; the clocks of the
    hosts are off by more than ends scatter."""
    rng = np.random.default_rng(4)
    tables, now = {r: [] for r in range(8)}, np.zeros(8)
    for n in range(180):
        over_hosts = n % 20 in (10, 16)
        label = np.arange(8) % 4 if over_hosts else np.arange(8) // 4
        begun = now + 6e5 * rng.lognormal(0.0, 0.15, 8)
        last = np.array([begun[label == g].max() for g in label])
        now = last + (3e6 if over_hosts else 2e5) + rng.normal(0.0, 20_000.0, 8)
        for r in range(8):
            tables[r].append((begun[r] + 100_000 * (r // 4), now[r] + 100_000 * (r // 4)))
    columns = {"device": [0] * 180, "stream": [7] * 180, "op": ["AllReduce"] * 180, "evidence": ["kernel"] * 180}
    timelines = timelines_of(
        {
            r: table_of(start=[int(s) for s, _ in its], end=[int(e) for _, e in its], **columns)
            for r, its in tables.items()
        },
        Made({}, {}, {}).texts,
    )
    clocks = {m: RankClock(0.0, 0.0, 120_000.0, 1.0, 0) for m in timelines.extents}
    found = communicators_by_order(timelines, clocks)
    one = found.of(0).reshape(9, 20)
    assert (one == one[0]).all()
    assert [n for n in range(20) if one[0, n] != one[0, 0]] == [10, 16]
    assert (found.of(4).reshape(9, 20)[0] == one[0]).tolist() == [n in (10, 16) for n in range(20)]


def test_a_capture_that_begins_late_is_placed_by_the_stream_that_it_meets():
    """Two pairs whose steps begin together while they do its operations at their own pace; one rank lacks the first."""
    rng = np.random.default_rng(5)
    begin, tables = 0.0, {r: [] for r in range(4)}
    for _ in range(7):
        ends = begin + np.cumsum(rng.lognormal(0.0, 0.1, (20, 2)) * (1.0, 3.0) * 1e6, axis=0)
        for rank in range(4):
            tables[rank] += [int(t) for t in ends[:, rank // 2] + rng.normal(0.0, 2_000.0, 20)]
        begin = ends.max() + 5e6
    tables[3] = tables[3][30:]
    timelines = timelines_of(
        {
            rank: table_of(
                start=[t - 100_000 for t in ends],
                end=ends,
                device=[0] * len(ends),
                stream=[7] * len(ends),
                op=["AllReduce"] * len(ends),
                evidence=["kernel"] * len(ends),
            )
            for rank, ends in tables.items()
        },
        Made({}, {}, {}).texts,
    )
    (alike,) = _classes(timelines, {m: RankClock(0.0, 0.0, 1_000.0, 1.0, 0) for m in timelines.extents})
    assert [place.tolist() for place in alike.places] == [list(range(140))] * 3 + [list(range(30, 140))]
