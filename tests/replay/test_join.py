"""The positions of members and steps in the graph of all ranks, rank by rank."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.replay.graph import make_graph, times
from alltrace.replay.join import Replay, _begins_after, _members, _steps, join
from alltrace.replay.rank_graph import COMPUTE, TRANSFER


@pytest.mark.parametrize("seed", range(5))
def test_members_and_steps_are_those_of_the_nodes_rank(seed):
    draw = np.random.default_rng(seed)
    parts = []
    for rank in (5, 0, 2):
        rows = draw.permutation(20)[:12] if rank else np.empty(0, np.int64)
        launched = np.sort(draw.integers(0, 700, 30))
        ends, arrivals = rows * 2, rows * 2 + 1
        parts.append(
            SimpleNamespace(
                rank=rank,
                member_row=rows,
                member_end=ends,
                member_arrival=arrivals,
                member_wait=arrivals + 20,
                launched=launched,
                when=launched,
            )
        )
    base = np.array([1, 101, 201])
    rank, row = draw.integers(0, 6, 60), draw.integers(0, 20, 60)
    flags, last = draw.random(60) < 0.5, draw.integers(0, 3, 60)
    off = pa.array(draw.integers(0, 90, 60), mask=draw.random(60) < 0.3)
    members = pa.table(
        {
            "instance": np.arange(60) // 3, "rank": rank, "row": row, "synchronising": flags, "awaited_rank": last,
            "last_rank": np.ones(60, np.int64), "error_ns": off,
        }
    )  # fmt: skip
    waits = [(off[n].as_py() or 0) if flags[n] or last[n] == 1 else -1 for n in range(60)]
    known = {p.rank: (b, set(p.member_row.tolist())) for p, b in zip(parts, base.tolist(), strict=True)}
    there = [n for n in range(60) if rank[n] in known and row[n] in known[rank[n]][1]]
    found = _members(parts, base, members)
    at = [known[rank[n]][0] + 2 * int(row[n]) for n in there]
    arrivals, ends = [a + 1 for a in at], at
    assert [v.tolist() for v in found] == [
        [n // 3 for n in there], arrivals, [a + 20 for a in arrivals], ends, [waits[n] for n in there],
    ]  # fmt: skip

    shuffled = draw.permutation([(r, s) for r in (0, 1, 5) for s in range(6)])
    begin = shuffled[:, 1] * 100 + shuffled[:, 0]
    steps = pa.table(
        {"rank": shuffled[:, 0], "step": shuffled[:, 1], "start": begin, "end": begin + 90, "device_start": begin + 1}
    )
    for part, own in zip(parts, _steps(parts, steps), strict=True):
        its = [s for s in steps.to_pylist() if s["rank"] == part.rank]
        for launch, step in zip(part.launched.tolist(), own.tolist(), strict=True):
            assert [step] == ([s["step"] for s in its if s["start"] <= launch < s["end"]] or [-1])
    assert [s.tolist() for s in _steps(parts, None)] == [[-1] * 30] * 3


@pytest.mark.parametrize("seed", range(5))
def test_nodes_of_collectives_are_found_rank_by_rank(seed):
    draw = np.random.default_rng(seed)
    parts = []
    for rank in (0, 1, 3):
        rows = draw.permutation(20)[:12] if rank else np.empty(0, np.int64)
        nodes = {"member_end": rows * 2, "member_arrival": rows * 2 + 1, "member_wait": rows * 2 + 1}
        parts.append(SimpleNamespace(rank=rank, member_row=rows, **nodes))
    replay = SimpleNamespace(parts=parts, base=np.array([1, 101, 201]))
    rank, row = draw.integers(0, 4, 50), draw.integers(0, 20, 50)
    of = {p.rank: (b, set(p.member_row.tolist())) for p, b in zip(parts, (1, 101, 201), strict=True)}
    ends = [
        of[r][0] + 2 * n if r in of and n in of[r][1] else -1 for r, n in zip(rank.tolist(), row.tolist(), strict=True)
    ]
    found = Replay.nodes(replay, rank, row)
    assert found[0].tolist() == ends
    assert found[1].tolist() == [e + 1 if e >= 0 else -1 for e in ends]


@pytest.mark.parametrize(
    ("early_ns", "stay_ns", "off_ns", "awaits", "follows"),
    [
        (-1, 500_000, 0, True, True),  # it ends after the other has begun
        (-1, 500_000, 0, False, True),
        (19_000, 100_000, 0, True, True),  # clocks are not better
        (20_000, 100_000, 0, True, True),
        (20_001, 100_000, 0, True, False),
        (60_000, 500_000, 0, True, False),
        (60_000, 500_000, 61_000, True, True),  # it is no more than what the clocks may be off
        (60_000, 500_000, 59_000, True, False),
        (60_000, 700_000, 0, True, True),  # it waited far longer than that
        (19_000, 700_000, 61_000, False, False),  # what waits for nobody is right to end early
    ],
)
def test_a_member_that_ends_a_little_before_the_one_that_it_awaits_did_wait(early_ns, stay_ns, off_ns, awaits, follows):
    # rank 0 receives from its begin; rank 1 sends late
    def part(rank, begin, end):
        when = np.array([0, begin, end])
        ones, zeros = np.ones(2, np.int64), np.zeros(2, np.int64)
        return SimpleNamespace(
            rank=rank, when=when, kind=np.full(3, TRANSFER), source=np.array([0, 1])[:1], target=np.array([1]),
            elsewhere=zeros[:0], fixed_ns=zeros[:1], idle_ns=zeros[:1], host_ns=np.array([begin]), work_ns=zeros[:1],
            track=ones, launched=when, member_row=zeros[:1], member_arrival=np.array([1]), member_wait=np.array([1]),
            member_end=np.array([2]),
        )  # fmt: skip

    late = 1_000_000
    end = late - early_ns
    parts = [part(0, end - stay_ns, end), part(1, late, late + 300_000)]
    members = pa.table(
        {
            "instance": [0, 0], "rank": [0, 1], "row": [0, 0], "synchronising": [False, False],
            "awaited_rank": [1 if awaits else 0, 1], "last_rank": [1, 1], "error_ns": [off_ns, 0],
        }
    )  # fmt: skip
    replay = join(parts, members)
    sooner = replay.weights - np.where(replay.host_ns == late, 400_000, 0)  # the sender is 400 us earlier
    (node,), _ = replay.nodes(np.array([0]), np.array([0]))
    before, after = (int(times(replay.graph, weights)[0][node]) for weights in (replay.weights, sooner))
    assert (before - after > 0) == follows


@pytest.mark.parametrize(("asks_ns", "gains_ns"), [(500_000, 400_000), (700_000, 350_000), (1_150_000, 0)])
def test_who_only_began_an_operation_gains_from_a_sooner_partner_what_it_waits_in_its_later_call(asks_ns, gains_ns):
    # rank 0 begins at 100 us and asks for the end at `asks_ns`; rank 1 arrives at 1 ms
    def part(rank, begin, asks, end):
        when = np.array([0, begin, asks, end])
        zeros = np.zeros(2, np.int64)
        return SimpleNamespace(
            rank=rank, when=when, kind=np.full(4, TRANSFER), source=np.array([0, 1]), target=np.array([1, 2]),
            elsewhere=zeros[:0], fixed_ns=zeros, idle_ns=zeros, host_ns=np.diff(when[:3]), work_ns=zeros,
            track=np.ones(4, np.int64), launched=when, member_row=zeros[:1], member_arrival=np.array([1]),
            member_wait=np.array([2]), member_end=np.array([3]),
        )  # fmt: skip

    late = 1_000_000
    parts = [part(0, 100_000, asks_ns, max(asks_ns, late) + 50_000), part(1, late, late, late + 50_000)]
    members = pa.table(
        {
            "instance": [0, 0], "rank": [0, 1], "row": [0, 0], "synchronising": [True, True], "awaited_rank": [1, 1],
            "last_rank": [1, 1], "error_ns": [0, 0],
        }
    )  # fmt: skip
    replay = join(parts, members)
    assert (replay.recorded[0] == replay.when).all()
    sooner = replay.weights - np.where(replay.host_ns == late, 400_000, 0)
    (node,), (arrival,) = replay.nodes(np.array([0]), np.array([0]))
    assert replay.when[arrival] == 100_000
    before, after = (int(times(replay.graph, weights)[0][node]) for weights in (replay.weights, sooner))
    assert before - after == gains_ns


@pytest.mark.parametrize(("last_ns", "gains_ns"), [(60_000, 400_000), (900_000, 100_000), (2_000_000, 400_000)])
def test_a_call_that_completes_several_gains_from_the_one_that_it_waited_for(last_ns, gains_ns):
    # rank 0 asks at 200 us for two: one of rank 1, which arrives at 1 ms, and one of rank 2, which is there before or
    # after
    def part(rank, begin, asks, end, members):
        when = np.array([0, begin, asks, end])
        zeros = np.zeros(2, np.int64)
        rows = np.arange(members)
        return SimpleNamespace(
            rank=rank, when=when, kind=np.full(4, TRANSFER), source=np.array([0, 1]), target=np.array([1, 2]),
            elsewhere=zeros[:0], fixed_ns=zeros, idle_ns=zeros, host_ns=np.diff(when[:3]), work_ns=zeros,
            track=np.ones(4, np.int64), launched=when, member_row=rows, member_arrival=0 * rows + 1,
            member_wait=0 * rows + 2, member_end=0 * rows + 3,
        )  # fmt: skip

    late = 1_000_000
    parts = [part(0, 50_000, 200_000, late + 50_000, 2), part(1, late, late, late + 50_000, 1)]
    parts.append(part(2, last_ns, last_ns, last_ns + 50_000, 1))
    members = pa.table(
        {
            "instance": [0, 0, 1, 1], "rank": [0, 1, 0, 2], "row": [0, 0, 1, 0],
            "synchronising": [True, True, False, False], "awaited_rank": [1, 1, 0, 2], "last_rank": [1, 1, 2, 2],
            "error_ns": [0, 0, 0, 0],
        }
    )  # fmt: skip
    replay = join(parts, members)
    sooner = replay.weights - np.where(replay.host_ns == late, 400_000, 0)
    (node,), _ = replay.nodes(np.array([0]), np.array([0]))
    before, after = (int(times(replay.graph, weights)[0][node]) for weights in (replay.weights, sooner))
    assert before == late + 50_000
    assert before - after == gains_ns


def test_steps_of_a_device_hold_what_ended_in_them():
    part = SimpleNamespace(rank=0, launched=np.array([0, 0, 0, 0]), when=np.array([10, 11, 20, 21]))
    steps = pa.table({"rank": [0, 0], "step": [4, 5], "start": [0, 10], "end": [10, 20], "device_start": [0, 10]})
    assert _steps([part], steps)[0].tolist() == [4, 5, 5, -1]


@pytest.mark.parametrize(("begin", "after"), [(99, 0), (100, 0), (101, 3), (250, 4)])
def test_a_report_without_the_first_step_begins_after_the_work_of_others(begin, after):
    other = SimpleNamespace(rank=0, track=np.array([-1, 0, 0, 0]), when=np.array([240, 50, 100, 200]))
    early = SimpleNamespace(rank=1, track=np.array([0]), when=np.array([90]))
    late = SimpleNamespace(rank=2, track=np.array([-1, 0]), when=np.array([begin, begin + 30]))
    steps = pa.table({"step": [0, 0, 1], "device_end": pa.array([100, None, 200], pa.int64())})
    assert _begins_after(late, [other, early, late], np.array([1, 5, 6]), steps) == after
    assert _begins_after(late, [other, early, late], np.array([1, 5, 6]), None) == 0


@pytest.mark.parametrize(
    ("idle_ns", "error"),
    [
        ((0, 0, 0, 0, 0, 0, 0, 40), 0.0),  # what happened to one rank
        ((0, 0, 0, 0, 0, 40, 40, 40), 0.4),
        ((4, 4, 4, 4, 4, 4, 4, 40), 0.4),  # not ten times as much
        ((0, 0, 0, 0, 0, 0, 0, 0), 0.0),
    ],
)
def test_pauses_that_nothing_explains_are_an_error_unless_few_ranks_have_them(idle_ns, error):
    ranks = np.arange(len(idle_ns))
    count, idle = len(ranks), np.array(idle_ns)
    source, target = np.concatenate((np.zeros(count), ranks + 1)), np.concatenate((ranks + 1, ranks + 1 + count))
    graph = make_graph(2 * count + 1, source, target)
    nothing = np.zeros(2 * count, np.int64)
    replay = Replay(
        graph,
        when=np.concatenate(([0], np.full(count, 50), 60 + idle)),
        rank=np.concatenate(([-1], ranks, ranks)),
        kind=np.zeros(2 * count + 1, np.int8),
        step=np.zeros(2 * count + 1, np.int64),
        fixed_ns=np.concatenate((np.full(count, 50), np.full(count, 10))),
        idle_ns=np.concatenate((np.zeros(count, np.int64), idle)),
        host_ns=nothing,
        work_ns=nothing,
        instance=np.full(2 * count, -1),
        parts=tuple(SimpleNamespace(rank=rank) for rank in ranks.tolist()),
        base=ranks,
    )
    assert replay.error == pytest.approx(error)


def test_a_weight_may_be_longer_than_each_of_its_parts_can_be_kept():
    long, zeros = np.array([2_000_000_000]), np.zeros(1, np.int64)
    when = np.array([0, 4 * int(long[0])])
    part = SimpleNamespace(
        rank=0, when=when, kind=np.full(2, COMPUTE), source=np.array([0]), target=np.array([1]), elsewhere=zeros[:0],
        fixed_ns=long, idle_ns=long, host_ns=long, work_ns=long, track=np.zeros(2, np.int64), launched=when,
        member_row=zeros[:0],
    )  # fmt: skip
    names = ("instance", "rank", "row", "synchronising", "awaited_rank", "last_rank", "error_ns")
    replay = join([part], pa.table({name: pa.array([], pa.int64()) for name in names}))
    assert replay.work_ns.dtype == np.int32
    assert (int(replay.weights.max()), int(replay.recorded[0].max())) == (8_000_000_000, 8_000_000_000)
