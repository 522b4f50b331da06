"""What ends contradict, and offsets of ranks that share a clock, on arrays."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.align.clock_fit import Cells, Clocks
from alltrace.align.clock_sharing import FEW, PlacedRank, Sharing, Units, _broken
from alltrace.align.clocks import _seen, _State


@pytest.mark.parametrize(
    ("instances", "wrong", "broken"), [(100, 2, False), (100, 3, True), (200, 4, False), (200, 5, True)]
)
def test_a_host_breaks_the_law_if_more_instances_do_than_are_matched_wrongly(instances, wrong, broken):
    start = np.zeros((instances, 3)) + np.arange(instances)[:, None] * 1e6
    end = start + 1_000.0
    start[:wrong, 1] += 1_001.0  # begins after the other of its host has ended; the third is on another host
    start[:, 2] += 5_000.0
    end[:, 1:] += 10_000.0
    ends = SimpleNamespace(
        instance=np.repeat(np.arange(instances), 3),
        rank=np.tile([0, 1, 2], instances),
        start=start.ravel(),
        end=end.ravel(),
    )
    host = np.array([0, 0, 1])
    assert _broken(ends, host, Clocks(np.zeros(3), np.zeros(3), 0.0), 2).tolist() == [broken, False]
    assert _broken(ends, host, Clocks(np.array([0.0, 2.0, 0.0]), np.zeros(3), 0.0), 2).tolist() == [False, False]


def test_ranks_of_a_unit_have_one_offset_but_for_what_is_known():
    units = Units(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([0.0, 30.0, 0.0]))
    assert units.count == 2
    block, rank = np.repeat(np.arange(4), 3), np.tile([0, 1, 2], 4)
    # by clocks that are known as (100, 130, 500), the last is 60 later than the others
    late = np.tile([-20.0, -20.0, 40.0], 4)
    every = np.ones(12)
    cells = Cells(block, rank, rank, block, late, every, every, every, every, every)
    offsets, left = units.offsets(cells, np.arange(12), every, np.array([100.0, 130.0, 500.0]))
    assert offsets[2] - offsets[0] == pytest.approx(460.0)
    assert offsets[1] - offsets[0] == pytest.approx(30.0)
    assert np.abs(left).max() < 1e-6


def test_reports_of_a_host_are_units_until_they_are_compared():
    ranks = [
        PlacedRank(0, "a", 0, 0, 5),
        PlacedRank(1, "a", 1, 0, 9),
        PlacedRank(2, "b", 2, 0),
        PlacedRank(3, "b", 2, 0),
        PlacedRank(4, "c", 3, 0),
    ]
    sharing = Sharing(ranks, np.ones(5, np.bool_))
    assert sharing.host.tolist() == [0, 0, 1, 1, 2]
    assert sharing.units.of_rank[2] == sharing.units.of_rank[3]
    assert sharing.units.count == 4  # two reports of one host are apart, two ranks of one report are not
    assert sharing.units.clock.tolist() == [0, 0, 1, 1, 2]
    unseen = Sharing(ranks, np.array([True, False, True, True, True]))  # one report of the host has ends
    assert unseen.units.of_rank[0] == unseen.units.of_rank[1]
    assert unseen.units.known_ns.tolist() == [0.0, -4.0, 0.0, 0.0, 0.0]


def test_the_evidence_of_a_unit_is_from_its_first_to_its_last_end():
    units = Units(np.array([0, 0, 1]), np.array([0, 0, 1]), np.zeros(3))
    ends = SimpleNamespace(rank=np.array([0, 1, 1, 0]), end=np.array([40.0, 10.0, 90.0, 20.0]))
    assert _seen(ends, units).T.tolist() == [[10.0, 40.0, 90.0], [10.0, 40.0, 90.0], [0.0, 0.0, 0.0]]


def test_a_clock_with_too_little_evidence_or_a_step_is_as_uncertain():
    units = Units(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 2]), np.zeros(4))
    fit = SimpleNamespace(units=units, ends=SimpleNamespace(rank=np.repeat([0, 1, 2, 3], [1, FEW + 1, FEW, FEW])))
    jumps = {0: SimpleNamespace(step_ns=-75.4)}
    state = _State(
        [None] * 4, [], np.zeros(4, np.int64), fit, jumps, np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 0, 1])
    )
    assert state.error(np.full(4, 50.0)).tolist() == [75.0, 75.0, np.inf, 54.0]
    state.jumps = {0: SimpleNamespace(step_ns=5.0)}
    assert state.error(np.full(4, 50.0)).tolist() == [51.0, 52.0, np.inf, 54.0]
