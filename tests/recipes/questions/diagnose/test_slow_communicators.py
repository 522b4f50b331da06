"""Communicators are compared with those that have as many ranks and hosts, by the same operations of sizes alike."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.recipes.questions.diagnose import slow_communicators
from alltrace.recipes.questions.diagnose.communication import _rail

MIB = 1 << 20


def compared(rows, hosts=None, sizes=(2, 2, 2), ranks=None):
    """What is slow of rows of communicator, operation, bytes and transfer in ns, one instance each."""
    return {n: one for _, its in links(rows, hosts, sizes, ranks) for n, one in its.items()}


def links(rows, hosts=None, sizes=(2, 2, 2), ranks=None):
    """The causes of that."""
    return slow_communicators.slow_links(*of_rows(rows, hosts, sizes, ranks=ranks))


def rates(found):
    """Of each slow communicator how many times as long it takes, its bus bandwidth and that of its peers."""
    return {n: (one.ratio, one.gb_per_s, one.peers_gb_per_s) for n, one in found.items()}


def of_rows(rows, hosts=None, sizes=(2, 2, 2), found_by="structure", ranks=None):
    """Communicators and their members, of such rows; `ranks`: of each communicator, by default no two share one."""
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
        SimpleNamespace(number=n, size=len(its), ranks=its, found_by=found_by)
        for n, its in enumerate(ranks or [tuple(range(10 * n, 10 * n + s)) for n, s in enumerate(sizes)])
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


def test_operations_of_other_ranks_show_how_long_those_of_unknown_size_take():
    rows = [
        (n, op, 0, took) for n in (0, 1) for op, took in (("AllGather", 400), ("ReduceScatter", 100)) for _ in range(3)
    ]
    assert not slow_communicators.possible_excess(*of_rows(rows)).any()
    same = of_rows(rows, ranks=[(0, 1), (0, 1)])
    assert slow_communicators.possible_excess(*same).max() == pytest.approx(0.75)


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
    assert rates(found) == {1: (4.0, pytest.approx(4 * MIB / 1e6), pytest.approx(16 * MIB / 1e6))}
    assert (found[1].peers, found[1].lost_ns, found[1].took_ns) == (2, pytest.approx(2_250_000), 1_000_000)


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
    assert rates(compared([*rows, *alone])) == rates(compared(rows))


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


@pytest.mark.parametrize(
    ("sizes", "counts", "ratio"),
    [
        ((0, 0), (20, 20), 4.0),
        ((0, 0), (20, 19), 4.0),
        # another number of operations, or others, are not a measure
        ((0, 0), (20, 10), None),
        ((0, 64), (20, 20), None),
        ((0, 0), (2, 2), None),
    ],
)
def test_communicators_without_large_messages_are_compared_by_the_same_operations(sizes, counts, ratio):
    rows = [(n, "SendRecv", sizes[n], (400, 100)[n]) for n in range(2) for _ in range(counts[n])]
    found = compared(rows)
    assert rates(found) == ({} if ratio is None else {0: (ratio, None, None)})


@pytest.mark.parametrize(("size", "slow"), [(0, []), (64, [0])])
def test_of_the_same_ranks_what_takes_longer_moves_more(size, slow):
    rows = [(n, "SendRecv", size, (400, 100)[n]) for n in range(2) for _ in range(20)]
    assert list(compared(rows, ranks=[(0, 1), (0, 1)])) == slow


PLANES = [(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7), (8, 9)]
"""The communicators of two groups of four ranks, of the ranks at each place of both, and of two others."""


def of_planes(factors, size=4 * MIB, tensor=(MIB, 100_000)):
    """Operations of `PLANES` that take some times as long as usual; `tensor`: size and time of those of four ranks."""
    usual = [tensor, tensor, *[(size, 300_000)] * 5]
    return [
        (n, "AllReduce", nbytes, int(took * factors.get(n, 1.0) * (1 + i / 100)))
        for n, (nbytes, took) in enumerate(usual)
        for i in range(5)
    ]


@pytest.mark.parametrize(
    ("factors", "causes"),
    [
        # rank 5 has both slow communicators, and no other rank
        ({1: 3.0, 3: 3.0}, [(5, {1, 3})]),
        # a shorter operation may be less slow, as its latency stays, but not slower
        ({1: 2.2, 3: 4.0}, [(5, {1, 3})]),
        ({1: 8.0, 3: 2.5}, [(None, {1}), (None, {3})]),
        # a link and another communicator
        ({1: 3.0, 3: 3.0, 6: 3.0}, [(5, {1, 3}), (None, {6})]),
        # rank 5 or rank 6
        ({1: 3.0, 3: 3.0, 4: 3.0}, [(None, {1}), (None, {3, 4})]),
        ({0: 3.0}, [(None, {0})]),
        # two of one kind have one cause if they are as slow
        ({2: 3.0, 4: 2.5}, [(None, {2, 4})]),
        ({2: 8.0, 4: 2.5}, [(None, {2}), (None, {4})]),
    ],
)
def test_slow_communicators_have_the_fewest_causes(factors, causes):
    for size, tensor in ((4 * MIB, (MIB, 100_000)), (0, (0, 100_000))):
        found = [(rank, set(its)) for rank, its in links(of_planes(factors, size, tensor), ranks=PLANES)]
        assert found == causes, size


def test_communicators_of_the_same_ranks_have_one_cause():
    rows = [
        (n, "AllReduce", size, took)
        for n, size, took in ((0, 4 * MIB, 900_000), (1, 4 * MIB, 300_000), (2, 8, 90_000), (3, 8, 10_000))
        for _ in range(5)
    ]
    found = links(rows, ranks=[(0, 1), (2, 3), (0, 1), (2, 3)])
    assert [(rank, set(its)) for rank, its in found] == [(None, {0, 2})]


PAIRS = [(0, 1), (0, 2), (0, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (1, 2), (5, 6)]


def of_pairs(*took, ranks):
    """Ten pairs with five operations each, of 64 MiB or, where the time is a tuple, of its size."""
    its = [(one, 64 * MIB) if isinstance(one, int) else one for one in took]
    rows = [(n, "AllReduce", size, ns) for n, (ns, size) in enumerate(its) for _ in range(5)]
    return [(rank, sorted(slow)) for rank, slow in links(rows, ranks=ranks)]


def test_a_link_needs_a_slow_communicator_of_its_own():
    short = (3_000_000, 8 * MIB), (1_000_000, 8 * MIB)
    took = (13_000_000, 13_000_000, short[0], *[10_000_000] * 5, short[1], short[1])
    assert of_pairs(*took, ranks=PAIRS) == [(None, [2])]


def test_another_slow_communicator_of_the_ranks_of_a_link_is_a_cause_of_its_own():
    ranks = [(0, 1), (0, 2), (0, 1), *PAIRS[3:8], (4, 5), (6, 7)]
    took = (20_000_000, 20_000_000, (10_000_000, 8 * MIB), *[10_000_000] * 5, *[(1_000_000, 8 * MIB)] * 2)
    assert of_pairs(*took, ranks=ranks) == [(0, [0, 1]), (None, [2])]


def test_the_rank_with_most_slow_communicators_is_named():
    ranks = [*PLANES, (5, 10)]
    extra = [(7, "AllReduce", 4 * MIB, 900_000)] * 5
    found = links([*of_planes({1: 3.0, 3: 3.0, 4: 3.0}), *extra], ranks=ranks)
    assert [(rank, set(its)) for rank, its in found] == [(5, {1, 3, 7}), (None, {4})]


@pytest.mark.parametrize(("scatter", "rank"), [(0.1, 5), (0.25, None)])
def test_what_is_slower_by_less_than_is_usual_shows_no_link(scatter, rank):
    rows = [row for row in of_planes({3: 2.0}) if row[0] > 1]
    for n, took in ((0, 400_000), (1, 550_000)):
        rows += [(n, "AllReduce", MIB, int(took * (1 + scatter * (i - 2)))) for i in range(5)]
    assert links(rows, ranks=PLANES)[0].rank == rank


def test_links_of_several_ranks_are_slow():
    ranks = [*PLANES, *(tuple(range(first, first + 4)) for first in (9, 13, 17))]
    factors = {1: 3.0, 3: 3.0, 6: 2.5, 7: 2.5}
    tensor = [(n, "AllReduce", MIB, int(100_000 * factors.get(n, 1.0))) for n in (7, 8, 9) for _ in range(5)]
    found = {rank: set(its) for rank, its in links([*of_planes(factors), *tensor], ranks=ranks)}
    assert found == {5: {1, 3}, 9: {6, 7}}


def test_a_link_is_within_a_host_or_between_hosts():
    hosts = {rank: f"node{rank // 4}" for rank in range(8)}
    ranks = [*PLANES[:6], (0, 5), (1, 6), (2, 7), (3, 4)]

    def causes(factors):
        pairs = [(n, "AllGather", 4 * MIB, int(300_000 * factors.get(n, 1))) for n in range(6, 10) for _ in range(5)]
        rows = [row for row in of_planes(factors) if row[0] < 6]
        return [(rank, set(its)) for rank, its in links([*rows, *pairs], hosts, ranks=ranks)]

    # what is fast within its host says nothing of the adapter of rank 5, nor what is fast between hosts of the others
    assert causes({3: 3.0, 6: 3.0}) == [(5, {3, 6})]
    assert causes({1: 3.0}) == [(None, {1})]
    assert causes({1: 3.0, 3: 3.0, 6: 3.0}) == [(5, {1, 3, 6})]
    # but one of them is as fast as elsewhere, so it is not the adapter
    assert causes({1: 3.0, 3: 3.0}) == [(None, {1}), (None, {3})]


def test_what_is_short_does_not_show_that_a_link_is_fast():
    short = [(n, "AllReduce", 8, 9_000) for n in (7, 8) for _ in range(5)]
    ranks = [*PLANES, (2, 3, 5, 7), (0, 1, 4, 6)]
    assert [link.rank for link in links([*of_planes({1: 3.0, 3: 3.0}), *short], ranks=ranks)] == [5]
    long = [(n, op, size, 20 * took) for n, op, size, took in short]
    assert [link.rank for link in links([*of_planes({1: 3.0, 3: 3.0}), *long], ranks=ranks)] == [None, None]


def test_what_is_slower_in_most_operations_does_not_show_that_a_link_is_fast():
    short = [(7, "AllReduce", 8, 90_000)] * 5 + [(8, "AllReduce", 8, took) for took in (9_000,) * 3 + (99_000,) * 2]
    ranks = [*PLANES, (2, 3, 5, 7), (0, 1, 4, 6)]
    assert [link.rank for link in links([*of_planes({1: 3.0, 3: 3.0}), *short], ranks=ranks)] == [5]


def test_the_latency_of_a_few_bytes_shows_no_link():
    ranks = [*PLANES, (4, 8), (6, 9)]
    few = [(n, "AllReduce", 8, took) for n, took in ((7, 9_000), (8, 5_000)) for _ in range(5)]
    (one, other) = links([*of_planes({2: 4.0}, tensor=(MIB, 50_000)), *few], ranks=ranks)
    assert (one.rank, set(one.slow), other.rank, set(other.slow)) == (None, {2}, None, {7})
    # what is as slow is the same link's
    as_slow = [(n, "AllReduce", 8, took) for n, took in ((7, 21_000), (8, 5_000)) for _ in range(5)]
    assert [link.rank for link in links([*of_planes({2: 4.0}, tensor=(MIB, 50_000)), *as_slow], ranks=ranks)] == [4]


@pytest.mark.parametrize(
    ("usual", "quick", "slow"),
    [
        (400_000, 2, [0]),
        (400_000, 6, []),
        (400_000, 16, []),
        (500_000, 2, [0]),
        (500_000, 6, []),
    ],
)
def test_what_some_operations_wait_for_is_no_slow_link(usual, quick, slow):
    took = [(usual, 250_000)[i < quick] for i in range(20)]
    rows = [(0, "AllReduce", 4 * MIB, ns) for ns in took]
    rows += [(n, "AllReduce", 4 * MIB, 250_000 + 100 * i) for n in (1, 2, 3) for i in range(20)]
    assert list(compared(rows, sizes=(2, 2, 2, 2))) == slow


@pytest.mark.parametrize(("usual", "slow"), [(500_000, [0]), (375_000, [])])
def test_of_what_is_far_slower_peers_may_wait_for_another_reason(usual, slow):
    rows = [(0, "AllReduce", 4 * MIB, usual)] * 20
    rows += [(1, "AllReduce", 4 * MIB, (250_000, 500_000)[i > 12]) for i in range(20)]
    assert list(compared(rows, sizes=(2, 2))) == slow


@pytest.mark.parametrize(("scatter", "slow"), [(0.02, [0]), (0.2, [])])
def test_of_one_peer_the_operations_of_both_show_how_much_is_usual(scatter, slow):
    rows = [
        (n, "AllReduce", 4 * MIB, int(took * (1 + scatter * (i - 2))))
        for n, took in enumerate((3e5, 2e5))
        for i in range(5)
    ]
    assert list(compared(rows, sizes=(2, 2))) == slow


def test_a_small_difference_is_enough_where_peers_are_even():
    even = [(n, "AllReduce", 4 * MIB, 350_000 if n == 1 else 250_000 + n) for n in range(4) for _ in range(3)]
    assert compared(even, sizes=(2, 2, 2, 2))[1].ratio == pytest.approx(1.4, rel=1e-3)
    uneven = [
        (n, "AllReduce", 4 * MIB, 350_000 if n == 1 else 250_000 * (1 + n / 10)) for n in range(4) for _ in range(3)
    ]
    assert compared(uneven, sizes=(2, 2, 2, 2)) == {}
    # one that is slow too makes peers no less even
    slower = [(n, op, size, 425_000 if n == 1 else took) for n, op, size, took in even]
    assert list(compared([*slower, (4, "AllReduce", 4 * MIB, 425_000)] * 3, sizes=(2,) * 5)) == [1, 4]


def test_peers_and_how_far_they_are_apart_are_as_the_median_of_the_others_has_them():
    """Communicators of sizes and numbers of operations drawn at random, each with the medians of those alike."""
    draw = np.random.default_rng(5)
    sizes = draw.choice([4 * MIB, 12 * MIB, 64 * MIB], 40)
    factors = draw.uniform(1.0, 1.5, 40)
    rows = [(n, "AllReduce", int(sizes[n]), round(sizes[n] * factors[n] * took)) for n in range(40) for took in TIMES]
    ranks = [(2 * n, 2 * n + 1) for n in range(40)]
    judged = slow_communicators._judged(*of_rows(rows, ranks=ranks))
    a_byte = [np.percentile([took / size for n, _, size, took in rows if n == own], (25, 50, 75)) for own in range(40)]
    for own in range(40):
        alike = [n for n in range(40) if n != own and max(sizes[own], sizes[n]) <= 4 * min(sizes[own], sizes[n])]
        paces = sorted(a_byte[n][1] for n in alike)
        ratios = a_byte[own] / np.median([a_byte[n] for n in alike], axis=0)
        assert judged[own].peers == len(alike)
        assert judged[own].ratios == pytest.approx(ratios)
        assert judged[own].spread == pytest.approx(paces[-1] / paces[0] - 1)
        assert judged[own].faster_spread == pytest.approx(paces[len(paces) // 2] / paces[0] - 1)


def test_of_unknown_size_all_communicators_of_the_same_ranks_are_left_out():
    factors = np.random.default_rng(6).permutation(12) + 20
    rows = [(n, "AllReduce", 0, round(10_000 * factors[n] * took)) for n in range(12) for took in TIMES]
    judged = slow_communicators._judged(*of_rows(rows, ranks=[(n % 3, 5) for n in range(12)]))
    for own in range(12):
        paces = sorted(factors[n] for n in range(12) if n % 3 != own % 3)
        assert judged[own].peers == len(paces) == 8
        assert judged[own].ratios == pytest.approx([factors[own] / np.median(paces)] * 3)
        assert judged[own].spread == pytest.approx(paces[-1] / paces[0] - 1)
        assert judged[own].faster_spread == pytest.approx(paces[4] / paces[0] - 1)


TIMES = (0.9, 1.0, 1.0, 1.2)
"""Of the operations of a communicator, in units of its usual one."""


@pytest.mark.parametrize("sized", [True, False])
def test_the_work_grows_with_the_number_of_communicators_and_not_with_its_square(monkeypatch, sized):
    looked_at = []
    as_large = slow_communicators._as_large
    monkeypatch.setattr(slow_communicators, "_as_large", lambda *its: looked_at.append(1) or as_large(*its))
    for count in (50, 100):
        rows = [(n, "AllReduce", 4 * MIB * sized, 250_000 + n) for n in range(count) for _ in range(3)]
        links(rows, ranks=[(2 * n, 2 * n + 1) for n in range(count)])
        assert len(looked_at) == count
        looked_at.clear()


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
