"""Waits for ranks that have no report, on simulated runs without the slow rank's report."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recipes.questions.diagnose.test_planted import diagnose

from alltrace.align.schema import Group
from alltrace.recipes.questions.diagnose.absent_ranks import (
    _absent,
    _alike_everywhere,
    _alone,
    _comes_back,
    _completed,
    _needed,
    _of_unknown_loss,
    awaited,
    bus_bytes,
)
from alltrace.recipes.questions.diagnose.lone_operations import LoneOperations

SLOW = "slow-rank:ranks=3:factor=1.3"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "share"),
    [
        ("tensor-data", 0.05),  # other communicators of as many ranks tell what the operations need
        ("sharded", 0.1),  # nothing tells it but the fastest operation of the only communicator
    ],
)
def test_the_wait_for_a_slow_rank_without_a_report_is_its_loss(tmp_path, layout, share):
    answer, truth = diagnose(tmp_path, layout, SLOW, "missing-rank:ranks=3")
    first = answer.to_pylist()[0]
    slow = next(f for f in truth.faults if f["kind"] == "slow-rank")
    assert (first["kind"], first["severity"], first["ranks"]) == ("missing-rank", "high", [3])
    assert first["lost_ns"] == pytest.approx(slow["lost_ns"], rel=share)
    assert "Waiting for rank 3, without a report" in first["advice"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["tensor-data", "pipeline"])
def test_a_missing_rank_that_is_as_fast_as_others_is_not_waited_for(tmp_path, layout):
    answer, _ = diagnose(tmp_path, layout, "missing-rank:ranks=3")
    assert "missing-rank" not in [row["kind"] for row in answer.to_pylist()]


@pytest.mark.slow
def test_a_slow_rank_with_a_report_is_no_missing_one(tmp_path):
    answer, _ = diagnose(tmp_path, "tensor-data", SLOW)
    assert "missing-rank" not in [row["kind"] for row in answer.to_pylist()]


@pytest.mark.parametrize(
    ("ranks", "size", "missing", "expected"),
    [
        ((0, 1, 2), 4, (3,), (3,)),
        ((1, 5, 13), 4, (3, 9, 10), (9,)),  # the distances are 4, so 9 is the one
        ((0, 2), 4, (4, 6, 7), (4, 6)),
        ((0,), 2, (3, 5), ()),  # either
        ((0, 4), 3, (), ()),
    ],
)
def test_members_without_a_report_are_named_where_they_can_be_known(ranks, size, missing, expected):
    assert _absent([SimpleNamespace(ranks=ranks, size=size)], missing) == expected


@pytest.mark.slow
def test_without_names_a_communicator_of_all_that_are_there_is_of_all_ranks(tmp_path):
    answer, truth = diagnose(tmp_path, "healthy", SLOW, "missing-rank:ranks=3", "no-nvtx")
    first = answer.to_pylist()[0]
    assert (first["kind"], first["ranks"]) == ("missing-rank", [3])
    # the fastest operation waits too, so that a part of the loss cannot be seen
    assert 0.5 * truth.faults[0]["lost_ns"] < first["lost_ns"] <= truth.faults[0]["lost_ns"]


@pytest.mark.slow
def test_a_rank_alone_with_a_missing_one_waits_for_it(tmp_path):
    """Communicators are pairs, so that nothing of rank 2's with rank 3 is matched."""
    answer, truth = diagnose(tmp_path, "tensor-data", SLOW, "missing-rank:ranks=3", tensor_parallel=2)
    first = answer.to_pylist()[0]
    slow = next(f for f in truth.faults if f["kind"] == "slow-rank")
    assert (first["kind"], first["ranks"]) == ("missing-rank", [3])
    assert first["lost_ns"] == pytest.approx(slow["lost_ns"], rel=0.1)


@pytest.mark.parametrize(
    ("rows", "needed"),
    [
        # the larger one takes less, so the smaller one waits
        ([("AllReduce", 100, 50), ("AllReduce", 200, 30)], [30, 30]),
        # the smaller one is faster for each byte
        ([("AllReduce", 100, 10), ("AllReduce", 200, 90)], [10, 20]),
        # eight ranks gather as much as one reduces in halves: 7 * 100 and 2 * 7 / 8 * 400
        ([("AllGather", 100, 10), ("AllReduce", 400, 90)], [10, 10]),
        ([("AllGather", 100, 10), ("AllReduce", 800, 90)], [10, 20]),
        # of messages between two nothing says that they use the same links
        ([("AllGather", 100, 10), ("SendRecv", 400, 90)], [10, 90]),
    ],
)
def test_what_an_operation_needs_is_told_by_others_of_its_communicator(rows, needed):
    op, size, took = zip(*rows, strict=True)
    members = SimpleNamespace(op=np.array(op, object), size=np.array(size), transfer=np.array(took))
    found, told = _needed(members, np.arange(len(rows)), np.arange(0), 8)
    assert (found.tolist(), told) == (needed, False)


