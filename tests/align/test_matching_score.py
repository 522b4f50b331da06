"""How surely it is known which ranks communicate."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.collectives import Made, table_of
from tests.align.tables import timelines_of

from alltrace.align.matching_score import Explained, reason_of
from alltrace.align.related_clocks import RankClock


def explained(members, captured=(4, 4, 4)):
    """Four operations of a communicator of three ranks, 1 ms apart, and the clocks: of each rank the first of them are captured."""
    tables = {}
    for rank in members:
        begin = np.arange(captured[rank]) * 1_000_000
        count = len(begin)
        columns = {"communicator": ["a"] * count, "op": ["AllReduce"] * count, "group_size": [3] * count, "stream": [7] * count}
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


def test_half_of_the_communication_explained_is_enough():
    assert reason_of(1 / 2, 0.0, {}, 1) is None
    assert reason_of(0.499, 0.25, {0: 0.5, 1: 1.0}, 1) == (
        "50% of the communication is not explained; for 25% the communicator is known neither from the reports nor from the times; "
        "the clocks of 1 of 2 ranks are related to the others' with little certainty"
    )
