"""Parts of the search for the calls of a log, on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.log_call_matching import (
    QUARTER_NS,
    LoggedCalls,
    TracedOps,
    _chance,
    _covered,
    _learned,
    _pieces,
    _Place,
    _place,
    _windows,
    _worth_trying,
    match_calls,
)


def trace(op, *, lane=None, size=None, took=None, utc=None):
    op = np.asarray(op)
    filled = [np.zeros(len(op), np.int64) if v is None else np.asarray(v) for v in (took, lane)]
    return TracedOps(
        op,
        *filled,
        np.full(len(op), -1) if size is None else np.asarray(size),
        None if utc is None else np.asarray(utc),
    )


def log(op, *, kind=None, group=None, size=None, utc=None):
    op = np.asarray(op)
    kind, group = (np.zeros(len(op), np.int64) if v is None else np.asarray(v) for v in (kind, group))
    return LoggedCalls(
        op,
        kind,
        group,
        np.full(len(op), -1) if size is None else np.asarray(size),
        None if utc is None else np.asarray(utc),
    )


def test_the_chance_is_that_of_two_draws_to_be_alike():
    assert _chance(trace([1, 1, 2, 3]), log([1, 2, 2, 4])) == pytest.approx((2 * 1 + 1 * 2) / 16)
    sized = trace([1, 1, 1, 1], size=[8, 8, 16, 16]), log([1, 1], size=[8, 32])
    assert _chance(*sized) == pytest.approx(2 * 1 / 8)
    assert _chance(sized[0], log([1, 1])) == 1.0  # sizes of one side tell nothing


def test_operations_beyond_the_ends_of_a_log_are_not_covered():
    assert _covered(np.array([-1, -1, -1, 1, 2, -1, 4, -1, -1]), 6) == 1 + 4 + 1  # one call before, one after
    assert _covered(np.array([-1, 0, 1]), 2) == 2
    assert _covered(np.full(3, -1), 5) == 0


def test_lines_are_those_of_the_time_of_the_trace_in_some_time_zone():
    seconds = np.arange(12) * 10**9
    ops = trace(np.zeros(12), utc=10**18 + seconds)
    assert _windows(ops, log(np.zeros(12), utc=10**18 + seconds)) == [(0, 12)]
    assert _windows(ops, log(np.zeros(12), utc=10**18 + 3 * QUARTER_NS + seconds)) == [(0, 12)]
    assert _windows(ops, log(np.zeros(12), utc=10**18 + QUARTER_NS // 2 + seconds)) == []
    assert _windows(ops, log(np.zeros(12), utc=10**18 + 57 * QUARTER_NS + seconds)) == []
    # three seconds to each side, seven calls are too few
    early = log(np.zeros(12), utc=10**18 - 8 * 10**9 + seconds)
    assert _windows(trace(np.zeros(12), utc=10**18 + seconds), early) == []
    assert _windows(
        trace(np.zeros(12), utc=10**18 + seconds), log(np.zeros(14), utc=10**18 + (np.arange(14) - 6) * 10**9)
    ) == [(3, 14)]
    assert _windows(trace(np.zeros(3)), log(np.zeros(5))) == [(0, 5)]


def test_pieces_go_on_from_the_place_and_then_back():
    assert _pieces(10, 20_000) == [(10, 16_394, False), (16_394, 20_000, False), (0, 10, True)]
    assert _pieces(17_000, 17_001) == [(17_000, 17_001, False), (616, 17_000, True), (0, 616, True)]


def test_a_piece_is_found_where_its_operations_are():
    rng = np.random.default_rng(4)
    op = rng.integers(0, 4, 400)
    place = _place(trace(op[100:180]), log(op), 64, 4)
    assert place.agreeing == pytest.approx(1.0)
    assert place.firsts[0] - place.begin == 100
    assert place.width == 64
    lanes = rng.integers(0, 2, 400)
    place = _place(trace(op[100:180], lane=lanes[100:180] + 5), log(op, group=1 - lanes), 64, 4)
    assert place.lanes.tolist() == [6, 5]
    nowhere = _place(trace([1, 2]), log([3, 4], group=[0, 1]), 8, 1)
    assert (nowhere.agreeing, nowhere.lanes.tolist()) == (-1.0, [-1, -1])


def test_of_many_places_those_count_at_which_streams_and_durations_agree():
    kind = np.random.default_rng(2).integers(0, 3, 30)
    group = np.ones(30, np.int64)
    group[0] = 0
    place = _Place(0, 20, np.arange(8), 1.0, np.array([0, 1]))
    everywhere = trace(np.zeros(20), lane=np.ones(20, np.int64), took=np.full(20, 1000))
    assert _worth_trying(everywhere, log(np.zeros(30), kind=kind, group=group), place) == [1, 2, 3, 4, 5, 6]
    took = np.array([100, 1_000, 10_000])[kind[5:25]]
    of_five = trace(np.zeros(20), lane=np.ones(20, np.int64), took=took)
    assert _worth_trying(of_five, log(np.zeros(30), kind=kind, group=np.ones(30, np.int64)), place)[0] == 5
    op = np.zeros(30, np.int64)
    op[:5] = 1
    assert _worth_trying(everywhere, log(op, kind=kind, group=np.ones(30, np.int64)), place)[:3] == [5, 6, 7]
    few = _Place(0, 20, np.arange(3), 1.0, place.lanes)
    assert _worth_trying(everywhere, log(np.zeros(30), kind=np.zeros(30, np.int64)), few) == [0]


def test_durations_and_streams_are_learned_from_three_operations_on():
    ops = trace(np.zeros(9), lane=[1, 1, 1, 2, 2, 3, 3, 3, 3], took=[10, 20, 40, 5, 5, 7, 7, 0, 9])
    typical, lane = _learned(ops, log(np.zeros(4), kind=[0, 1, 2, 3]), np.array([0, 0, 0, 1, 1, 2, 2, 2, 2]), 4)
    assert np.exp(typical[[0, 2]]).tolist() == pytest.approx([20, 7])
    assert np.isnan(typical[[1, 3]]).all()
    assert lane.tolist() == [1, -1, 3, -1]


def test_a_trace_finds_its_calls_in_a_longer_log_and_says_how_surely():
    rng = np.random.default_rng(8)
    op, size = rng.integers(0, 3, 300), rng.integers(0, 4, 300) * 1024
    kind = op * 4 + size // 1024
    found = match_calls(trace(op[50:200], size=size[50:200]), log(op, kind=kind, size=size))
    assert found.call.tolist() == list(range(50, 200))
    assert found.sure.all()
    assert (found.covered, found.share, found.timed, found.reason) == (150, 1.0, False, None)
    lost = np.delete(np.arange(50, 200), [20, 21, 90])
    found = match_calls(
        trace(op[lost], size=size[lost]), log(np.delete(op, 60), kind=np.delete(kind, 60), size=np.delete(size, 60))
    )
    matched = found.call >= 0
    assert (~matched).sum() == 1  # the call that the log lost
    assert (np.delete(kind, 60)[found.call[matched]] == kind[lost[matched]]).all()
    assert (found.covered, found.share) == (147, pytest.approx(146 / 147))


def test_what_does_not_fit_says_why():
    assert match_calls(trace([]), log([1])).reason == "the trace has no operation"
    assert match_calls(trace([1]), log([])).reason == "the log has no call"
    apart = match_calls(trace(np.zeros(9), utc=np.arange(9)), log(np.zeros(9), utc=np.arange(9) + QUARTER_NS // 2))
    assert apart.reason == "its lines are from another time than the trace"
    rng = np.random.default_rng(1)
    other = match_calls(trace(rng.integers(0, 9, 200)), log(rng.integers(9, 18, 200)))
    assert (other.reason, other.call.max()) == (
        "at best 0 % of its operations are in the same order as in the trace",
        -1,
    )