def test_operations_move_what_nccl_tests_say():
    assert [bus_bytes(op, 80, 8) for op in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")] == [
        140,
        560,
        560,
        80,
    ]


MS = 1_000_000


@pytest.mark.parametrize(
    ("rows", "links", "needed"),
    [
        # 2 * 7 / 8 MB at 15 GB/s over hosts, at 100 GB/s over NVLink, and at 20 GB/s else; and a latency
        ([("AllReduce", MS, 9 * MS)], (True, ""), 58_000 + 116_667),
        ([("AllReduce", MS, 9 * MS)], (False, "NVIDIA H100 80GB HBM3"), 28_000 + 17_500),
        ([("AllReduce", MS, 9 * MS)], (False, "NVIDIA L40S"), 28_000 + 87_500),
        # three times as long is what a slow link makes of it
        ([("AllReduce", MS, 345_000)], (False, "NVIDIA L40S"), 345_000),
        # a message waits for its partner, and of an unknown size nothing is known
        ([("SendRecv", MS, 9 * MS)], (True, ""), 9 * MS),
        ([("AllReduce", 0, 9 * MS)], (True, ""), 9 * MS),
    ],
)
def test_what_takes_longer_than_any_link_needs_is_a_wait(rows, links, needed):
    op, size, took = zip(*rows, strict=True)
    members = SimpleNamespace(op=np.array(op, object), size=np.array(size), transfer=np.array(took))
    found, _ = _needed(members, np.arange(len(rows)), np.arange(0), 8, links)
    assert found.tolist() == [needed]


@pytest.mark.parametrize(
    ("ranks", "missing", "sizes"),
    [
        (((0, 2, 3), (4, 5, 6, 7)), (1,), [4, 4]),
        (((0, 4), (2, 6), (3, 7)), (1, 5), [2, 2, 2]),  # all are alike already
        (((0, 2, 3), (4, 5, 6, 7)), (8,), [3, 4]),
        (((0,), (2, 3)), (1,), [2, 2]),
    ],
)
def test_communicators_that_lack_ranks_are_as_large_as_others(ranks, missing, sizes):
    groups = [Group(n, str(n), its, len(its)) for n, its in enumerate(ranks)]
    assert [g.size for g in _completed(groups, missing)] == sizes
    assert [g.size for g in _completed([replace(g, messages=True) for g in groups], missing)] == [
        len(its) for its in ranks
    ]


def facts_of(took, rank_source, size=4096):
    """Three ranks of one communicator, whose operations take so long, and what tells their numbers."""
    count = len(took)
    ranks = np.tile(np.arange(3), count)
    transfer = np.repeat(np.array(took, np.int64), 3)
    members = SimpleNamespace(
        rank=ranks, communicator=np.zeros(3 * count, np.int64), op=np.full(3 * count, "AllReduce", object),
        size=np.full(3 * count, size), transfer=transfer, moved=transfer, step=np.zeros(3 * count, np.int64),
        start=np.repeat(np.arange(count), 3),
    )  # fmt: skip
    manifest = SimpleNamespace(missing_ranks=(), ranks=[SimpleNamespace(rank_source=rank_source)] * 3)
    alignment = SimpleNamespace(groups=(Group(0, "0", (0, 1, 2), 3),), run=SimpleNamespace(manifest=manifest))
    hosts, facts = dict.fromkeys(range(3), "n0"), {rank: SimpleNamespace(device="") for rank in range(3)}
    return SimpleNamespace(ranks=np.arange(3), alignment=alignment, hosts=hosts, facts=facts), members


