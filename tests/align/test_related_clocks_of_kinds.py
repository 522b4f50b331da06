"""Which members are related, and by what, from kinds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.pair_clocks import ClockLine, Ends
from alltrace.align.related_clocks import (
    Placing,
    _clock,
    _Edge,
    _Forest,
    _guesses,
    _of_one_clock,
    _pairs,
    _sharpest_first,
    _stream_keys,
)


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
    assert root.common(np.array([5, 6])).tolist() == [1005.0, 1006.0]


def test_ranks_of_one_host_are_as_far_off_as_from_its_median():
    ranks = [PlacedRank(n, host, n, 0) for n, host in enumerate("aaabc")]
    solution = SimpleNamespace(components={0: 0, 1: 0, 2: 0, 3: 1, 4: 1}, ahead_ns={0: 5, 1: 7, 2: 100, 3: 0, 4: 9})
    assert _of_one_clock(ranks, solution) == {0: 2.0, 1: 0.0, 2: 93.0}


def test_stamps_of_a_host_can_be_taken_for_one_clock():
    hosts, units = {0: "a", 1: "a", 2: "b"}, {0: ("report", 0), 1: ("report", 1), 2: ("report", 2)}
    placing = Placing({}, units, hosts, frozenset({0, 1}))
    assert placing.by_host().units == {0: ("host", "a"), 1: ("host", "a"), 2: ("report", 2)}
    assert placing.by_host()._replace(units=units) == placing


def forest_of_two_hosts(late_us, *, messages=True, length=40):
    """A forest that was grown by pairs of ranks 0 to 3 of one host and 4 to 7 of another, which are so late, us."""
    time = np.cumsum(np.random.default_rng(5).uniform(4e6, 20e6, length))
    key, none = np.zeros(length, np.int64), np.full(length, -1)
    of = {r: Ends(time + 7e6 * (r % 4), key, none) for r in range(4)}
    of |= {r: Ends(of[r - 4].time - 2e9 - 1e3 * late_us[r - 4], key, none) for r in range(4, 8)}
    placing = Placing({}, {}, {r: "ab"[r // 4] for r in range(8)}, frozenset(range(8))).by_host()
    forest = _Forest(list(range(8)), placing)
    forest.grow(_Edge(r, r + 4, of.__getitem__, placing, messages=messages) for r in range(len(late_us)))
    return forest


@pytest.mark.parametrize(
    ("messages", "late_us", "expected_us"),
    [
        (True, (33, -31, 33, -31), 1.0),  # both ends of a message are of a pair that is early or late by itself
        (False, (33, -31, 33, -31), 33.0),
        (True, (33, 33, 9000, 33), 33.0),  # one that is a period off does not count
        (True, (9000, 33, 33, 33), 33.0),  # nor if it is the first
    ],
)
def test_clocks_of_hosts_are_related_by_all_pairs_that_exchange_messages(messages, late_us, expected_us):
    lines = forest_of_two_hosts(late_us, messages=messages).lines(list(range(8)))
    assert [lines[r] for r in range(4)] == [None] * 4
    assert [lines[r].offset_ns for r in range(4, 8)] == [pytest.approx(2e9 + 1e3 * expected_us, abs=10)] * 4
    assert (lines[4].scale_ns >= 32e3) == (messages and late_us[1] < 0)


def test_clocks_are_not_related_by_pairs_that_contradict_each_other():
    contradicted = forest_of_two_hosts((33, 33, 9000, 9000))
    contradicted.grow_doubtful()
    assert contradicted.component(0) != contradicted.component(4)
    assert forest_of_two_hosts((33, 33, 9000, 9000), messages=False).connected


@pytest.mark.parametrize(
    ("certainties", "counts", "expected"),
    [
        ((0.375, 0.375, 0.3125), (6, 6, 5), 1.0),  # sure, of few ends each, together 17
        ((0.3125, 0.4375), (10, 9), 7 / 9),  # all may be whole periods off
        ((0.5, 0.9375, 0.5), (48, 15, 48), 1.0),  # no pair that agrees with the surest is
        ((0.25,), (4,), 0.25),
    ],
)
def test_pairs_that_agree_have_more_ends_and_are_as_sure_of_the_period_as_the_surest(certainties, counts, expected):
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    placing = Placing({}, {}, {r: "ab"[r // 3] for r in range(6)}, frozenset(range(6))).by_host()

    def line_of(place):
        return lambda first, second, *, rate: ClockLine(5e6, 0.0, 0.0, 30.0, counts[place], certainties[place])

    edges = [_Edge(n, n + 3, lambda _: ends, placing, line_of(n), messages=True) for n in range(len(counts))]
    forest = _Forest(list(range(6)), placing)
    assert forest._agreed(edges[0], edges).line.certainty == pytest.approx(expected)
    twice = [_Edge(e.first, e.second, e.ends, placing, e.how, messages=True) for e in edges]
    assert forest._agreed(edges[0], [*edges, *twice]).line.certainty == pytest.approx(expected)  # a pair has one vote
    forest.grow(edges)
    forest.grow_doubtful()
    assert forest.connected == (expected >= 0.8)


@pytest.mark.parametrize(
    ("second_us", "scale_us", "expected"),
    [
        (4_999, 30.0, (2_499_500.0, np.hypot(30e3, 2_499_500.0))),  # half of 10 ms from one end to the next is near
        (5_001, 30.0, None),
        (5_001, 59.0, None),  # has more than half of the votes of the sharper
        (5_001, 61.0, (0.0, 30e3)),
        (4_999, 61.0, (0.0, 30e3)),  # near, but not sharp enough for the mean
    ],
)
def test_lines_vote_by_how_sharp_they_are(second_us, scale_us, expected):
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    placing = Placing({}, {}, {r: "ab"[r // 2] for r in range(4)}, frozenset(range(4))).by_host()

    def edge(first, second, offset_ns, scale_ns):
        line = ClockLine(offset_ns, 0.0, 0.0, scale_ns, 40, 1.0)
        return _Edge(first, second, lambda _: ends, placing, lambda *_, rate: line, messages=True)

    edges = [edge(0, 2, 0.0, 30e3), edge(3, 1, -1e3 * second_us, 1e3 * scale_us)]  # the second from the other host
    agreed = _Forest([0, 1, 2, 3], placing)._agreed(edges[0], edges)
    assert (agreed and (agreed.line.offset_ns, agreed.line.scale_ns)) == (expected and pytest.approx(expected))


@pytest.mark.parametrize(("many", "expected_ns"), [(80, 0.0), (40, None)])
def test_lines_vote_by_how_many_ends_they_are_through(many, expected_ns):
    """Stages of a pipeline end their steps one after another, by few sharp ends, and exchange many messages."""
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    placing = Placing({}, {}, {r: "ab"[r // 2] for r in range(4)}, frozenset(range(4))).by_host()

    def edge(first, second, offset_ns, scale_ns, count):
        line = ClockLine(offset_ns, 0.0, 0.0, scale_ns, count, 1.0)
        return _Edge(first, second, lambda _: ends, placing, lambda *_, rate: line, messages=True)

    edges = [edge(0, 2, 0.0, 60e3, many), edge(0, 3, 9e6, 40e3, 14), edge(1, 3, 9e6, 40e3, 12)]
    agreed = _Forest([0, 1, 2, 3], placing)._agreed(edges[0], edges)
    assert (agreed and agreed.line.offset_ns) == expected_ns


@pytest.mark.parametrize(
    ("count", "certainty", "connected"),
    [(12, 0.75, True), (7, 7 / 16, True), (6, 6 / 16, False), (12, 0.55, False), (40, 0.75, False)],
)
def test_few_ends_that_show_the_period_relate_pipelines_after_all_others(count, certainty, connected):
    """What such ends relate is the ranks of one stage, whose pipelines exchange no messages."""
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    lines = {(0, 1): (3e3, 88, 1.0), (2, 3): (70e3, 80, 1.0), (0, 2): (4e3, count, certainty)}

    def edge(first, second):
        scale_ns, many, sure = lines[first, second]
        line = ClockLine(0.0, 0.0, 0.0, scale_ns, many, sure)
        return _Edge(first, second, lambda _: ends, Placing(), lambda *_, rate: line, messages=True)

    forest = _Forest([0, 1, 2, 3], Placing())
    forest.grow(edge(*pair) for pair in lines)
    assert not forest.connected
    forest.grow_doubtful()
    assert forest.connected == connected


def test_ranks_are_related_at_once_only_if_no_pairs_before_agree_much_more_sharply():
    """Streams of messages relate all loosely; other operations relate two pairs sharply, one of them at the end."""
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))

    def edge(first, second, offset_ns, scale_ns):
        line = ClockLine(offset_ns, 0.0, 0.0, scale_ns, 40, 1.0)
        return _Edge(first, second, lambda _: ends, Placing(), lambda *_, rate: line, messages=True)

    streams = [edge(0, 1, 0.0, 58e3), edge(1, 2, 9e6, 70e3)]
    forest = _Forest([0, 1, 2], Placing())
    forest.grow([*streams, edge(0, 1, 0.0, 7e3), edge(0, 2, 3e6, 9e3)])
    assert forest.lines([0, 1, 2])[2].offset_ns == 3e6


@pytest.mark.parametrize(("shared", "expected_ns"), [(3, 7e6), (4, 0.0)])
def test_messages_of_a_stream_relate_one_pair(shared, expected_ns):
    """Rank 2 exchanges messages with rank 1 over a link that scatters more, if its stream is not that with rank 0."""
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))

    def edge(first, second, offset_ns, scale_ns, streams=()):
        line = ClockLine(offset_ns, 0.0, 0.0, scale_ns, 40, 1.0, streams)
        return _Edge(first, second, lambda _: ends, Placing(), lambda *_, rate: line, messages=True)

    forest = _Forest([0, 1, 2], Placing())
    forest.grow([edge(0, 1, 0.0, 3e3, (8, 4)), edge(1, 2, 7e6, 40e3, (shared, 5))])
    forest.grow([edge(0, 2, 0.0, 30e3)])  # collectives
    assert forest.lines([0, 1, 2])[2].offset_ns == expected_ns


def test_what_two_ranks_show_in_two_ways_votes_twice():
    """Their messages are related loosely and another operation sharply."""
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    lines = [ClockLine(9e6, 0.0, 0.0, 88e3, 24, 1.0), ClockLine(0.0, 0.0, 0.0, 5e3, 12, 0.6)]
    hows = [lambda *_, rate, line=line: line for line in lines]
    edges = [_Edge(0, 1, lambda _: ends, Placing(), how, messages=True) for how in hows]
    agreed = _Forest([0, 1], Placing())._agreed(edges[0], edges)
    assert agreed is not None
    line = agreed.line
    assert (line.offset_ns, line.scale_ns) == (0.0, 5e3)


def test_ends_that_show_the_same_in_two_ways_are_not_twice_as_many():
    ends = Ends(np.arange(20) * 1e7, np.zeros(20, np.int64), np.full(20, -1))
    lines = [ClockLine(0.0, 0.0, 0.0, 5e3, count, count / 16) for count in (8, 6)]
    edges = [_Edge(0, 1, lambda _: ends, Placing(), lambda *_, rate, line=line: line, messages=True) for line in lines]
    agreed = _Forest([0, 1], Placing())._agreed(edges[0], edges)
    assert agreed is not None
    line = agreed.line
    assert (line.count, line.certainty) == (8, 0.5)


def test_ranks_that_may_exchange_messages_are_related_by_their_sharpest_operations_first():
    time = np.arange(4.0)
    ends = [Ends(time + 10.0 * r, np.zeros(4, np.int64), np.full(4, -1)) for r in range(4)]

    def how(scale_ns, certain):
        def line(first, second, *, rate):
            stride = int(second.time[0] - first.time[0]) // 10
            certainty = 1.0 if stride in certain else 0.5
            return ClockLine(0.0, 0.0, 0.0, scale_ns[stride], 9, certainty) if stride in scale_ns else None

        return line

    streams, all_operations = how({1: 90.0, 2: 20.0, 3: 5.0}, {1, 2}), how({1: 30.0}, {1})

    def edges_of(*hows):
        return [
            [_Edge(*pair, ends.__getitem__, Placing(), how, messages=True) for pair in _guesses([0, 1, 2, 3])]
            for how in hows
        ]

    edges = list(_sharpest_first(edges_of(streams, all_operations)))
    at_two = [(0, 2, streams), (1, 3, streams)]
    at_one = [(0, 1), (1, 2), (2, 3)]
    assert [(e.first, e.second, e.how) for e in edges] == [
        *at_two,
        *((*pair, all_operations) for pair in at_one),
        *((*pair, streams) for pair in at_one),
    ]


def test_ranks_of_one_unit_are_not_apart():
    of_two_hosts = Placing({}, {}, dict(enumerate("aabb")), frozenset(range(4))).by_host()
    edges = [_Edge(*pair, lambda _: None, of_two_hosts) for pair in _guesses([0, 1, 2, 3])]
    assert [(e.first, e.second) for e in edges if e.apart] == [(1, 2), (0, 2), (1, 3), (0, 3)]
