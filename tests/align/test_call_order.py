"""Members that call the operations of a communicator in different orders."""

from __future__ import annotations

import numpy as np
import pytest
from tests.align.test_timelines import ALL_REDUCE, BROADCAST, HALF, SEND, op, timelines

from alltrace.align.call_order import misordered

A, B, S = ALL_REDUCE, BROADCAST, SEND


def sentences(one, other, *, communicator=5):
    """What is said of two ranks; each calls (operation, instance)."""
    calls = {3: one, 7: other}
    rows = {r: [op(10 * n, 10 * n + 5, k, communicator=communicator) for n, (k, _) in enumerate(c)] for r, c in calls.items()}
    return misordered(timelines(rows), {r: np.array([i for _, i in c], np.int64) for r, c in calls.items()})


def test_both_orders_are_said_without_what_is_the_same_before_and_after():
    one, other = [(A, 0), (A, -1), (B, -1), (A, 3)], [(A, 0), (B, -1), (A, -1), (A, 3)]
    assert sentences(one, other) == [
        "rank 3 calls AllReduce, Broadcast of communicator world where rank 7 calls Broadcast, AllReduce: all must call them in "
        "one order, or the program hangs or mixes its data"
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
