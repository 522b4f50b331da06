"""How surely it is known which ranks communicate."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.collectives import Made, table_of
from tests.align.tables import timelines_of

from alltrace.align.matching_score import FEW, Explained, connected, lacking, reason_of
from alltrace.align.related_clocks import RankClock


def explained(members, captured=(4, 4, 4)):
    """Four operations of a communicator of three ranks, 1 ms apart, and the clocks: of each rank the first of them are
    captured."""
    tables = {}
    for rank in members:
        begin = np.arange(captured[rank]) * 1_000_000
        count = len(begin)
        columns = {
            "communicator": ["a"] * count,
            "op": ["AllReduce"] * count,
            "group_size": [3] * count,
            "stream": [7] * count,
        }
        tables[rank] = table_of(start=begin, end=begin + 1_000, device=[0] * count, **columns)
    timelines = timelines_of(tables, Made({}, {}, {}, ["a"]).texts)
    clocks = {m: RankClock(0.0, 0.0, 0.0, 1.0, 0) for m in timelines.extents}
    return Explained(timelines, clocks, np.full(4, len(members)))


def test_an_operation_counts_by_the_share_of_its_members_that_are_in_its_instance():
    score = explained((0, 1, 2))
    for rank in range(3):
        score.add(rank, np.array([0, 1, 2, -1]), np.full(4, 0.8))
    assert score.score(1.0) == score.score_of(0, 1.0) == pytest.approx(0.8 * 3 / 4)
    assert score.whole_share(0, 3) == pytest.approx(3 / 4)
    assert score.unnamed == 0.0


def test_members_of_the_communicator_that_were_not_captured_are_not_expected():
    score = explained((0, 1))
    for rank in range(2):
        score.add(rank, np.arange(4), np.ones(4))
    assert score.score(1.0) == 1.0
    alone = explained((0, 1, 2), (4, 2, 2))
    alone.add(0, np.array([0, 1, -1, -1]), np.ones(4))
    assert alone.score(1.0) == 1.0  # the last two end while no other member is captured


def test_what_nobody_else_had_captured_counts_for_no_communicator_though_clocks_are_not_related():
    score = explained((0, 1, 2), (4, 2, 4))
    clocks = {m: RankClock(0.0, 0.0, 0.0, 1.0, int(m == 2)) for m in range(3)}
    parted = Explained(score._timelines, clocks, np.full(4, 2))
    for rank, places in ((0, [0, 1, -1, -1]), (1, [0, 1]), (2, [-1] * 4)):
        parted.add(rank, np.array(places), np.ones(len(places)))
    assert parted.score(1.0) == 1.0


def test_half_of_the_communication_explained_is_enough():
    assert reason_of(1 / 2, 0.0, {}, 1) is None
    assert (
        reason_of(0.499, 0.25, {0: 0.5, 1: 1.0}, 1)
        == "50 % of the communication is not explained; for 25 % the communicator is known neither from the reports nor"
        " from the times; the clocks of 1 of 2 ranks are related to the others' with little certainty"
    )


def test_operations_without_a_partner_count_while_all_ranks_were_captured():
    begin = np.arange(FEW + 3) * 1_000_000
    tables = {}
    for rank, its in enumerate((begin, begin[1:-1], begin[:1])):
        columns = {
            "communicator": ["a"] * len(its),
            "op": ["AllReduce"] * len(its),
            "group_size": [3] * len(its),
            "stream": [7] * len(its),
        }
        tables[rank] = table_of(start=its, end=its + 1_000, device=[0] * len(its), **columns)
    timelines = timelines_of(tables, Made({}, {}, {}, ["a"]).texts)
    alone = {0: np.arange(FEW + 3) < 3, 1: np.arange(FEW + 1) < 1, 2: np.array([True])}
    clocks = {m: RankClock(0.0, 0.0, 0.0, 1.0, int(m == 2)) for m in timelines.extents}
    # from the second to the last but one both were captured; of one operation a share says nothing
    assert lacking(timelines, clocks, alone) == {0: 2 / (FEW + 1), 1: 1 / (FEW + 1)}
    shorter = {**tables, 1: tables[1].slice(1)}
    assert lacking(timelines_of(shorter, Made({}, {}, {}, ["a"]).texts), clocks, {**alone, 1: alone[1][1:]}) == {}
    assert lacking(timelines_of({0: tables[0]}, Made({}, {}, {}, ["a"]).texts), clocks, alone) == {}


def test_communicators_connect_members_in_chains():
    every = np.array([3, 5, 7, 9])
    assert connected(np.array([0, 0, 1, 1]), np.array([3, 5, 5, 9]), every) == (3 * 2 / (4 * 3), 2)
    assert connected(np.array([0, 0]), np.array([3, 3]), np.array([3])) == (1.0, 1)
    assert connected(np.array([0, 0, 1]), np.array([3, 5, 7]), every) == (2 / 12, 3)
    assert connected(np.array([0, 1]), np.array([3, 5]), np.array([3, 5])) == (0.0, 2)


def test_the_reason_names_what_is_unknown():
    assert reason_of(None, 0.0, {}, 1) is None
    assert reason_of(0.5, 0.0, {}, 1) is None
    assert reason_of(0.25, 0.0, {}, 1) == "75 % of the communication is not explained"
    assert "for 40 % the communicator is known neither" in reason_of(0.25, 0.4, {}, 1)
    assert "the clocks of 2 groups of ranks" in reason_of(0.25, 0.0, {0: 0.1}, 2)
    assert "the clocks of 1 of 2 ranks" in reason_of(0.25, 0.0, {0: 0.74, 1: 0.75}, 1)
