"""What the clocks are made from: matched operations, or a part of them."""

from __future__ import annotations

import numpy as np
from tests.align.test_timelines import BROADCAST, RECV, SEND, message, op, timelines

from alltrace.align.matching import match


def evidence_of(ranks, **options):
    """(instance, rank, start, end, synchronising, direction) of the evidence."""
    found = match(timelines(ranks)).evidence(**options)
    columns = (found.instance, found.rank, found.start, found.end, found.synchronising, found.direction)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_synchronising_operations_have_ends_and_others_a_direction():
    both = [op(0, 50_000), op(100_000, 150_000, BROADCAST)]
    assert evidence_of({0: both, 1: both}) == [
        (0, 0, 0, 50_000, True, 0), (0, 1, 0, 50_000, True, 0),
        (1, 0, 100_000, 150_000, False, 0), (1, 1, 100_000, 150_000, False, 0),
    ]  # fmt: skip


def test_of_a_message_of_mpi_it_is_known_that_it_is_not_received_before_its_send_begins():
    send, receive = message(0, 90_000, SEND, peer=1, group_rank=0), message(10_000, 50_000, RECV, peer=0, group_rank=1)
    assert evidence_of({0: [send], 1: [receive]}) == [(0, 0, 0, 0, False, 1), (0, 1, 10_000, 50_000, False, -1)]


def test_the_end_of_what_was_only_begun_tells_nothing_of_others():
    rows = {
        r: [op(0, 50_000, evidence="mpi", api_start=0, api_end=50_000, wait_start=w)]
        for r, w in ((0, None), (1, 40_000))
    }
    assert [row[4] for row in evidence_of(rows)] == [True, False]


def test_a_device_of_a_rank_is_evidence_once():
    starts = (0, 170_000, 300_000, 610_000)
    rows = [op(start, start + 50_000, device=d, group_size=4) for d in (0, 1) for start in starts]
    assert [row[:2] for row in evidence_of({0: rows, 1: rows})] == [(n, r) for n in range(4) for r in (0, 1)]


def test_of_many_instances_the_first_16_and_every_second_or_fourth_are_evidence():
    many = [op(100_000 * n, 100_000 * n + 50_000) for n in range(64)]
    ranks = {0: many, 1: many}

    def numbers(most):
        return np.unique([row[0] for row in evidence_of(ranks, most=most)]).tolist()

    assert numbers(128) == list(range(64))
    assert numbers(127) == [*range(16), *range(16, 64, 2)]
    assert numbers(80) == [*range(16), *range(16, 64, 2)]
    assert numbers(79) == [*range(16), *range(16, 64, 4)]
