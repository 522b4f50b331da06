from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.kernels import KERNELS
from alltrace.synth.layouts import LAYOUTS, DataParallel
from alltrace.synth.program import COMPUTE_STREAM, Call, Collective, Compute, Copy, DeviceGap, Group, Synchronize
from alltrace.synth.scenario import Environment, Layout, Links
from alltrace.synth.simulate import host_ranges, launching_range, simulate, transfer_ns


@pytest.fixture(scope="module")
def straggler():
    return simulate(SCENARIOS["straggler"].override(steps=3, ideal=True))


def _by_rank(values):
    return np.array([values[rank] for rank in sorted(values)])


@pytest.mark.parametrize("name", ["straggler", "tensor-data", "tiny"])
def test_collectives_end_together_after_the_last_arrival(name):
    scenario = SCENARIOS[name].override(steps=2, ideal=True)
    run = simulate(scenario)
    jitter = scenario.links.end_jitter_ns
    for one in run.collectives:
        members = run.groups[one.group].ranks
        assert sorted(one.arrivals) == list(members)
        ends, arrivals, launches = map(_by_rank, (one.ends, one.arrivals, one.launches))
        assert np.ptp(ends) <= jitter
        assert ends.min() >= arrivals.max() + scenario.links.latency_ns
        assert (launches < arrivals).all()
    assert {one.sequence for one in run.collectives if one.group == run.collectives[0].group} == set(
        range(sum(one.group == run.collectives[0].group for one in run.collectives))
    )


def test_transfers_last_arrivals_and_steps_of_a_slow_rank(straggler):
    links = straggler.scenario.links
    ring = links.latency_ns + int(2 * 15 / 16 * 100_000_000 / links.between_hosts_gb_per_s)
    for one in straggler.collectives:
        assert ring <= min(one.ends.values()) - max(one.arrivals.values()) <= ring + links.end_jitter_ns
    lasts = [max(one.arrivals, key=one.arrivals.__getitem__) for one in straggler.collectives]
    assert lasts == [11] * 12
    waits = np.array([max(one.arrivals.values()) - _by_rank(one.arrivals) for one in straggler.collectives]).sum(axis=0)
    assert waits[11] == 0
    assert np.delete(waits, 11).min() > 20_000_000
    fast = simulate(SCENARIOS["straggler"].override(steps=3, faults=(), ideal=True))
    slow_ns = np.diff(straggler.steps[:, 1:], axis=2).mean()
    fast_ns = np.diff(fast.steps[:, 1:], axis=2).mean()
    kernels = fast.timelines[11].kernels
    compute = kernels["kernel"] < len(KERNELS)
    compute_ns = (kernels["end"] - kernels["start"])[compute].sum() / 3
    assert slow_ns - fast_ns == pytest.approx(0.25 * compute_ns, rel=0.1)


def test_all_kernels_of_a_stream_follow_one_another_and_their_launches(straggler):
    line = straggler.timelines[4]
    launches = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
    assert len(launches) == len(line.api)
    for stream in (7, 13):
        rows = line.kernels["stream"] == stream
        starts, ends = line.kernels["start"][rows], line.kernels["end"][rows]
        assert (starts[1:] >= ends[:-1]).all()
        assert (ends > starts).all()
    assert all(
        launches[correlation] < start
        for table in (line.kernels, line.copies, line.memsets)
        for correlation, start in zip(table["correlation"].tolist(), table["start"].tolist(), strict=True)
    )


def test_kernel_starts_obey_the_recurrence():
    scenario = SCENARIOS["bench"].override(steps=1, layers=1, buckets=1, kernel_ns=6_000, jitter=0.5, ideal=True)
    line = simulate(scenario).timelines[0]
    rows = (line.kernels["stream"] == COMPUTE_STREAM) & (line.kernels["correlation"] > 0)
    ends_of_calls = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
    starts, ends = line.kernels["start"][rows], line.kernels["end"][rows]
    queued = np.array([ends_of_calls[c] for c in line.kernels["correlation"][rows].tolist()]) + 1_000
    expected = np.maximum(queued[1:], ends[:-1] + 700)
    assert starts[1:].tolist() == expected.tolist()
    waiting = (queued[1:] > ends[:-1] + 700).mean()
    assert 0.05 < waiting < 0.95


def test_calls_of_a_thread_do_not_overlap_and_ranges_nest(straggler):
    line = straggler.timelines[2]
    for thread in (0, 1):
        mine = line.api["thread"] == thread
        starts, ends = line.api["start"][mine], line.api["end"][mine]
        assert (starts[1:] > ends[:-1]).all()
        assert _depth_if_nested(line.ranges, thread) == (3 if thread == 0 else 1)


