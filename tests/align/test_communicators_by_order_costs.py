"""How partitions of streams are judged, on arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from alltrace.align.communicators_by_order import (
    _apart,
    _between,
    _chosen,
    _costs,
    _cycle,
    _distance,
    _evaluated,
    _few,
    _group_stays,
    _groups,
    _likelihood,
    _median,
    _partitions,
    _refinements,
    _spread,
    _Verdict,
)
from alltrace.align.constants import BY_MODES
from alltrace.align.message_partners import CLEAR, EVIDENCE, FLOOR_NS

APART = np.array([0, 0, 1, 1])
NO_PAIRS = np.zeros(3, np.bool_)
NONE = np.zeros((3, 3), np.bool_)


def test_partitions_are_groups_at_a_stride_and_those_across_known_ones():
    assert [p.tolist() for p in _partitions([0, 1, 2, 3], [])] == [[0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]]
    known = [frozenset({(0, 1), (3, 2)}), frozenset({(0, 1)}), frozenset({(0, 1), (2, 3)})]
    assert [p.tolist() for p in _partitions([0, 1, 2, 3], known)][3:] == [[0, 1, 1, 0]]
    tensor = frozenset(
        {(0, 1), (2, 3), (4, 5), (6, 7)}
    )  # a stage of each two: those of a pipeline together are at no stride
    with_pipeline = [0, 0, 1, 1, 0, 0, 1, 1]
    assert with_pipeline in [p.tolist() for p in _partitions(range(8), [tensor], joined=True)]
    assert with_pipeline not in [p.tolist() for p in _partitions(range(8), [tensor])]
    assert [p.tolist() for p in _partitions([1, 3, 5], [])] == [[0, 1, 1], [0, 0, 0]]  # of six ranks these three
    # of four ranks the last has no report
    assert [p.tolist() for p in _partitions([0, 1, 2], [])] == [[0, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(("size", "lacking"), [(3, 4), (5, 7)])
def test_an_odd_number_of_ranks_has_groups_of_odd_sizes_where_one_lacks_a_report(size, lacking):
    ranks = [r for r in range(3 * size) if r != lacking]
    assert [r // size for r in ranks] in [p.tolist() for p in _partitions(ranks, [])]


def test_an_operation_without_rows_has_no_verdict():
    labels = [np.array(label) for label in ([0, 0, 1, 1], [0, 1, 0, 1])]
    none = np.empty((0, 4))
    assert np.isinf(_costs([_evaluated(none, none, np.zeros(4), label) for label in labels])).all()
    assert np.isnan(_median(none)).all()


def test_where_a_group_lacks_a_rank_the_places_in_groups_are_not_those_of_the_grid():
    ranks = [0, 2, 3, 4, 5, 6, 7]
    partitions = [p.tolist() for p in _partitions(ranks, [frozenset({(0, 2, 3), (4, 5, 6, 7)})])]
    assert [0, 2, 3, 0, 1, 2, 3] in [distinct_in(ranks, p) for p in partitions]  # 2 with 6, and 3 with 7
    assert all(p[1] != p[4] or p[0] == p[1] for p in partitions)  # 2 is in no group with 5 but that of all


def distinct_in(ranks, label):
    """Each rank's place in the first group of four."""
    return [min(r for r, own in zip(ranks, label, strict=True) if own == one) % 4 for one in label]


def test_streams_are_as_far_apart_as_clocks_cannot_explain():
    late = np.array([31e3, 30e3, 29e3, 30e3])
    assert _apart(late, 0.0) == 30500.0
    assert _apart(late, 20e3) == 10500.0
    assert _apart(-late, 50e3) == 500.0


def test_transfers_of_groups_that_wait_for_others_vary_more_than_ends_scatter_and_are_withheld():
    start = np.zeros((4, 4))
    steady, waiting = np.array([100e3, 102e3, 98e3, 100e3]), np.array([100e3, 400e3, 200e3, 900e3])
    apart = np.array([-2e3, 2e3, -2e3, 2e3])
    varies = [_evaluated(start, end[:, None] + apart, np.zeros(4), APART).varies for end in (steady, waiting)]
    assert varies == [pytest.approx(1e3 / 4e3), pytest.approx(150e3 / 4e3)]
    verdict = _Verdict(np.zeros(4, np.int64), [[(0, 1)] * 2, [(0, 1)] * 2], [0.9, 0.9], varies)
    assert verdict.withheld(CLEAR * varies[0]).groups == [[(0, 1)] * 2, [()] * 2]
    assert verdict.withheld(CLEAR * varies[1]).groups == verdict.groups