@pytest.mark.parametrize(
    ("of_rank", "names", "waits"),
    [
        ({0: [9]}, {}, True),
        ({0: [0]}, {}, True),  # the reports name no communicator
        ({0: [9], 1: [9]}, {}, False),  # two that are there call it
        ({0: [8], 1: [9]}, {}, True),
        ({0: [9]}, {9: "whole"}, False),
        ({0: [9, 8]}, {9: "whole"}, True),
    ],
)
def test_operations_alone_wait_for_an_absent_rank_unless_all_of_their_communicator_are_there(of_rank, names, waits):
    def lone(communicators):
        each = [np.full(len(communicators), value) for value in (0, 5)]
        took = np.full(len(communicators), 8 * MS)
        return LoneOperations(
            each[0], each[1], np.array(communicators), each[0] + 4096, each[0] - 1, each[0] + 1, took, took
        )

    texts = {5: "AllReduce", 8: "other", 9: "another"} | names
    groups = (Group(0, "whole", (0, 1), 2), Group(1, "rest", (1, 2), 2))
    alignment = SimpleNamespace(groups=groups, run=SimpleNamespace(manifest=SimpleNamespace(missing_ranks=())))
    all_ranks = SimpleNamespace(
        ranks=np.arange(3), steps=np.array([0]), lone=[lone(of_rank[r]) if r in of_rank else None for r in range(3)],
        name=texts.__getitem__, alignment=alignment,
    )  # fmt: skip
    members = SimpleNamespace(
        communicator=np.zeros(4, np.int64), op=np.full(4, "AllReduce", object), size=np.full(4, 4096),
        start=np.zeros(4, np.int64), end=np.full(4, MS),
    )  # fmt: skip
    assert (_alone(all_ranks, members).max() > 0) == waits


@pytest.mark.parametrize(
    ("took", "rank_source", "size", "waits"),
    [
        ([9 * MS] * 4, "order", 4096, True),
        ([30_000, 30_000, 300_000, 300_000], "file name", 4096, True),
        ([9 * MS] * 4, "RANK", 4096, False),  # the reports tell how many ranks there are
        ([30_000, 30_000, 60_000, 60_000], "order", 4096, False),  # no more than chance
        ([30_000, 30_000, 300_000, 300_000], "order", 0, False),  # operations of unknown size may differ
    ],
)
def test_an_unnumbered_job_lacks_a_rank_where_operations_take_far_too_long(took, rank_source, size, waits):
    assert bool(awaited(*facts_of(took, rank_source, size)).shares) is waits


@pytest.mark.parametrize(
    ("missing", "matched_ns", "sized", "found"),
    [((3,), 0, False, [(3,)]), ((), 0, False, []), ((3,), 90, False, []), ((3,), 0, True, [])],
)
def test_waits_in_operations_of_unknown_size_that_nothing_matches_have_no_loss(missing, matched_ns, sized, found):
    lone = SimpleNamespace(op=np.zeros(int(sized)))
    all_ranks = SimpleNamespace(
        alignment=SimpleNamespace(run=SimpleNamespace(manifest=SimpleNamespace(missing_ranks=missing))),
        of=lambda name: np.array([[100.0], [10.0]]),
        spread=lambda waited: np.array([[float(waited[0])], [10.0]]),
        lone=[lone, None],
        span_ns=1000,
    )
    members = SimpleNamespace(rank=np.array([0]), waited=np.array([matched_ns]))
    rows = _of_unknown_loss(all_ranks, members)
    assert [row.ranks for row in rows] == found
    assert all(row.loss.unknown and row.told for row in rows)
    assert all((row.loss.estimate_ns, row.loss.own_ns, row.loss.bound_ns) == (0, 0, 0) for row in rows)


@pytest.mark.parametrize(
    ("over", "comes_back"),
    [
        ([[600, 0, 0], [500, 20, 0], [700, 0, 10], [600, 0, 0]], True),  # before the first operation of each step
        ([[0, 600, 600], [600, 0, 0], [0, 0, 0], [20, 0, 600]], False),  # now here, now there
        ([[600, 0, 0], [0, 0, 0], [0, 0, 0], [600, 0, 0]], False),  # in half of the steps
    ],
)
def test_a_late_rank_is_late_at_the_same_places_of_each_step(over, comes_back):
    steps, places = np.array(over).shape
    step, place = np.divmod(np.arange(steps * places), places)
    order = np.random.default_rng(3).permutation(steps * places)
    two_ranks = SimpleNamespace(
        rank=np.repeat([0, 4], len(order)),
        step=np.tile(step[order], 2),
        start=np.tile(1000 * step[order] + 10 * place[order], 2),
    )
    late_ns = np.tile(np.array(over).ravel()[order], 2)
    assert _comes_back(two_ranks, np.arange(2 * len(order)), late_ns) == comes_back


@pytest.mark.parametrize(
    ("took", "alike"),
    [
        ([[16, 17, 900], [20, 15, 16], [30, 31, 18]], True),  # a ring's neighbours, and what was once late
        ([[16, 17, 16], [20, 15, 16], [40, 41, 38]], False),  # stages of a pipeline
        ([[16, 17, 16], [20, 15, 16]], False),  # two say nothing of others
    ],
)
def test_messages_that_take_as_long_everywhere_do_not_depend_on_their_place(took, alike):
    assert _alike_everywhere(np.repeat(np.arange(len(took)), 3), np.array(took).ravel()) is alike
