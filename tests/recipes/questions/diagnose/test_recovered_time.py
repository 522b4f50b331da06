"""The time that jobs with known times recover without waits and queues of communication."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.replay.jobs import COMPUTE_STREAM, GAP_NS, TALK_STREAM, Job, Rank

from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.host_time import Contribution
from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime
from alltrace.replay.change import NEVER
from alltrace.replay.join import join
from alltrace.replay.peers import peers_of
from alltrace.replay.rank_graph import rank_graph
from alltrace.trace.arrays import narrow

MEMBER = pa.schema(
    [
        *(
            (c, pa.int64())
            for c in ("instance", "communicator", "rank", "row", "error_ns", "awaited_rank", "last_rank")
        ),
        ("synchronising", pa.bool_()),
    ],
)


def recovery_of(ranks, members):
    """The run of `Rank`s, as one without steps."""
    rows = {r.rank: np.array([m["row"] for m in members if m["rank"] == r.rank], np.int64) for r in ranks}
    given = {r.rank: Contribution(None, rank_graph(r, rows[r.rank])) for r in ranks}
    table = pa.Table.from_pylist(sorted(members, key=lambda m: (m["instance"], m["rank"])), MEMBER)
    return RecoveredTime(
        join([g.graph for g in given.values()], table), given, table, None, lambda replay: peers_of(replay, table)
    )


@pytest.mark.parametrize(("transfer", "saved"), [(20_000, 4 * (20_000 + GAP_NS)), (250_000, 4 * (100_000 + GAP_NS))])
def test_without_waits_compute_and_transfers_run_side_by_side(transfer, saved):
    job = Job(np.full((5, 2), 100_000), [[(0, 1)]] * 5, [transfer] * 5)
    ranks, end, members = job._play()
    recovery = recovery_of(ranks, members)
    rank, row = (np.array([m[c] for m in members], np.int64) for c in ("rank", "row"))
    # what is left is the longer of the two, and the first of the other
    free = recovery.saved_ns(recovery.no_waits(rank, row, np.zeros(len(rank), np.bool_)))
    assert free == pytest.approx(saved, abs=5 * GAP_NS)
    assert free < end
    # device work waits all the same for what ends a step
    assert recovery.saved_ns(recovery.no_waits(rank, row, np.ones(len(rank), np.bool_))) == 0
    # and nothing changes on the rank whose waits stay
    assert recovery.saved_ns(recovery.no_waits(rank[rank == 0], row[rank == 0], np.zeros(5, np.bool_))) == 0


def queued(long_ns, short_ns, compute_ns):
    """Two ranks that compute, exchange something long, behind it on the same stream something short, and compute
    again."""
    ranks, members = [], []
    for r in range(2):
        rank = Rank(r, rows={t: [] for t in ("kernels", "api", "collectives", "syncs")})
        begin = 10_000
        done = begin + compute_ns
        first, second = done + GAP_NS, done + GAP_NS + long_ns
        last = second + short_ns
        work = [
            (COMPUTE_STREAM, "gemm", begin, done),
            (TALK_STREAM, "ncclDevKernel_AllReduce", first, second),
            (TALK_STREAM, "ncclDevKernel_AllReduce", second, last),
            (COMPUTE_STREAM, "gemm", last + GAP_NS, last + GAP_NS + compute_ns),
        ]
        for number, (stream, name, start, end) in enumerate(work):
            at, common = 500 * (2 * number + 1), {"correlation": number + 1, "device": 0}
            rank.rows["api"].append(
                {"start": at, "end": at + 400, "correlation": number + 1, "name": "cudaLaunchKernel_v7000"}
            )
            if number == 3:
                told = {
                    "start": at - 400,
                    "end": at - 100,
                    "stream": COMPUTE_STREAM,
                    "kind": "stream-wait",
                    "correlation": 90,
                }
                rank.rows["syncs"].append({"device": 0} | told)
            kind = "collective" if stream == TALK_STREAM else "compute"
            rank.rows["kernels"].append(
                common | {"start": start, "end": end, "stream": stream, "kind": kind, "name": name}
            )
            if stream == TALK_STREAM:
                instance = len(rank.rows["collectives"])
                rank.rows["collectives"].append({"start": start, "end": end, "stream": stream, "device": 0})
                found = {
                    "instance": instance,
                    "communicator": instance,
                    "rank": r,
                    "row": instance,
                    "synchronising": True,
                }
                members.append(found)
        ranks.append(rank)
    return ranks, members


def test_without_a_queue_the_short_one_waits_for_its_launch_only():
    ranks, members = queued(300_000, 20_000, 100_000)
    recovery = recovery_of(ranks, members)
    both, zeros, ones = np.array([0, 1]), np.zeros(2, np.int64), np.ones(2, np.int64)
    nothing, yes = np.full(2, -1), np.ones(2, np.bool_)
    # then the second kernel is the last to end, or the long one
    order = recovery.no_queue(both, ones, zeros, nothing, yes)
    recorded = 10_000 + 2 * 100_000 + 2 * GAP_NS + 320_000 - 500
    alone = 10_000 + 100_000 + GAP_NS + 300_000 - 500
    assert recovery.replay.recorded_ns == recorded
    assert recovery.saved_ns(order) == recorded - alone
    # an operation that waits for the long one all the same gains nothing
    assert recovery.saved_ns(recovery.no_queue(both, ones, zeros, zeros, yes)) == 0
    # nor one rank alone
    assert recovery.saved_ns(recovery.no_queue(both[:1], ones[:1], zeros[:1], nothing[:1], yes[:1])) == 0


def test_what_needs_nothing_of_the_one_behind_waits_for_the_one_ahead():
    ranks, members = queued(20_000, 300_000, 100_000)
    recovery = recovery_of(ranks, members)
    both, zeros, ones = np.array([0, 1]), np.zeros(2, np.int64), np.ones(2, np.int64)
    order = recovery.no_queue(both, ones, zeros, zeros, np.zeros(2, np.bool_))
    recorded = 10_000 + 2 * 100_000 + 2 * GAP_NS + 320_000 - 500
    assert recovery.replay.recorded_ns == recorded
    # the second kernel follows the short one, and the long one behind it ends last
    assert recovery.saved_ns(order) == recorded - (10_000 + 100_000 + GAP_NS + 320_000 - 500)


@pytest.mark.parametrize(("behind", "stays"), [(10, True), (11, False)])
def test_the_last_wait_of_a_step_stays_at_its_end_only(behind, stays):
    part = SimpleNamespace(
        target=np.array([1, 2]),
        track=np.array([-1, -1, -1, 0, 0, 0]),
        when=np.array([0, 100, 200, 90, 190, 300]),
        launched=np.array([0, 100, 200, 50, 150, 250]),
        cell_node=np.array([3, 4, 5]),
        cell_count=np.array([10, 80, behind]),
    )
    # the six moments of another rank, each in a step of its own, come before those of this one
    run = SimpleNamespace(replay=SimpleNamespace(step=np.array([*range(6), *[7] * 6])))
    found = RecoveredTime._last_of_step(run, part, 6, np.array([0, 1]))
    assert found.tolist() == [False, stays]


def played(compute_ns, *, early_ns=0):
    """Two ranks that meet after each round; the clock of the first is behind."""
    job = Job(np.array(compute_ns), [[(0, 1)]] * len(compute_ns), [20_000] * len(compute_ns))
    ranks, _, members = job._play()
    for rows in ranks[0].rows.values():
        for row in rows:
            row.update({name: row[name] - early_ns for name in ("start", "end") if name in row})
    return recovery_of(ranks, members)


USUAL = [100_000, 100_000]


def test_a_stall_gives_back_what_its_kernel_took_longer():
    recovery = played([USUAL, [600_000, 100_000], USUAL, USUAL])
    lost = np.array([[500_000.0]])
    assert recovery.saved_ns(recovery.less_of_longest(np.array([0]), None, lost)) == pytest.approx(500_000, abs=GAP_NS)
    # with all kernels shorter by the same share, the other rank is what is waited for in the other rounds
    assert recovery.saved_ns(recovery.less_work(np.array([0]), None, lost / 900_000)) < 400_000


def test_two_causes_that_hide_each_other():
    recovery = played([USUAL, [300_000, 300_000], USUAL])
    one, other = (recovery.less_of_longest(np.array([rank]), None, np.array([[200_000.0]])) for rank in (0, 1))
    assert [recovery.saved_ns(changed) for changed in (one, other)] == [0, 0]
    assert recovery.saved_ns(recovery.without_both(one, other)) == pytest.approx(200_000, abs=GAP_NS)


def test_a_change_of_weights_and_one_of_order_together():
    recovery = played([USUAL, [300_000, 100_000], USUAL])
    less = recovery.less_of_longest(np.array([0]), None, np.array([[200_000.0]]))
    free = recovery.free_transfers(np.arange(3))
    alone = [recovery.saved_ns(changed) for changed in (less, free)]
    assert recovery.saved_ns(recovery.without_both(less, free)) == pytest.approx(sum(alone), abs=GAP_NS)


@pytest.mark.parametrize(
    ("work_ns", "usual_ns", "left_ns"),
    [
        ([10, 25, 24, 30], [0, 20, 20, 20], [0, 0, 0, 5]),  # a ring: the first leaves early, and the last goes on late
        ([10, 25, 24, 30], [0, 15, 3, 3], [0, 0, 11, 17]),  # two that go on late now and then
        ([10, 10, 10, 30], [0, 0, 0, 20], [0, 0, 0, 20]),
        ([12, 30], [0, 18], [0, 18]),
        ([30], [0], [0]),
        ([1_500_000_000, 2_000_000_000, 2_100_000_000], [0, 900_000_000, 900_000_000], [0, 0, 100_000_000]),
    ],
)
def test_what_processes_take_longer_to_leave_an_operation_than_a_slow_ring_explains_is_no_transfer(
    work_ns, usual_ns, left_ns
):
    work, count = np.array([7, *work_ns, 9]), len(work_ns)
    replay = SimpleNamespace(
        graph=SimpleNamespace(target=np.arange(count + 2)),
        rank=np.array([0, *range(count), 0]),
        weights=work + 1,
        work_ns=narrow(work),
        instance=np.array([3, *[1] * count, -1]),
    )

    def usual(values, instance, rank):
        assert set(instance.tolist()) == {1}
        assert (values == np.array(work_ns)[rank] - min(work_ns)).all()
        return np.array(usual_ns, values.dtype)[rank]

    of_hosts, of_devices = (SimpleNamespace(replay=replay, _of_hosts=hosts, _usual=usual) for hosts in (True, False))
    free = RecoveredTime.free_transfers(of_hosts, np.array([1]))
    assert free.weights.tolist() == [8, *left_ns, 10]
    assert RecoveredTime.free_transfers(of_devices, np.array([1])).weights.tolist() == [8, *[0] * count, 10]


def test_a_wait_and_the_launch_after_it_may_be_longer_than_each_can_be_kept():
    # the work at node 0 ends the wait of the host at node 1, which launches that at node 2
    none, long = np.full(3, -1), narrow(np.array([2_000_000_000]))
    times = np.zeros((1, len(HOST_CLASSES)), np.int32)
    times[:, HOST_CLASSES.index("sync")] = long
    part = SimpleNamespace(source=np.array([0, 1]), target=np.array([1, 2]), when=np.arange(3))
    host = SimpleNamespace(arc=np.array([1]), times=times, after=long, after_class=none[:1], copy_class=none)
    weights, work_ns = np.array([5, 4_000_000_007]), np.zeros(2, np.int32)
    replay = SimpleNamespace(weights=weights, kind=none, work_ns=work_ns, graph=SimpleNamespace(target=part.target))
    run = SimpleNamespace(
        replay=replay, _of_ranks=[(host, part, 0, 0)], _place=np.arange(2), _waits_of=lambda *_: np.array([0])
    )
    run._reduce = partial(RecoveredTime._reduce, run)
    assert RecoveredTime.no_host(run, "sync").tolist() == [NEVER, 7]


def test_what_is_usual_is_of_a_rank_in_one_operation_of_a_communicator():
    columns = {
        "instance": [0, 0, 1, 1, 2, 2, 3, 3],
        "communicator": [0, 0, 0, 0, 0, 0, 1, 1],
        "op": ["AllReduce"] * 4 + ["Barrier"] * 2 + ["AllReduce"] * 2,
    }
    run = SimpleNamespace(_members=pa.table(columns))
    instance, rank = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
    values = np.array([1, 5, 3, 7, 90, 80, 60, 50])
    assert RecoveredTime._usual(run, values, instance, rank).tolist() == [1, 5, 1, 5, 90, 80, 60, 50]


def test_two_causes_together_are_compared_with_what_either_is_compared_with():
    recovery = played([USUAL, [300_000, 100_000], USUAL])
    less = recovery.less_of_longest(np.array([0]), None, np.array([[200_000.0]]))
    free = recovery.free_transfers(np.arange(3), less)  # what the transfers cost beside the other cause
    other = recovery.less_of_longest(np.array([1]), None, np.array([[50_000.0]]))
    alone = recovery.saved_ns(free)
    assert 0 < alone < 100_000
    assert recovery.saved_ns(recovery.without_both(free, other)) < alone + 60_000


@pytest.mark.parametrize("early_ns", [0, 50_000])
def test_a_member_that_ends_a_little_before_the_last_arrival_has_waited_for_it(early_ns):
    recovery = played([USUAL, [100_000, 1_100_000], USUAL], early_ns=early_ns)
    less = recovery.less_of_longest(np.array([1]), None, np.array([[1_000_000.0]]))
    assert recovery.saved_ns(less) == pytest.approx(1_000_000, rel=0.06)


def test_the_work_of_peers_between_operations_is_what_a_rank_with_more_would_take():
    recovery = played([USUAL, [350_000, 100_000], [120_000, 100_000], USUAL])
    assert recovery.saved_ns(recovery.with_peers_work([0], [1])) == pytest.approx(270_000, abs=GAP_NS)
    # pace alone does not know kernels that no peer has, and less of everything shortens what is even
    assert recovery.saved_ns(recovery.with_peers_work([1], [0])) == 0


def test_what_operations_that_come_earlier_move_is_no_more_work():
    recovery = played([[150_000, 100_000], [100_000, 150_000], USUAL])
    assert recovery.saved_ns(recovery.with_peers_work([0], [1])) == 0


def test_ranks_that_do_other_things_between_their_operations_have_no_peers():
    """As the stages of a pipeline: the first has its forward passes where the last has both passes of a part."""
    recovery = played([[100_000, 300_000], [400_000, 100_000], [200_000, 200_000]])
    assert recovery.with_peers_work([0], [1]) is None
    aligned = played([[100_000, 120_000], [400_000, 100_000], [200_000, 200_000]])
    assert aligned.saved_ns(aligned.with_peers_work([0], [1])) == pytest.approx(280_000, abs=25_000)


def test_ranks_with_other_operations_have_no_peers():
    job = Job(np.full((3, 3), 100_000), [[(0, 1, 2)], [(0, 1)], [(0, 1, 2)]], [20_000] * 3)
    ranks, _, members = job._play()
    recovery = recovery_of(ranks, members)
    assert recovery.with_peers_work([0], [2]) is None
    assert recovery.with_peers_work([0], [1]) is not None
    assert recovery.with_peers_work([0], [7]) is None