def _depth_if_nested(ranges, thread):
    mine = ranges["thread"] == thread
    intervals = sorted(zip(ranges["start"][mine].tolist(), (-ranges["end"][mine]).tolist(), strict=True))
    stack: list[int] = []
    deepest = 0
    for start, negative in intervals:
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or -negative < stack[-1]
        stack.append(-negative)
        deepest = max(deepest, len(stack))
    return deepest


def test_operator_ranges_enclose_their_launches():
    scenario = SCENARIOS["bench"].override(steps=1, layers=2, buckets=1, ideal=True)
    line = simulate(scenario).timelines[0]
    operators = [n for n, text in enumerate(line.names.texts) if text.startswith("aten::")]
    mine = np.isin(line.ranges["name"], operators)
    starts, ends = line.ranges["start"][mine], line.ranges["end"][mine]
    # 250 launches are 84 ranges of up to 3, 500 are 167
    assert len(starts) == 2 * (84 + 167) + 167
    launch = line.names.number("cudaLaunchKernel_v7000")
    calls = line.api["start"][line.api["name"] == launch]
    inside = np.searchsorted(calls, ends) - np.searchsorted(calls, starts)
    assert inside.sum() == 2 * 750 + 500
    assert set(inside.tolist()) <= {1, 2, 3}
    assert _depth_if_nested(line.ranges, 0) == 4


def test_a_seed_gives_one_run_which_needs_no_look_for_garbage():
    first, same, other = (simulate(SCENARIOS["tiny"].override(seed=seed, ideal=True)) for seed in (3, 3, 4))
    for one, two in zip(first.timelines, same.timelines, strict=True):
        assert one.kernels["start"].tolist() == two.kernels["start"].tolist()
        assert one.api["end"].tolist() == two.api["end"].tolist()
    assert first.timelines[0].kernels["start"].tolist() != other.timelines[0].kernels["start"].tolist()
    gc.collect()
    gc.disable()
    try:
        run = simulate(SCENARIOS["tiny"])
        timelines = [weakref.ref(line) for line in run.timelines]
        del run
        assert timelines
        assert [line() for line in timelines] == [None] * len(timelines)
    finally:
        gc.enable()


def test_tensor_groups_and_mpi_ranks_wait_for_each_other():
    run = simulate(SCENARIOS["tensor-data"].override(steps=1, ideal=True))
    line = run.timelines[5]
    kernels = line.kernels
    compute, shared = (kernels["stream"] == stream for stream in (7, 17))
    assert shared.sum() == 24
    # nothing computes on the device while a layer is shared
    for start, end in zip(kernels["start"][shared].tolist(), kernels["end"][shared].tolist(), strict=True):
        assert not ((kernels["start"][compute] < end) & (kernels["end"][compute] > start)).any()
    run = simulate(SCENARIOS["tiny"].override(rank_source="mpi", ideal=True))
    ends = np.array([line.mpi["end"] for line in run.timelines])
    starts = np.array([line.mpi["start"] for line in run.timelines])
    assert ends.shape == (2, 2)
    assert (np.ptp(ends, axis=0) <= 2_000).all()
    assert (ends.min(axis=0) >= starts.max(axis=0)).all()


def test_a_program_that_never_meets_is_an_error(monkeypatch):
    class Lonely(DataParallel):
        def step(self, rank, step, rng):
            return [Collective(0, "AllReduce", 8, 13), Synchronize(13)] if rank == 0 else []

    monkeypatch.setitem(LAYOUTS, "data", Lonely)
    with pytest.raises(RuntimeError, match=r"ranks \[0\] wait"):
        simulate(SCENARIOS["tiny"])


def test_the_whole_device_is_waited_for(monkeypatch):
    class Whole(DataParallel):
        def step(self, rank, step, rng):
            return [Collective(0, "AllReduce", 8, 13), Synchronize(None)]

    monkeypatch.setitem(LAYOUTS, "data", Whole)
    run = simulate(SCENARIOS["tiny"].override(steps=1, ideal=True))
    for rank, line in enumerate(run.timelines):
        assert line.syncs["type"].tolist() == [4]
        assert line.syncs["end"][0] > run.collectives[0].ends[rank]


