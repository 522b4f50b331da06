"""Which sends and receives are the two ends of one message, by how regular their distances are."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.message_partners import Lane, partners

STEPS = np.arange(24) * 10e6
JITTER = np.random.default_rng(5).normal(0.0, 1_500.0, (4, 24))


def lane(rank, start, end, direction=None, error_ns=0.0):
    order = np.argsort(start, kind="stable")
    op = np.zeros(len(order), np.int64)
    its = None if direction is None else np.full(len(order), direction)
    return Lane(rank, op, op, start[order], end[order], exchanging=True, error_ns=error_ns, direction=its)


def pairs_of(lanes, mates):
    return {
        (low, high): list(zip(one.tolist(), other.tolist(), strict=True))
        for low, high, one, other in partners(lanes, mates)
    }


def in_order(count):
    return [(n, n) for n in range(count)]


def test_two_messages_at_once_keep_to_the_streams_on_which_their_ends_stay_equally_far_apart():
    late = JITTER[0] * 10.0  # the second message ends now before, now after the first
    lanes = [
        lane(0, STEPS, STEPS + 90_000 + 30_000),
        lane(0, STEPS, STEPS + 90_000 + late),
        lane(1, STEPS + 50_000, STEPS + 90_000 + late + 30_000 + JITTER[1] / 10.0),
        lane(1, STEPS + 50_000, STEPS + 90_000 + JITTER[2] / 10.0),
    ]
    assert pairs_of(lanes, [(0, 1)]) == {(0, 3): in_order(24), (1, 2): in_order(24)}


def test_the_nearest_end_is_not_the_partner_where_one_side_always_ends_late():
    # the middle stage receives and then sends at once; what it sends always ends 60 us late at the receiver
    received, sent = STEPS + 100_000, STEPS + 120_000
    sent[:12] += 2e6  # in half of the steps much later, so that these are certain
    middle_start, middle_end = np.concatenate((STEPS, sent - 19_000)), np.concatenate((received, sent))
    lanes = [
        lane(0, received - 30_000, received + 25_000 + JITTER[0]),
        lane(1, middle_start, middle_end),
        lane(2, sent - 90_000, sent + 60_000 + JITTER[1]),
    ]
    found = pairs_of(lanes, [(0, 1), (1, 2)])
    assert found == {(0, 1): [(n, 2 * n) for n in range(24)], (1, 2): [(2 * n + 1, n) for n in range(24)]}


def test_what_one_sends_another_receives():
    lanes = [
        lane(0, STEPS, STEPS + 90_000, 1),
        lane(1, STEPS, STEPS + 90_000 + JITTER[0] / 10.0, 1),
        lane(1, STEPS, STEPS + 96_000 + JITTER[1], -1),
    ]
    assert pairs_of(lanes, [(0, 1)]) == {(0, 2): in_order(24)}


def test_those_to_whom_another_would_fit_as_well_stay_alone():
    # in one step a message is repeated within the scatter of its ends, and both repeats could be of either one
    start, end = np.append(STEPS, STEPS[7] + 200.0), np.append(STEPS + 90_000, STEPS[7] + 90_200)
    lanes = [lane(0, start, end + np.append(JITTER[0], 0.0)), lane(1, start + 20_000, end + np.append(JITTER[1], 0.0))]
    [((low, high), found)] = pairs_of(lanes, [(0, 1)]).items()
    assert (low, high) == (0, 1)
    assert {n for n, _ in found} == set(range(25)) - {7, 8}
    assert all(one == other for one, other in found)


@pytest.mark.parametrize("error_ns", [0.0, 20_000.0])
def test_clocks_that_are_off_still_let_ends_meet(error_ns):
    lanes = [lane(0, STEPS, STEPS + 20_000, error_ns=error_ns), lane(1, STEPS + 30_000, STEPS + 50_000 + JITTER[0])]
    assert pairs_of(lanes, [(0, 1)]) == ({(0, 1): in_order(24)} if error_ns else {})