def test_groups_have_their_members_but_for_those_alone():
    assert _groups([2, 4, 6], np.array([1, 0, 1])) == [(2, 6), (), (2, 6)]


def test_what_lies_between_two_of_one_communicator_is_of_it():
    label = np.array([5, -1, 5, -1, 7, -1])
    row = np.array([0, -1, 1, -1, 2, -1])
    assert _between(label, row).tolist() == [5, 5, 5, -1, 7, -1]
    assert _between(np.array([5, 5, -1]), np.array([0, 1, -1])).tolist() == [
        5,
        5,
        5,
    ]  # the last is followed by the first
    assert _between(np.array([4]), np.array([-1])).tolist() == [4]


def test_stays_count_from_the_last_start_and_no_member_ends_before():
    start = np.array([[0.0, 50.0, 0.0, 200.0], [0.0, 10.0, 0.0, np.nan]])
    end = np.array([[100.0, 110.0, 150.0, 260.0], [100.0, 104.0, 90.0, np.nan]])
    judged = _evaluated(start, end, np.array([0.0, 20.0]), APART)
    assert judged.stay[0].tolist() == [50.0, 60.0, -50.0, 60.0]
    assert judged.stay[1, :2].tolist() == [90.0, 94.0]
    assert np.isnan(judged.stay[1, 2:]).all()
    assert judged.unlawful.tolist() == [0.5, 0.0]
    assert _evaluated(start, end, np.array([0.0, 50.0]), APART).unlawful.tolist() == [0.0, 0.0]
    assert (judged.free, judged.groups.tolist()) == (2.0, [2, 2])
    assert judged.take(np.array([1])).stay.shape == (1, 4)


def test_stays_of_a_group_are_compared_with_their_mean():
    apart, mean = _group_stays(np.array([[10.0, 20.0, 5.0, np.nan], [1.0, 4.0, 7.0, 9.0]]), np.array([0, 0, 0, 1]))
    assert mean[:, 0].tolist() == [pytest.approx(35 / 3), 4.0]
    assert apart[:, 0].tolist() == [pytest.approx((5 / 3 + 25 / 3 + 20 / 3) / 2), 3.0]
    assert np.isnan(mean[:, 1]).all()
    assert np.isnan(apart[:, 1]).all()


def test_medians_leave_out_what_is_not_there():
    values = np.array(
        [[4.0, 1.0, np.nan, np.nan], [2.0, 9.0, 5.0, np.nan], [7.0, np.nan, np.nan, np.nan], [1.0, 2.0, 8.0, np.nan]]
    )
    assert _median(values)[:3].tolist() == [3.0, 2.0, 6.5]
    assert np.isnan(_median(values)[3])


def test_likelihoods_and_spreads():
    groups = np.array([2, 4])
    expected = (4.0 * math.log(30 + FLOOR_NS) + 2 * math.log(70 + FLOOR_NS) + (math.log(2) + math.log(4)) / 2) / 6
    assert float(_likelihood(np.float64(30.0), np.float64(70.0), 4.0, groups)) == pytest.approx(expected)
    assert float(_spread(np.array([1.0, 2.0, 9.0]))) == 3.0
    assert _median(np.array([[1.0, np.nan], [3.0, np.nan]]))[0] == 2.0


def test_the_right_partition_costs_least_and_an_unlawful_one_cannot_be():
    rng = np.random.default_rng(2)
    last = rng.uniform(0, 5e5, (60, 2)).repeat(2, axis=1)
    start = last - rng.uniform(0, 1e5, (60, 4)) * np.array([0, 1, 0, 1])
    end = last + 40_000 + rng.normal(0.0, 300.0, (60, 4))
    evidence = [
        _evaluated(start, end, np.zeros(4), label) for label in (APART, np.array([0, 1, 0, 1]), np.zeros(4, np.int64))
    ]
    costs = _costs(evidence)
    assert costs[0] < 9.0
    assert np.isinf(costs[1:]).all()
    late = _costs([_evaluated(start, end + 3e6, np.zeros(4), label) for label in (APART, np.array([0, 1, 0, 1]))])
    assert late[0] < late[1] - 2.0
    assert _cycle(evidence[:1], 60) == (1, True)
    assert _cycle(evidence[:1], 7) == (1, True)


def test_places_that_return_with_other_communicators_make_a_period():
    rng = np.random.default_rng(6)
    count, labels = 60, [APART, np.array([0, 1, 0, 1])]
    start, end = np.zeros((count, 4)), np.zeros((count, 4))
    for n in range(count):
        label = labels[n % 3 == 2]
        start[n] = n * 1e7 + rng.uniform(0, 1e5, 4)
        last = np.array([start[n][label == g].max() for g in label])
        end[n] = last + 4e6 + rng.normal(0.0, 300.0, 4)
    evidence = [_evaluated(start, end, np.zeros(4), label) for label in labels]
    assert _cycle(evidence, count) == (3, False)


