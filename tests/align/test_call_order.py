"""Members that call the operations of a communicator in different orders."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.test_timelines import ALL_REDUCE, BROADCAST, HALF, SEND, WORLD, op, timelines

from alltrace.align.call_order import misordered, recorded_apart
from alltrace.align.matching import match
from alltrace.align.related_clocks import Placing, RankClock

A, B, S = ALL_REDUCE, BROADCAST, SEND


def sentences(one, other, *, communicator=5, components=(3, 3)):
    """What is said of two ranks; each calls (operation, instance)."""
    clocks = dict(zip((3, 7), (RankClock(0.0, 0.0, 0.0, 1.0, c) for c in components), strict=True))
    calls = {3: one, 7: other}
    rows = {
        r: [op(10 * n, 10 * n + 5, k, communicator=communicator) for n, (k, _) in enumerate(c)]
        for r, c in calls.items()
    }
    return misordered(timelines(rows), {r: np.array([i for _, i in c], np.int64) for r, c in calls.items()}, clocks)


def test_both_orders_are_said_without_what_is_the_same_before_and_after():
    one, other = [(A, 0), (A, -1), (B, -1), (A, 3)], [(A, 0), (B, -1), (A, -1), (A, 3)]
    assert sentences(one, other) == [
        "rank 3 calls AllReduce, Broadcast of communicator world where rank 7 calls Broadcast, AllReduce: all must call"
        " them in one order, or the program hangs or mixes its data"
    ]
    assert sentences(one[1:], other[1:]) == sentences(one, other)
    assert sentences(one[:-1], other[:-1]) == sentences(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(A, 0), (B, 1)], [(A, 0), (B, 1)]),  # all matched
        ([(A, 0), (A, -1), (B, -1), (A, 3)], [(A, 0), (A, -1), (B, -1), (A, 3)]),  # one order, though not matched
        ([(A, 0), (A, -1), (B, -1), (A, 3)], [(A, 0), (B, -1), (A, 3)]),  # one is not recorded
        ([(A, 0), (A, -1), (A, 1), (B, -1)], [(A, 0), (B, -1), (A, 1), (A, -1)]),  # at other places
        ([(A, 0), (A, -1), (S, -1)], [(A, 0), (S, -1), (A, -1)]),  # messages have no order with others
        ([(A, -1), *[(B, -1)] * 8], [*[(B, -1)] * 8, (A, -1)]),  # too many to be of one place
    ],
)
def test_nothing_is_said_of_what_can_be_otherwise(one, other):
    assert sentences(one, other) == []


def test_nothing_is_said_without_a_communicator():
    one, other = [(A, -1), (B, -1)], [(B, -1), (A, -1)]
    assert len(sentences(one, other, communicator=HALF)) == 1
    assert sentences(one, other, communicator=None) == []


ROUND = [(A, -1), (A, -1), (B, -1)]


def test_a_sequence_that_one_rank_has_some_calls_later_is_said_on_one_clock_alone():
    one, other = 4 * ROUND, [*ROUND[1:], *(3 * ROUND), ROUND[0]]
    (said,) = sentences(one, other)
    assert said.startswith(
        "rank 3 calls AllReduce, AllReduce, Broadcast, AllReduce, AllReduce, Broadcast, AllReduce, AllReduce "
    )
    assert (
        " where rank 7 calls AllReduce, Broadcast, AllReduce, AllReduce, Broadcast, AllReduce, AllReduce, Broadcast: "
        in said
    )
    assert len(sentences(other, one)) == 1
    assert sentences(one, other, components=(3, 7)) == []  # nothing tells that their windows begin together
    assert sentences(one, one) == sentences(one[:8], other[:7]) == []
    assert sentences(12 * [(A, -1)], 11 * [(A, -1)]) == []
    matched = [(kind, n) for n, (kind, _) in enumerate(one)]
    assert sentences(matched, [(A, -1), *((kind, n) for n, (kind, _) in enumerate(other[1:], 1))]) == []


def test_windows_of_one_host_that_do_not_overlap_are_said_with_the_time_between():
    rows = {
        r: [op(at, at + 5, A, communicator=5) for at in (begin, begin + 40)]
        for r, begin in ((0, 0), (1, 30), (2, 90), (3, 100))
    }
    operations = timelines(rows)
    clocks = {r: RankClock(2e9 * (r >= 2), 0.0, 0.0, 1.0, 0) for r in rows}
    assert recorded_apart(operations, clocks, dict.fromkeys(rows, "n0")) == [
        "on n0 the communication of ranks 0-1 ends 2.000 s before that of ranks 2-3: their windows do not overlap, so"
        " nothing is matched between them"
    ]
    assert recorded_apart(operations, clocks, {0: "n0", 1: "n0", 2: "n1", 3: "n1"}) == []
    touching = {**clocks, 2: RankClock(-20.0, 0.0, 0.0, 1.0, 0)}  # begins as rank 1 ends
    assert recorded_apart(operations, touching, {0: "n0", 1: "n1", 2: "n1", 3: "n0"})[1:] == []
    assert recorded_apart(operations, {**clocks, 2: clocks[0], 3: clocks[0]}, {0: "n0", 1: "n1", 2: "n2", 3: "n0"}) == [
        "on n0 the communication of rank 0 ends 0.000 s before that of rank 3: their windows do not overlap, so nothing"
        " is matched between them"
    ]


@pytest.mark.parametrize("sequence", [[A, A, B, A, B] * 8, [A, B] * 20])
@pytest.mark.parametrize("odd", [0, 2])
def test_a_shifted_sequence_is_said_of_matched_operations(sequence, odd):
    begins = {n: 100_000 * n for n in range(len(sequence))}
    rows = {
        r: [op(begins[n], begins[n] + 60_000, kind, communicator=WORLD) for n, kind in enumerate(sequence[r == odd :])]
        for r in range(3)
    }
    placing = Placing({}, dict.fromkeys(rows, "n0"), dict.fromkeys(rows, "n0"))
    matching = match(timelines(rows), placing)
    (said,) = (n for n in matching.notes if "calls" in n)
    assert said.startswith(f"rank {1 if odd == 0 else 0} calls AllReduce, ")
    assert f" where rank {odd} calls {'AllReduce' if sequence[1] == A else 'Broadcast'}, " in said
    assert not [n for n in match(timelines(dict.fromkeys(rows, rows[1])), placing).notes if "calls" in n]
