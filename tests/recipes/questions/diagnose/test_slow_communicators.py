"""Communicators are compared with those that have as many ranks and hosts, by the same operations of sizes alike."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.recipes.questions.diagnose import slow_communicators
from alltrace.recipes.questions.diagnose.communication import _rail

MIB = 1 << 20


def compared(rows, hosts=None, sizes=(2, 2, 2)):
    """What is slow of rows of communicator, operation, bytes and transfer in ns, one instance each."""
    return slow_communicators.slow_communicators(*of_rows(rows, hosts, sizes))


def of_rows(rows, hosts=None, sizes=(2, 2, 2), found_by="structure"):
    """Communicators and their members, of such rows."""
    number, op, size, took = zip(*rows, strict=True)
    members = SimpleNamespace(
        rank=np.zeros(len(rows), int),
        communicator=np.array(number),
        op=np.array(op, object),
        size=np.array(size),
        transfer=np.array(took),
        certain=np.ones(len(rows), bool),
        firsts=np.arange(len(rows)),
    )
    groups = [
        SimpleNamespace(number=n, size=s, ranks=tuple(range(10 * n, 10 * n + s)), found_by=found_by)
        for n, s in enumerate(sizes)
    ]
    all_ranks = SimpleNamespace(alignment=SimpleNamespace(groups=groups), hosts=hosts or {})
    return all_ranks, members


@pytest.mark.parametrize(
    ("slow", "other", "found_by", "share"),
    [
        ((0, "AllGather", 0, 400), (1, "ReduceScatter", 0, 100), "ids", 0.75),
        ((0, "AllGather", 0, 400), (0, "ReduceScatter", 0, 100), "structure", 0.75),  # one communicator, or two
        ((0, "AllGather", 0, 400), (0, "ReduceScatter", 0, 100), "ids", 0),  # one, with one link
        ((0, "AllReduce", 0, 400), (1, "AllGather", 0, 100), "ids", 0.5),  # which goes around twice
        ((0, "AllReduce", 0, 300), (1, "AllGather", 0, 100), "ids", 0),
        ((0, "AllGather", 0, 150), (1, "ReduceScatter", 0, 100), "ids", 0),
        ((0, "AllGather", 0, 1_600), (1, "ReduceScatter", 0, 100), "ids", 0),  # no link is so slow
        ((0, "AllGather", 0, 400), (1, "AllGather", 0, 100), "ids", 0),  # compared with each other
        ((0, "AllGather", 4 * MIB, 400), (1, "ReduceScatter", 4 * MIB, 100), "ids", 0),  # so too, by their sizes
        ((0, "AllToAll", 0, 400), (1, "ReduceScatter", 0, 100), "ids", 0),
    ],
)
def test_without_sizes_a_slow_link_and_a_large_message_look_the_same(slow, other, found_by, share):
    shares = slow_communicators.possible_excess(*of_rows([slow] * 3 + [other] * 3, found_by=found_by))
    assert shares.tolist() == pytest.approx([share] * 3 + [0] * 3)


def test_few_operations_of_unknown_size_and_other_communicators_tell_nothing():
    rows = [(0, "AllGather", 0, 400)] * 3 + [(1, "ReduceScatter", 0, 100)] * 2
    assert not slow_communicators.possible_excess(*of_rows(rows)).any()
    rows = [(0, "AllGather", 0, 400)] * 3 + [(1, "ReduceScatter", 0, 100)] * 3
    assert not slow_communicators.possible_excess(*of_rows(rows, sizes=(2, 4))).any()
    assert not slow_communicators.possible_excess(*of_rows(rows, {0: "a", 1: "a", 10: "a", 11: "b"})).any()


def test_a_slow_communicator_is_told_with_its_rate_and_its_peers():
    rows = [(n, "AllReduce", 4 * MIB, 1_000_000 if n == 1 else 250_000) for n in range(3) for _ in range(3)]
    found = compared(rows)
    # a ring of two moves the whole message once: 2 (n - 1) / n
    assert found == {1: (4.0, pytest.approx(4 * MIB / 1e6), pytest.approx(16 * MIB / 1e6))}


def test_other_operations_and_sizes_are_no_measure():
    reduced = [(0, "AllReduce", 100 * MIB, 1_000_000)] * 3
    assert compared([*reduced, *[(1, "AllToAll", 100 * MIB, 9_000_000)] * 3]) == {}
    assert compared([*reduced, *[(1, "AllReduce", 2 * MIB, 100_000)] * 3]) == {}
    assert compared([*reduced, *[(1, "AllReduce", 25 * MIB, 1_000_000)] * 3])[1].ratio == pytest.approx(4)


def test_gathers_and_reductions_go_around_the_same_ring():
    # of two ranks, an all-gather of 4 MiB a rank moves 4 MiB, and so does an all-reduce of 4 MiB
    rows = [
        (0, "AllGather", 4 * MIB, 1_000_000),
        (1, "ReduceScatter", 4 * MIB, 250_000),
        (2, "AllReduce", 4 * MIB, 250_000),
    ]
    assert compared([row for row in rows for _ in range(3)])[0].ratio == pytest.approx(4)


def test_operations_without_peers_do_not_hide_one_that_is_slow():
    rows = [(n, "AllReduce", 4 * MIB, 1_000_000 if n == 1 else 250_000) for n in range(3) for _ in range(3)]
    alone = [(1, "AllToAll", 4 * MIB, 50_000_000)] * 3
    assert compared([*rows, *alone])[1] == (4.0, pytest.approx(4 * MIB / 1e6), pytest.approx(16 * MIB / 1e6))


def test_several_operations_count_by_the_time_that_they_take():
    rows = [(n, "AllReduce", 4 * MIB, 400_000) for n in (0, 2) for _ in range(3)]
    rows += [(n, "AllToAll", 4 * MIB, 400_000) for n in (0, 2) for _ in range(3)]
    rows += [(1, "AllReduce", 4 * MIB, 1_200_000)] * 3 + [(1, "AllToAll", 4 * MIB, 400_000)] * 3
    assert compared(rows)[1].ratio == pytest.approx(2)  # 1.6 ms instead of 0.8 ms
    quick = [(1, "AllToAll", 4 * MIB, 4_000_000)] * 3
    slow_peers = [(n, "AllToAll", 4 * MIB, 4_000_000) for n in (0, 2) for _ in range(3)]
    rows = [r for r in rows if r[1] == "AllReduce"]
    assert compared([*rows, *quick, *slow_peers]) == {}  # 5.2 ms instead of 4.4 ms


def test_communicators_of_other_sizes_or_hosts_are_not_alike():
    rows = [(n, "AllReduce", 4 * MIB, 1_000_000 if n == 1 else 250_000) for n in range(2) for _ in range(3)]
    assert set(compared(rows, sizes=(2, 2))) == {1}
    assert compared(rows, sizes=(2, 3)) == {}
    assert compared(rows, hosts={10: "a", 11: "b", 0: "a", 1: "a"}, sizes=(2, 2)) == {}


def test_few_or_uncertain_operations_say_nothing():
    rows = [(n, "AllReduce", 4 * MIB, 1_000_000 if n == 1 else 250_000) for n in range(3) for _ in range(2)]
    assert compared(rows) == {}


def _alike(sizes, transfers, counts):
    """Operations of two communicators with these bytes, times and numbers, one instance each."""
    rows = [
        (n, size, took)
        for n, (size, took, count) in enumerate(zip(sizes, transfers, counts, strict=True))
        for _ in range(count)
    ]
    group, size, took = (np.array(column) for column in zip(*rows, strict=True))
    members = SimpleNamespace(communicator=group, op=np.full(len(rows), "SendRecv", object), size=size, transfer=took)
    members.certain, members.firsts = np.ones(len(rows), bool), np.arange(len(rows))
    return members


@pytest.mark.parametrize(
    ("sizes", "counts", "found"),
    [
        ((0, 0), (20, 20), {0: 4.0, 1: 0.25}),
        ((0, 0), (20, 19), {0: 4.0, 1: 0.25}),
        # another number of operations, or others, are not a measure
        ((0, 0), (20, 10), {}),
        ((0, 64), (20, 20), {}),
        ((0, 0), (2, 2), {}),
    ],
)
def test_communicators_without_large_messages_are_compared_by_the_same_operations(sizes, counts, found):
    members = _alike(sizes, (400, 100), counts)
    assert slow_communicators._longer(members, {0: (0, 1), 1: (2, 3)}) == found


@pytest.mark.parametrize(("size", "found"), [(0, {}), (64, {0: 4.0, 1: 0.25})])
def test_of_the_same_ranks_what_takes_longer_moves_more(size, found):
    members = _alike((size, size), (400, 100), (20, 20))
    assert slow_communicators._longer(members, {0: (0, 1), 1: (0, 1)}) == found


def test_communicators_that_share_one_rank_of_a_slow_one_need_to_be_less_slow():
    ranks = dict(enumerate([(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6)]))
    slow = {2: 1.8}
    assert slow_communicators._of_one_rank(ranks, {0: 1.4, 1: 0.7, 2: 1.8, 3: 1.0}, slow) == {2: 1.8, 0: 1.4}
    assert slow_communicators._of_one_rank(ranks, {0: 1.1, 1: 0.9, 2: 1.8}, slow) == slow
    # both ranks have others that are slower, so that neither is the one
    assert slow_communicators._of_one_rank(ranks, {0: 1.4, 1: 1.4, 2: 1.8}, slow) == slow
    assert slow_communicators._of_one_rank(ranks, {}, {}) == {}


def test_the_latency_of_a_few_bytes_is_no_slow_link_beside_one_that_costs():
    took = [8_000_000] * 8 + [6_000] * 8 + [200_000] * 8
    members = SimpleNamespace(communicator=np.repeat([0, 1, 2], 8), transfer=np.array(took), firsts=np.arange(24))
    found = slow_communicators._that_cost(members, {0: 30.0, 1: 1.7, 2: 15.0})
    # what is slower by as much is the same link's
    assert set(found) == {0, 2}
    assert slow_communicators._that_cost(members, {1: 1.7}) == {1: 1.7}


def test_a_small_difference_is_enough_where_peers_are_even():
    even = [(n, "AllReduce", 4 * MIB, 350_000 if n == 1 else 250_000 + n) for n in range(4) for _ in range(3)]
    assert compared(even, sizes=(2, 2, 2, 2))[1].ratio == pytest.approx(1.4, rel=1e-3)
    uneven = [
        (n, "AllReduce", 4 * MIB, 350_000 if n == 1 else 250_000 * (1 + n / 10)) for n in range(4) for _ in range(3)
    ]
    assert compared(uneven, sizes=(2, 2, 2, 2)) == {}
    assert compared(even[:9], sizes=(2, 2, 2)) == {}


def test_operations_without_time_or_size_are_no_measure():
    rows = [(n, "AllReduce", 4 * MIB, 1_000_000 if n == 1 else 250_000) for n in range(3) for _ in range(3)]
    empty = [(1, "AllReduce", 4 * MIB, 0), (1, "AllReduce", 0, 10), (0, "AllReduce", 4 * MIB, 0)]
    assert compared([*rows, *empty]) == compared(rows)


@pytest.mark.parametrize(
    ("ranks", "rail"), [([1, 5, 9], 1), ([1, 5], 1), ([1, 4], None), ([1], None), ([1, 2], None), ([0, 12], None)]
)
def test_the_ranks_at_one_place_of_their_hosts_are_of_one_rail(ranks, rail):
    hosts = {rank: f"node{rank // 4}" for rank in range(13)}  # the last host has one rank
    assert _rail(hosts, ranks) == rail
