"""Waits are traced back to the rank that would have to change, in jobs with known times."""

from __future__ import annotations

import numpy as np
import pytest
from tests.replay.jobs import Job

from alltrace.replay.peers import peers_of
from alltrace.replay.root_causes import NOBODY, root_causes

ALL, LEFT, RIGHT, ACROSS = (0, 1, 2, 3), (0, 1), (2, 3), (1, 2)


def shares(job):
    """Of all waits the share that each rank caused as the last to arrive, and that for which it would have to
    change."""
    replay, members = job.replay()
    rows = members.to_pylist()
    nodes = replay.nodes(members.column("rank").to_numpy(), members.column("row").to_numpy())[1]
    arrival = {(r["instance"], r["rank"]): (int(n), int(replay.when[n])) for r, n in zip(rows, nodes, strict=True)}
    node, wait, since, lasts, met = [], [], [], [], {}
    for instance in sorted({r["instance"] for r in rows}):
        its = {r["rank"]: arrival[instance, r["rank"]] for r in rows if r["instance"] == instance}
        last = max(its, key=lambda r: (its[r][1], -r))
        waits = [its[last][1] - at for _, at in its.values()]
        before = met.get((last, tuple(its)), np.iinfo(np.int64).min)
        met.update({(r, tuple(its)): its[last][1] for r in its})
        if sum(waits) > 5_000:
            node.append(its[last][0])
            wait.append(max(waits))
            since.append(before)
            lasts.append((last, sum(waits)))
    found = root_causes(replay, peers_of(replay, members), *(np.array(v, np.int64) for v in (node, wait, since)))
    caused, blamed = dict.fromkeys(ALL, 0.0), dict.fromkeys((*ALL, NOBODY), 0.0)
    for last, amount in lasts:
        caused[last] += amount
    for number, rank, share in zip(*(v.tolist() for v in found), strict=True):
        blamed[rank] += share * lasts[number][1]
    total = sum(a for _, a in lasts)
    assert sum(found[2]) == pytest.approx(len(set(found[0].tolist())))
    return {r: c / total for r, c in caused.items()}, {r: b / total for r, b in blamed.items()}


@pytest.mark.parametrize("slow", ALL)
def test_mates_that_are_late_because_of_a_slow_rank_are_not_to_blame(slow):
    # pairs meet before all do, so that the slow rank's mate arrives last as often as it does
    compute = np.full((24, 4), 100_000)
    compute[::2, slow] += 40_000
    groups = [[LEFT, RIGHT] if number % 2 == 0 else [(0, 2), (1, 3)] for number in range(24)]
    caused, blamed = shares(Job(compute, groups, [20_000] * 24, sync=4))
    mates = set(ALL) - {slow}
    assert max(caused[r] for r in mates) > 0.2
    assert blamed[slow] > 0.99
    assert max(blamed[r] for r in mates) < 0.01


def test_two_slow_ranks_share_the_blame_by_what_each_adds():
    compute = np.full((12, 4), 100_000)
    compute[0::2, 0] += 40_000
    compute[1::2, 3] += 20_000
    _, blamed = shares(Job(compute, [[ALL]] * 12, [20_000] * 12, sync=4))
    assert (blamed[0], blamed[3]) == (pytest.approx(2 / 3, abs=0.02), pytest.approx(1 / 3, abs=0.02))


def test_a_transfer_that_takes_too_long_is_of_nobody():
    # of the pairs one has a slow transfer, behind which all wait for it
    groups = [[LEFT] if number % 2 == 0 else [ALL] for number in range(24)]
    transfers = [20_000 if number % 4 else 120_000 for number in range(24)]
    _, blamed = shares(Job(np.full((24, 4), 100_000), groups, transfers, sync=4))
    assert blamed[NOBODY] > 0.4
    assert max(blamed[r] for r in ALL) < 0.01


def test_a_wait_of_a_nanosecond_is_traced_back_like_any_other():
    compute = np.full((24, 4), 100_000)
    compute[::2, 1] += 40_000
    replay, members = Job(compute, [[ALL]] * 24, [20_000] * 24, sync=4).replay()
    arrivals = replay.nodes(members.column("rank").to_numpy(), members.column("row").to_numpy())[1]
    late = arrivals[(members.column("rank").to_numpy() == 1) & (members.column("instance").to_numpy() == 20)]
    since = np.array([np.iinfo(np.int64).min])
    wait, rank, share = root_causes(replay, peers_of(replay, members), late, np.array([1]), since)
    assert (wait.tolist(), rank.tolist(), share.tolist()) == ([0], [1], [1.0])
    whole = root_causes(replay, peers_of(replay, members), late, np.array([400_000]), since)
    assert (whole[2] > 0).all()  # who is on the way and takes no longer than others is not named
    assert sum(whole[2]) == pytest.approx(1.0)
    assert [len(c) for c in root_causes(replay, peers_of(replay, members), np.array([-1]), np.array([1]), since)] == [
        0,
        0,
        0,
    ]
