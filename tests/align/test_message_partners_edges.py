"""Parts of the search for the two ends of messages, on arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from alltrace.align import message_partners
from alltrace.align.message_partners import (
    _LEAST,
    CLEAR,
    FLOOR_NS,
    Lane,
    _best,
    _edges,
    _exchanges,
    _greedy,
    _log_density,
    _mates,
    _nearest,
    _parts,
    _Pattern,
    _pattern,
    _strides,
    message_pairs,
)


def lane(start, end, direction=None, error_ns=0.0):
    start, end = np.asarray(start, float), np.asarray(end, float)
    op = np.zeros(len(end), np.int64)
    return Lane(
        0,
        op,
        op,
        start,
        end,
        exchanging=True,
        error_ns=error_ns,
        direction=None if direction is None else np.asarray(direction),
    )


def test_operations_that_are_there_at_once_can_be_partners():
    low, high = lane([0, 100, 200], [50, 160, 260]), lane([40, 170, 255], [90, 199, 300])
    edges = _edges(low, high, 3)
    assert list(zip(edges.one.tolist(), edges.other.tolist(), strict=True)) == [(0, 0), (2, 2)]
    assert edges.apart.tolist() == [50.0 - 90.0, 260.0 - 300.0]
    assert edges.together.tolist() == [10.0, 5.0]
    assert edges.room.tolist() == [pytest.approx(max(210, 210) / 3)] * 2
    assert edges.lanes.tolist() == [3, 3]
    off = _edges(
        lane([0, 100, 200], [50, 160, 260], error_ns=6.0), lane([40, 170, 255], [90, 199, 300], error_ns=4.0), 0
    )
    assert list(zip(off.one.tolist(), off.other.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    one_way = _edges(lane([0, 0], [9, 9], [1, -1]), lane([0, 0], [9, 9], [1, -1]), 0)
    assert list(zip(one_way.one.tolist(), one_way.other.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_the_best_edges_take_their_ends_first():
    edges = _edges(lane([0, 0], [10, 20]), lane([0, 0], [11, 18]), 0)
    assert sorted(_greedy(edges, -np.abs(edges.apart), 2, 4).tolist()) == [0, 3]
    assert sorted(_greedy(edges, np.array([0.0, 5.0, 1.0, 0.0]), 2, 4).tolist()) == [1, 2]
    assert _greedy(edges, np.array([0.0, 5.0, 1.0, 9.0]), 2, 4).tolist() == [3, 0]


def test_the_density_of_a_sample_is_that_of_its_nearest_over_chance():
    sample, at = np.array([0.0, 10.0, 20.0, 1000.0]), np.array([12.0, 20.0])
    ln = np.log
    # two nearest of four: 8 away; of the three others without itself 20 away
    expected = [ln(2 / (2 * (8 + FLOOR_NS) * 4) * 5000), ln(2 / (2 * (20 + FLOOR_NS) * 3) * 5000)]
    assert _log_density(sample, at, np.array([False, True]), 5000.0) == pytest.approx(expected)
    assert _log_density(sample, at, np.array([False, True]), 0.0) == pytest.approx(
        np.array(expected) + ln(FLOOR_NS / 5000)
    )
    assert _log_density(np.array([0.0, 1.0]), at, np.array([False, False]), 5000.0).tolist() == [0.0, 0.0]


def test_an_exchange_frees_two_ends_and_brings_them_together():
    edges = _edges(lane([0, 0], [10, 20]), lane([0, 0], [11, 18]), 0)  # all four
    edges = edges._replace(other=edges.other + 2)
    gain, replaced = _exchanges(edges, np.array([4.0, 9.0, 3.0, 1.0]), np.array([0, 3]), 4)
    assert gain.tolist() == [9.0 + 3.0 - 4.0 - 1.0] * 2
    assert replaced.tolist() == [[0, 3], [3, 0]]
    gain, replaced = _exchanges(edges, np.array([4.0, 9.0, 3.0, -1.0]), np.array([0]), 4)
    assert gain.tolist() == [9.0 + 3.0 - 4.0] * 2  # the one that loses its partner takes what is free
    assert replaced.tolist() == [[0, -1], [-1, 0]]


def test_messages_that_others_could_be_as_well_are_withheld(monkeypatch):
    # of four edges between two operations of each lane, each of two pairs of messages
    edges = _edges(lane([0, 0], [10, 20]), lane([0, 0], [11, 18]), 0)
    edges = edges._replace(other=edges.other + 2)
    for scores, messages in (([9.0, 1.0, 1.0, 4.0], [0, 3]), ([9.0, 5.0, 4.5, 1.0], []), ([9.0, 8.9, 8.9, 0.1], [])):
        monkeypatch.setattr(message_partners, "_likelihood", lambda *_, scores=scores: np.array(scores))
        assert message_partners._chosen(edges, 4).tolist() == messages


def test_mates_exchange_enough_messages():
    many = _LEAST
    pattern = _Pattern(
        {0: np.array([1] * many + [2] * (many - 1) + [-1]), 1: np.array([0] * many), 2: np.array([0] * 20)}, 1.0, 0.0
    )
    assert list(_mates(pattern)) == [(0, 1)]


def test_groups_and_most_frequent_mates_connect_parts():
    assert _parts([0, 1, 2, 3], [(0, 1)]) == 3
    pattern = _Pattern({0: np.array([2, 2, 1]), 1: np.array([-1]), 2: np.array([0]), 3: np.array([2, 2, -1])}, 1.0, 0.0)
    assert _parts([0, 1, 2, 3], [(0, 1)], pattern) == 1
    assert _parts([0, 1, 2, 3], [(7, 1, 3)], pattern._replace(mate={})) == 3


def test_strides_are_those_of_grids_and_also_go_round():
    of_stride = list(_strides([0, 1, 2, 3, 4, 5]))
    assert [stride for stride, _ in of_stride] == [1, 1, 2, 2, 3, 4]
    assert of_stride[0][1][0] == [1]
    assert of_stride[0][1][2] == [1, 3]
    assert of_stride[1][1][0] == [1, 5]
    assert of_stride[3][1][5] == [3, 1]
    assert of_stride[4][1] == {0: [3], 1: [4], 2: [5], 3: [0], 4: [1], 5: [2]}
    assert [its for _, its in _strides([0, 3])] == [{0: [], 3: []}, {0: [3], 3: [0]}, {0: [], 3: []}]


def test_the_nearest_end_of_what_runs_at_once_counts():
    start, end = np.array([0.0, 100.0, 200.0]), np.array([50.0, 150.0, 250.0])
    starts, ends = np.array([10.0, 120.0, 251.0]), np.array([60.0, 149.0, 252.0])
    assert _nearest(start, end, starts, ends).tolist() == [0, 1, -1]
    assert _nearest(np.array([0.0]), np.array([200.0]), starts, ends).tolist() == [1]
    of = {1: (starts, ends), 2: (start, end + 2)}
    found = _best(0, [1, 2], lambda r, q: _nearest(start, end, *of[q]), {0: end, 1: ends, 2: end + 2})
    assert [c.tolist() for c in found] == [[2, 1, 2], [0, 1, 2]]
    equally = _best(0, [2, 4], lambda r, q: np.arange(3), {0: end, 2: end + 2, 4: end - 2})
    assert equally[0].tolist() == [2, 2, 2]  # the first of them


def test_a_pattern_has_the_share_of_messages_that_fit_and_their_scatter():
    end = {0: np.arange(20) * 1e6, 1: np.append(np.arange(19) * 1e6 + 300.0, 40e6)}
    start = {0: end[0] - 5e3, 1: end[1] - 4e3}
    found = _pattern([0, 1], {0: [1], 1: [0]}, start, end, lambda r, q: _nearest(start[r], end[r], start[q], end[q]))
    assert found.mate[0].tolist() == [1] * 19 + [-1]
    assert found.mate[1].tolist() == [0] * 19 + [-1]
    assert found.share == 38 / 40
    # all are 300 ns apart, and together for as long
    assert found.cost == pytest.approx((math.log(300 + FLOOR_NS) + math.log(FLOOR_NS)) / 2 + CLEAR * 2 / 40)
    few = {r: ends[: _LEAST - 1] for r, ends in end.items()}
    assert _pattern([0, 1], {0: [1], 1: [0]}, start, few, lambda r, q: np.arange(_LEAST - 1)) is None


def test_rank_0_is_a_mate_like_any_other():
    assert _parts([0, 1, 2], [], _Pattern({2: np.array([0, 0, 1]), 1: np.array([-1])}, 1.0, 0.0)) == 2


def test_pairs_are_told_with_their_messages_and_how_sure_they_are():
    rng = np.random.default_rng(4)
    sent = np.cumsum(rng.uniform(5e5, 2e6, 40))
    apart = np.cumsum(rng.uniform(5e5, 2e6, 40))
    lanes = [
        lane(e - 6e4, e + rng.normal(0.0, 500.0, 40))._replace(rank=rank)
        for rank, e in ((0, sent), (1, sent), (2, apart), (3, apart))
    ]
    lanes = [its._replace(place=np.arange(40)) for its in lanes]
    found = list(message_pairs(lanes))
    assert [pair for pair, _, _ in found] == [(0, 1), (2, 3)]
    assert all(score == pytest.approx(0.98, abs=0.1) for _, score, _ in found)
    assert [[(rank, place.tolist()) for rank, place in part] for part in found[0][2]] == [
        [(0, list(range(40))), (1, list(range(40)))]
    ]
    assert list(message_pairs(lanes[:1])) == []
    assert list(message_pairs([lanes[0], lanes[2]])) == []