def test_few_partitions_explain_all_places():
    many = np.array([100.0, 100.0, 100.0])
    costs = np.array([[5.0, 7.0, 9.0], [5.0, 7.0, 9.0], [9.0, 7.0, 5.0]])
    chosen = _few(
        costs, many, np.zeros(3, np.int64), np.ones(3, np.int64), np.zeros(costs.shape, np.int64), NO_PAIRS, NONE
    )
    assert [place for place, _ in chosen] == [0, 0, 2]
    assert all(score == pytest.approx(0.98, abs=0.021) for _, score in chosen)
    # one that is explained nearly as well by what explains others is explained by that
    for more, expected in ((BY_MODES / 2, [0, 0]), (2 * BY_MODES, [0, 1])):
        two = np.array([[5.0, 9.0], [5.0 + more, 5.0]])
        equal = (np.zeros(2, np.int64), np.ones(2, np.int64), np.zeros(two.shape, np.int64))
        assert [place for place, _ in _few(two, many[:2], *equal, NO_PAIRS[:2], NONE[:2, :2])] == expected
    # of equals the nearest, then the one with fewest groups
    equal = np.array([[5.0, 5.0, 5.0]])
    distance, groups = np.array([2, 1, 1]), np.array([1, 3, 2])
    assert _few(equal, many[:1], distance, groups, np.zeros((1, 3), np.int64), NO_PAIRS, NONE) == [(2, 0.6)]
    # a larger group is not sure where times are those of pairs, too
    pairs = np.array([False, True, False])
    assert _few(equal, many[:1], distance, groups, np.zeros((1, 3), np.int64), pairs, NONE) == [(2, 0.0)]
    assert _few(equal, many[:1], np.array([2, 0, 1]), groups, np.zeros((1, 3), np.int64), pairs, NONE) == [(1, 0.6)]
    shown = np.array([[5.0, 9.0, 9.0]])
    assert _few(shown, many[:1], distance, groups, np.zeros((1, 3), np.int64), pairs, NONE)[0][1] > 0.9
    # before these, the one whose groups transfer alike
    assert _few(equal, many[:1], distance, groups, np.array([[0, 1, 1]]), NO_PAIRS, NONE) == [(0, 0.6)]
    # where times speak against the nearest by more than modes explain, and not clearly, neither is sure
    for apart, answer in ((BY_MODES - 0.01, (1, 0.6)), (BY_MODES + 0.01, (1, 0.0)), (BY_MODES + 0.2, (0, 0.98))):
        nearest_second = np.array([[5.0, 5.0 + apart]])
        [(place, score)] = _few(
            nearest_second,
            many[:1],
            np.array([2, 1]),
            np.array([1, 1]),
            np.zeros((1, 2), np.int64),
            NO_PAIRS[:2],
            NONE[:2, :2],
        )
        assert (place, score) == (answer[0], pytest.approx(answer[1], abs=0.02))
    nothing = np.full((2, 2), np.inf)
    assert (
        _few(
            nothing,
            many[:2],
            np.zeros(2, np.int64),
            np.ones(2, np.int64),
            np.zeros((2, 2), np.int64),
            NO_PAIRS[:2],
            NONE[:2, :2],
        )
        == [(None, 0.0)] * 2
    )
    half = _few(
        np.array([[5.0, 6.0], [np.inf, np.inf]]),
        many[:2],
        np.zeros(2, np.int64),
        np.ones(2, np.int64),
        np.zeros((2, 2), np.int64),
        NO_PAIRS[:2],
        NONE[:2, :2],
    )
    assert half[1] == (None, 0.0)
    sure = 1.0 - math.exp(-((1.0 - BY_MODES + BY_MODES - BY_MODES) * 100) / CLEAR)
    assert half[0] == (0, pytest.approx(min(sure, 0.98)))


def test_a_place_alone_shows_another_partition_if_it_shows_more_than_saying_so_takes():
    costs, many = np.full((20, 3), 5.0), np.full(20, 10.0)
    costs[:, 1:] += 1.0
    naming, placing = math.log(4.0), math.log(20.0)  # which of the partitions, and which of the places
    for explains, chosen in ((placing - 0.1, [0]), (placing + 0.1, [0, 2])):
        costs[7, 2] = 5.0 - BY_MODES - explains / 10.0
        answer, _, gain = _chosen(costs * many[:, None], many, NONE)
        assert answer == chosen
        assert gain == pytest.approx(explains - naming - placing if len(chosen) > 1 else 0.0)


