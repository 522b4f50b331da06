"""Pairs of ranks that send each other messages, by when these run."""

from __future__ import annotations

import numpy as np

from alltrace.align.message_pairs import Lane, message_pairs


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
