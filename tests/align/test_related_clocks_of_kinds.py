"""Which members are related, and by what, from kinds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.pair_clocks import ClockLine
from alltrace.align.related_clocks import _clock, _guesses, _of_one_clock, _pairs, _stream_keys


def test_members_with_most_operations_are_related_to_all_others():
    # communicator 5 has 12 operations, communicator 3 has 30
    communicators, members = np.array([5, 5, 3, 3, 3, 5]), np.array([0, 1, 0, 2, 4, 1])
    many = np.array([4, 5, 10, 12, 8, 3])
    assert list(_pairs(communicators, members, many)) == [
        (2, 0),
        (2, 4),
        (0, 2),
        (0, 4),
        (4, 2),
        (4, 0),
        (1, 0),
        (0, 1),
    ]
    six = list(_pairs(np.zeros(6, np.int64), np.arange(6), np.full(6, 2)))
    assert len(six) == 4 * 5
    assert {hub for hub, _ in six} == {0, 1, 2, 3}


def test_guesses_are_the_one_before_those_at_strides_and_the_first():
    assert list(_guesses([7, 8, 9])) == [(7, 8), (8, 9), (7, 9)]
    found = list(_guesses(list(range(6))))
    assert [first for first, second in found if second == 5] == [4, 3, 2, 1, 0]
    assert [first for first, second in found if second == 3] == [2, 1, 0]


def test_streams_of_a_member_are_told_apart_by_how_many_operations_they_have():
    class Kinds(SimpleNamespace):
        def __len__(self):
            return len(self.member)

        @property
        def messages(self):
            return self.exchanging | (self.paired != 0)

    kinds = Kinds(
        member=np.array([0, 0, 0, 1, 1, 1, 0]),
        stream=np.array([7, 8, 9, 20, 21, 22, 8]),
        op=np.zeros(7, np.int64),
        count=np.array([100, 79, 80, 50, 100, 45, 10]),
        exchanging=np.zeros(7, np.bool_),
        paired=np.zeros(7, np.int64),
    )
    keys = _stream_keys(kinds, np.ones(7, np.bool_)).tolist()
    # 100, 89 and 80 are alike on one; on the other 50 is less than four fifths of 100, and 45 not of 50
    assert keys == [0, 0, 0, 1, 0, 1, 0]
    kinds.paired[1] = kinds.paired[6] = 1
    assert _stream_keys(kinds, np.ones(7, np.bool_)).tolist() == [1, 0, 1, 2, 1, 2, 0]


def test_a_relation_makes_a_clock():
    clock = _clock(1000.0, ClockLine(50.0, 1e-4, 2e6, 30.0, 9, 0.7), 3)
    line = ClockLine(50.0, 1e-4, 2e6, 30.0, 9, 0.7)
    assert clock.common(4e6) == pytest.approx(line.apply(np.array([4e6 + 1000.0]))[0])
    assert (clock.scale_ns, clock.certainty, clock.component) == (30.0, 0.7, 3)
    root = _clock(1000.0, None, 4)
    assert (root.common(5.0), root.rate, root.scale_ns, root.certainty, root.component) == (1005.0, 0.0, 0.0, 1.0, 4)
    assert root.common_times(np.array([5, 6])).tolist() == [1005.0, 1006.0]


def test_ranks_of_one_host_are_as_far_off_as_from_its_median():
    ranks = [PlacedRank(n, host, n, 0) for n, host in enumerate("aaabc")]
    solution = SimpleNamespace(components={0: 0, 1: 0, 2: 0, 3: 1, 4: 1}, ahead_ns={0: 5, 1: 7, 2: 100, 3: 0, 4: 9})
    assert _of_one_clock(ranks, solution) == {0: 2.0, 1: 0.0, 2: 93.0}