def test_parts_of_the_groups_of_a_partition_explain_no_place_of_their_own():
    labels = [APART, np.array([0, 1, 2, 2]), np.array([0, 1, 0, 1]), np.zeros(4, np.int64)]
    refinements = _refinements(labels)
    assert refinements.tolist() == [[False, True, False, False], *[[False] * 4] * 3]
    costs, many = np.array([[5.0, 9.0, 9.0, 9.0], [5.0, 3.0, 9.0, 9.0], [5.0, 9.0, 3.0, 9.0]]), np.full(3, 50.0)
    assert _chosen(costs * many[:, None], many, refinements)[0] == [0, 2]
    assert sorted(_chosen(costs * many[:, None], many, np.zeros((4, 4), np.bool_))[0]) == [0, 1, 2]


def test_modes_explain_no_more_of_a_place_than_it_shows():
    many = np.full(3, 36.0)
    costs = np.array([[10.5, 11.3], [8.9, 8.8], [8.8, 8.7]])  # one place shows it, and two nothing
    chosen = _few(
        costs, many, np.array([1, 0]), np.array([4, 2]), np.zeros((3, 2), np.int64), NO_PAIRS[:2], NONE[:2, :2]
    )
    assert [place for place, _ in chosen] == [0, 0, 0]
    assert chosen[0][1] > 0.9


def test_the_distance_of_a_partition_is_by_whom_it_goes_with():
    pairs, across, world = frozenset({(0, 1), (2, 3)}), frozenset({(0, 2), (1, 3)}), frozenset({(0, 1, 2, 3)})
    assert _distance(pairs, [pairs], [], 4) == 0
    assert _distance(pairs, [world], [across], 4) == 1
    assert _distance(pairs, [], [world], 4) == 2
    assert _distance(pairs, [], [pairs], 4) == 2
    assert _distance(pairs, [], [across], 8) == 2
    # ranks that meet in one communicator rarely meet in another but that of all
    fours, across_fours = frozenset({(0, 1, 2, 3), (4, 5, 6, 7)}), frozenset({(0, 2), (1, 3), (4, 6), (5, 7)})
    tensor = frozenset({(0, 1), (2, 3), (4, 5), (6, 7)})
    assert _distance(fours, [], [tensor], 8, [tensor]) == 4
    assert _distance(across_fours, [], [tensor], 8, [tensor]) == 2
    assert _distance(fours, [fours], [tensor], 8, [tensor]) == 0
    assert _distance(world, [], [pairs], 4, [pairs]) == 2


def test_operations_that_a_stream_lacks_favour_no_partition_that_leaves_others_without_a_partner():
    rng = np.random.default_rng(3)
    end = 1e5 + rng.normal(0.0, 2_000.0, (40, 4))
    lacking = end.copy()
    lacking[:10, 2] = np.nan
    lacking[:10, 0] += 5e5  # in another mode, which is not seen where 2 is its only partner
    labels = [np.zeros(4, np.int64), np.array([0, 1, 0, 1])]

    def costs(its):
        return _costs([_evaluated(np.zeros(its.shape), its, np.zeros(4), label) for label in labels])

    assert costs(lacking) == pytest.approx(costs(end[10:]))


def test_groups_with_transfers_of_their_own_cost_a_parameter_each():
    rng = np.random.default_rng(9)
    end = np.array([1e5, 1e5, 9e5, 9e5]) + rng.normal(0.0, 300.0, (50, 4))
    one = _evaluated(np.zeros((50, 4)), end, np.zeros(4), APART)
    apart, _ = _group_stays(one.stay - _median(one.stay), APART)
    transfer = _group_stays(one.stay, APART)[1]
    own = _likelihood(_spread(apart), _spread(np.abs(transfer - _median(transfer))), 2.0, np.array([2, 2]))
    assert _costs([one])[0] == pytest.approx(float(own) + 2 * math.log(50) / (2.0 * EVIDENCE * 200))
    alike = _evaluated(np.zeros((50, 4)), end * 0 + 1e5, np.zeros(4), APART)
    assert _costs([alike])[0] == pytest.approx(math.log(FLOOR_NS) + math.log(2) / 4)
    # one broken instance of a hundred
    end[7, :2] = -500.0
    broken = _evaluated(np.zeros((50, 4)), end, np.zeros(4), APART)
    assert broken.unlawful[7] == 0.5
    assert _costs([broken])[0] > _costs([one])[0] + CLEAR * 0.01