def test_a_gap_of_the_device_and_calls_that_drain_it(monkeypatch):
    class Gaps(DataParallel):
        def step(self, rank, step, rng):
            one = Compute(np.array([0]), np.array([50_000]))
            return [one, DeviceGap(300_000), one, Call("cudaFree_v3020", 20_000, drains=True)]

    monkeypatch.setitem(LAYOUTS, "data", Gaps)
    line = simulate(SCENARIOS["tiny"].override(steps=1, ideal=True)).timelines[0]
    starts, ends = line.kernels["start"], line.kernels["end"]
    assert starts[1] - ends[0] == 300_000 + 700
    free = line.api["name"] == line.names.number("cudaFree_v3020")
    assert line.api["end"][free].tolist() == [int(ends[1]) + 1_000 + 20_000]


def test_a_synchronous_copy_returns_when_it_is_done(monkeypatch):
    class Copies(DataParallel):
        def step(self, rank, step, rng):
            one = Compute(np.array([0]), np.array([400_000]))
            return [one, Copy(100, 30_000, kind=2, synchronous=True), Copy(100, 20_000, pageable=True, blocking=True)]

    monkeypatch.setitem(LAYOUTS, "data", Copies)
    line = simulate(SCENARIOS["tiny"].override(steps=1, ideal=True)).timelines[0]
    names = [line.names.texts[n] for n in line.api["name"].tolist()]
    assert names[-2:] == ["cudaMemcpy_v3020", "cudaMemcpyAsync_v3020"]
    assert line.copies["start"][0] == line.kernels["end"][0]
    assert line.api["end"][-2:].tolist() == (line.copies["end"] + 1_000).tolist()
    assert list(zip(line.copies["source"].tolist(), line.copies["target"].tolist(), strict=True)) == [(2, 1), (0, 2)]


def test_calls_of_a_benchmark_vary_as_real_ones_do():
    run = simulate(SCENARIOS["bench"].override(steps=1, layers=10, buckets=1, ideal=True))
    rows = run.timelines[0].api
    microseconds = (rows["end"] - rows["start"]) / 1e3
    assert 2.0 < np.median(microseconds) < 2.4  # the mean is 3, and the logarithm's standard deviation 0.8
    assert 12 < np.quantile(microseconds, 0.99) < 17
    assert len(np.unique(microseconds)) > 5_000


_LINKS = Links(within_host_gb_per_s=200.0, between_hosts_gb_per_s=50.0, latency_ns=1_000)
_GROUP = Group("four", (4, 5, 6, 7), 99)


@pytest.mark.parametrize(
    ("op", "volume"),
    [("AllReduce", 1.5), ("AllGather", 3), ("ReduceScatter", 3), ("AlltoAll", 3), ("SendRecv", 1), ("Broadcast", 1)],
)
def test_transfers_follow_the_bus_bandwidth_factors(op, volume):
    call = Collective(0, op, 1_000_000, 13)
    assert transfer_ns(_GROUP, call, Layout(hosts=1, ranks_per_host=8), _LINKS) == 1_000 + volume * 1_000_000 / 200
    assert transfer_ns(_GROUP, call, Layout(hosts=4, ranks_per_host=2), _LINKS) == 1_000 + volume * 1_000_000 / 50
    assert transfer_ns(_GROUP, None, Layout(), _LINKS) == 1_000


def test_calls_of_groups_and_what_a_payload_tells():
    pair = Group("pair", (2, 6), 7)
    whole = {"NCCL communicator ID": 7, "Message size [bytes]": 64, "Peer rank": 1}
    one = Collective(0, "SendRecv", 64, 13, receives=True)
    assert host_ranges(one, pair, 2, Environment(), 500) == ([], 500)
    assert launching_range(one, pair, 2, Environment()) == ("ncclRecv", whole)
    both = Collective(0, "SendRecv", 64, 13, sends=True, receives=True)
    found, begin = host_ranges(both, pair, 6, Environment(), 500)
    assert [(name, payload.get("Peer rank")) for name, _, _, payload in found] == [
        ("ncclGroupStart", None),
        ("ncclSend", 0),
        ("ncclRecv", 0),
    ]
    assert all(start < end < begin for _, start, end, _ in found)
    assert launching_range(both, pair, 6, Environment()) == ("ncclGroupEnd", {})
    assert launching_range(Collective(0, "ReduceScatter", 8, 13), _GROUP, 4, Environment()) == (
        "ncclReduceScatter",
        {"NCCL communicator ID": 99, "Message size [bytes]": 8, "Reduction operation": "Sum"},
    )
    assert "Reduction operation" not in launching_range(Collective(0, "AllGather", 8, 13), _GROUP, 4, Environment())[1]
