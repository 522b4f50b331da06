"""Graphs of ranks compared with jobs with known times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay.jobs import COMPUTE_STREAM, GAP_NS, Job, Rank, full_queue
from tests.thorough import cases

from alltrace.replay import join as joined
from alltrace.replay import peers as of_peers
from alltrace.replay import rank_graph as of_rank
from alltrace.replay.change import Change, changed_weights, replayed
from alltrace.replay.join import join
from alltrace.replay.path import CLASSES, blame_ns, critical_path, excess_ns, rank_slack_ns
from alltrace.replay.peers import host_time_ns, peers_of
from alltrace.replay.rank_graph import COPY, rank_graph

ALL = (0, 1, 2, 3)


@st.composite
def jobs(draw):
    """Jobs of up to five ranks and six rounds, with any groups."""
    ranks, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    compute = draw(
        st.lists(st.lists(st.integers(0, 400_000), min_size=ranks, max_size=ranks), min_size=rounds, max_size=rounds)
    )
    groups = []
    for _ in range(rounds):
        colours = draw(st.lists(st.integers(0, 2), min_size=ranks, max_size=ranks))
        found = [tuple(r for r in range(ranks) if colours[r] == c) for c in range(3)]
        groups.append([g for g in found if len(g) > 1])
    transfer = draw(st.lists(st.integers(0, 50_000), min_size=rounds, max_size=rounds))
    return Job(
        np.array(compute), groups, transfer, draw(st.sampled_from([100, 3_000, 90_000])), draw(st.integers(0, 3))
    )


@settings(deadline=None, max_examples=cases(50, 150))
@given(jobs())
def test_a_replay_of_the_unchanged_job_has_every_time_to_the_nanosecond(job):
    replay, _ = job.replay()
    when, _ = replay.recorded
    assert (when == replay.when - replay.when[0]).all()
    assert replay.recorded_ns == when.max() == job.makespan_ns()
    assert not len(replay.graph.dropped)


@settings(deadline=None, max_examples=cases(33, 100))
@given(jobs())
def test_the_critical_path_is_as_long_as_the_job(job):
    replay, _ = job.replay()
    pieces = critical_path(replay)
    assert pieces.makespan_ns == job.makespan_ns()
    assert (pieces.start[1:] == (pieces.start + pieces.duration)[:-1]).all()
    slack = rank_slack_ns(replay)
    assert min(slack.values()) >= 0


def straggling(rounds=12, slow=50_000):
    compute = np.full((rounds, 4), 100_000)
    compute[:, 2] += slow
    return Job(compute, [[ALL]] * rounds, [20_000] * rounds, sync=4)


def test_a_slow_rank_at_its_peers_median_gives_the_time_of_the_job_without_it():
    replay, members = straggling().replay()
    peers = peers_of(replay, members)
    healthy = straggling(slow=0).makespan_ns()
    after, _ = replayed(replay, changed_weights(replay, peers, Change(ranks=frozenset([2]))))
    assert after == healthy == straggling().makespan_ns() - 12 * 50_000
    for other in (0, 1, 3):
        assert (
            replayed(replay, changed_weights(replay, peers, Change(ranks=frozenset([other]))))[0]
            == straggling().makespan_ns()
        )
    assert blame_ns(replay, peers) == ({0: 0.0, 1: 0.0, 2: pytest.approx(12 * 50_000), 3: 0.0}, 0.0)


def test_a_scale_multiplies_what_is_chosen():
    replay, members = straggling().replay()
    peers = peers_of(replay, members)
    whole = straggling().makespan_ns()
    everyone = Change(ranks=frozenset(ALL), scale=0.5)
    # the host too, which is in the way of the first kernel only
    assert replayed(replay, changed_weights(replay, peers, everyone))[0] == pytest.approx(whole - 12 * 75_000, abs=600)
    transfers = Change(instances=np.ones(12, np.bool_), scale=0.0)
    assert replayed(replay, changed_weights(replay, peers, transfers))[0] == whole - 12 * 20_000
    even = next(n for p in replay.parts for n in p.names.tolist())
    some = replayed(replay, changed_weights(replay, peers, Change(names=frozenset([even]), scale=0.0)))[0]
    assert some == whole - 6 * 150_000


def test_the_path_of_a_straggler_is_its_work_and_the_transfers():
    replay, _ = straggling().replay()
    pieces = critical_path(replay)
    sums = {c: int(pieces.duration[pieces.kind == n].sum()) for n, c in enumerate(CLASSES)}
    assert sums["compute"] == 12 * 150_000
    assert sums["transfer"] == 12 * 20_000
    assert set(pieces.rank[pieces.kind == 0].tolist()) == {2}
    assert sums["idle"] == sums["copy"] == sums["communication"] == 0
    slack = rank_slack_ns(replay)
    assert slack[2] == 0
    assert slack[0] == slack[1] == slack[3] == 50_000


def test_a_slow_host_is_on_the_path_and_goes_with_its_rank():
    rank = [Rank(r) for r in range(2)]
    took = (10_000, 60_000)
    for r in range(2):
        kernels, api, at = [], [], 0
        for n in range(10):
            api.append({"start": at, "end": at + 100, "correlation": n, "name": "cudaLaunchKernel"})
            kernels.append(
                {
                    "start": at + 2_000,
                    "end": at + 4_000,
                    "device": 0,
                    "stream": 7,
                    "correlation": n,
                    "kind": "compute",
                    "name": "k",
                }
            )
            at += took[r]
        rank[r].rows = {"kernels": kernels, "api": api}
    empty = Job(np.zeros((1, 2)), [[]], [0]).replay()[1]
    replay = join([rank_graph(r, np.empty(0, np.int64)) for r in rank], empty)
    pieces = critical_path(replay)
    assert pieces.makespan_ns == 9 * 60_000 + 4_000
    assert int(pieces.duration[pieces.kind == CLASSES.index("host")].sum()) == 9 * 60_000
    peers = peers_of(replay, empty)
    fixed = replayed(replay, changed_weights(replay, peers, Change(ranks=frozenset([1]))))[0]
    assert fixed == pytest.approx(9 * 10_000 + 4_000, abs=2)


def test_pauses_that_nothing_explains_are_the_replay_error():
    kernels = [
        {"start": s, "end": s + 1_000, "device": 0, "stream": 7, "kind": "compute", "name": "k"} for s in (0, 101_000)
    ]
    rank = Rank(0, rows={"kernels": kernels})
    empty = Job(np.zeros((1, 2)), [[]], [0]).replay()[1]
    replay = join([rank_graph(rank, np.empty(0, np.int64))], empty)
    assert replay.recorded_ns == 102_000
    # a device may pause for 5 microseconds without a cause
    assert replay.error == pytest.approx(95_000 / 102_000)


def test_nothing_at_all_is_replayed_as_nothing():
    empty = Job(np.zeros((1, 2)), [[]], [0]).replay()[1]
    for parts in ([], [rank_graph(Rank(0), np.empty(0, np.int64))]):
        replay = join(parts, empty)
        assert (replay.recorded_ns, replay.error, critical_path(replay).makespan_ns) == (0, 0.0, 0)
    assert GAP_NS < 5_000  # else the jobs above would have pauses to explain


@settings(deadline=None, max_examples=cases(33, 100))
@given(jobs(), st.data())
def test_a_change_gives_the_time_of_the_job_that_was_so(job, data):
    job.compute_ns = job.compute_ns * 2
    rank = data.draw(st.integers(0, len(job.compute_ns[0]) - 1))
    replay, members = job.replay()
    peers = peers_of(replay, members)
    change = Change(ranks=frozenset([rank]), names=frozenset(peers.pace.names.tolist()), scale=0.5)
    found, _ = replayed(replay, changed_weights(replay, peers, change))
    job.compute_ns[:, rank] //= 2
    # what a launch takes at least, and a call that need not wait, is not seen where others were in the way
    assert found == pytest.approx(job.makespan_ns(), abs=len(job.groups) * 6 * GAP_NS)


def results_of(job):
    """What is computed of the times of a job, as lists."""
    replay, members = job.replay()
    peers = peers_of(replay, members)
    ranks, transfers = frozenset([0]), np.ones(int(replay.instance.max(initial=0)) + 1, np.bool_)
    changes = [Change(ranks=ranks, instances=transfers, scale=scale) for scale in (None, 0.5, 3.0)]
    arrays = [
        replay.weights, *replay.recorded, peers.host_ns, peers.transfer_ns, peers.pace.spent_ns,
        excess_ns(replay, peers), host_time_ns(replay, peers.pace.ranks, np.unique(replay.step)),
        *(changed_weights(replay, peers, change) for change in changes), *vars(critical_path(replay)).values(),
    ]  # fmt: skip
    values = replay.error, rank_slack_ns(replay), blame_ns(replay, peers)
    return [[a.tolist() for a in arrays], values], replay.work_ns.dtype


@settings(deadline=None, max_examples=cases(33, 100))
@given(jobs(), st.sampled_from([1_000, 5_000, 20_000]))
def test_times_of_seconds_are_computed_as_those_of_64_bits(job, factor):
    job = replace(job, compute_ns=job.compute_ns * factor, launch_ns=job.launch_ns * factor)
    job.transfer_ns = [ns * factor for ns in job.transfer_ns]
    results, _ = results_of(job)
    with pytest.MonkeyPatch.context() as patched:
        for module in (of_rank, joined, of_peers):
            patched.setattr(module, "narrow", lambda values: values)
        assert results_of(job) == (results, np.int64)


def test_a_launch_that_is_not_known_hides_none_that_decides():
    launches = [0, None, 200_000, 200_500, 201_000]
    spans = [(2_000, 12_000), (13_000, 23_000), (202_000, 252_000), (253_000, 303_000), (304_000, 314_000)]
    rank = Rank(0, rows={t: [] for t in ("kernels", "api", "collectives", "syncs")})
    for number, (launch, (start, end)) in enumerate(zip(launches, spans, strict=True)):
        common = {"correlation": number + 1, "name": "gemm"}
        rank.rows["kernels"].append(common | {"start": start, "end": end, "stream": 7, "device": 0, "kind": "compute"})
        if launch is not None:
            rank.rows["api"].append(common | {"start": launch, "end": launch + 400, "name": "cudaLaunchKernel_v7000"})
    _, members = Job(np.full((1, 1), 1_000), [[]], [0]).replay()
    replay = join([rank_graph(rank, np.empty(0, np.int64))], members)
    # of the five kernels, one segment, the third was late because of its launch
    assert replay.recorded_ns == 314_000
    assert int(replay.recorded[0].max()) == 314_000
    assert replay.error < 0.001


def test_work_within_other_work_of_its_stream_takes_no_time_of_its_own():
    """As of two processes on one device, or of the branches of a CUDA graph: neither the end nor what follows is
    earlier by it."""
    spans = [(10_000, 110_000), (20_000, 30_000), (111_000, 151_000)]
    rank = Rank(0)
    rank.rows = {"kernels": [], "api": []}
    for number, ((start, end), launch) in enumerate(zip(spans, (0, 5_000, 8_000), strict=True)):
        common = {"correlation": number, "name": "gemm"}
        rank.rows["kernels"].append(common | {"start": start, "end": end, "stream": 7, "device": 0, "kind": "compute"})
        rank.rows["api"].append(common | {"start": launch, "end": launch + 400, "name": "cudaLaunchKernel"})
    _, members = Job(np.full((1, 1), 1_000), [[]], [0]).replay()
    whole = join([rank_graph(rank, np.empty(0, np.int64))], members)
    assert (whole.recorded_ns, int(whole.recorded[0].max()), whole.error) == (151_000, 151_000, 0.0)
    change = Change(names=frozenset(whole.names[0].tolist()), scale=0.5)
    assert (
        replayed(whole, changed_weights(whole, peers_of(whole, members), change))[0] == 10_000 + 50_000 + 1_000 + 20_000
    )
    del rank.rows["kernels"][2]
    assert join([rank_graph(rank, np.empty(0, np.int64))], members).recorded_ns == 110_000


def test_each_copy_is_a_segment_so_that_a_replay_can_leave_it_out_alone():
    copies = [
        {
            "start": 1_000 * n,
            "end": 1_000 * n + 900,
            "device": 0,
            "stream": COMPUTE_STREAM,
            "correlation": n,
            "kind": "HtoD",
        }
        for n in range(1, 4)
    ]
    graph = rank_graph(Rank(0, rows={"copies": copies}), np.empty(0, np.int64))
    assert graph.when[graph.kind == COPY].tolist() == [1_900, 2_900, 3_900]


def test_a_host_that_waits_for_a_full_queue_does_not_hold_up_shorter_kernels():
    rank = full_queue(3000, 100_000)
    empty = Job(np.zeros((1, 1)), [[]], [0]).replay()[1]
    whole = join([rank_graph(rank, np.empty(0, np.int64))], empty)
    assert (int(whole.recorded[0].max()), whole.error) == (whole.recorded_ns, 0.0)
    change = Change(names=frozenset(whole.names[0].tolist()), scale=0.5)
    after, _ = replayed(whole, changed_weights(whole, peers_of(whole, empty), change))
    assert after == pytest.approx(full_queue(3000, 50_000).rows["kernels"][-1]["end"], rel=0.001)
