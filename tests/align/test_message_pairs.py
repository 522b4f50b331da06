"""Pairs of ranks that send each other messages, by when these run."""

from __future__ import annotations

import numpy as np

from alltrace.align.message_partners import Lane, message_pairs


def lane(rank, ends):
    end = np.array(ends, float)
    return Lane(rank, np.arange(len(end)), np.zeros(len(end), np.int64), end - 90_000, end, exchanging=True)


def test_a_stage_exchanges_with_both_neighbours_in_turn():
    forth, back = np.arange(12) * 10e6, np.arange(12) * 10e6 + 4e6
    middle = np.sort(np.concatenate((forth + 8_000, back)))
    pairs = list(message_pairs([lane(0, forth), lane(1, middle), lane(2, back + 15_000)]))
    assert [p[0] for p in pairs] == [(0, 1), (1, 2)]
    assert all(0.9 < score < 1.0 for _, score, _ in pairs)
    (_, _, [first]), (_, _, [second]) = pairs
    assert [(r, p.tolist()) for r, p in first] == [(0, list(range(12))), (1, list(range(0, 24, 2)))]
    assert [(r, p.tolist()) for r, p in second] == [(1, list(range(1, 24, 2))), (2, list(range(12)))]


def test_ranks_that_never_run_at_once_exchange_nothing():
    assert list(message_pairs([lane(0, np.arange(9) * 10e6), lane(1, np.arange(9) * 10e6 + 5e6)])) == []


def test_messages_that_end_at_once_belong_to_the_streams_that_others_of_them_are_on():
    step = np.arange(12) * 10e6
    forth, back = step + 1e6, step + np.where(np.arange(12) % 2, 1e6, 5e6)
    own = [lane(0, forth), lane(0, back + 6_000)]
    others = [lane(1, forth + 9_000), lane(1, back - 2_000)]  # nearest to the other stream's where both end at once
    [(pair, _, parts)] = message_pairs([*own, *others])
    assert pair == (0, 1)
    assert [[(rank, place.tolist()) for rank, place in part] for part in parts] == [
        [(0, list(range(12))), (1, list(range(12)))]
    ] * 2


def test_messages_within_groups_are_not_believed_where_others_are_between_them():
    step = np.arange(12) * 10e6
    lanes = [lane(rank, step + rank // 2 * 50_000 + rank * 2_000) for rank in range(4)]
    assert [pair for pair, _, _ in message_pairs(lanes, [(0, 2)])] == [(0, 1), (2, 3)]
    assert [pair for pair, _, _ in message_pairs(lanes, [(0, 1), (2, 3)])] == [(0, 2), (1, 3)]
