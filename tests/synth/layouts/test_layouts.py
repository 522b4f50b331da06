"""Requirements on every layout: members agree on their collectives, ends are together, the truth fits the events."""

import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS, write_run
from alltrace.synth.kernels import ALL_KERNELS
from alltrace.synth.layouts import LAYOUTS
from alltrace.synth.program import Collective
from alltrace.synth.scenario import LAYOUT_KINDS
from alltrace.synth.simulate import simulate
from alltrace.trace.errors import UsageError

NAMES = ("healthy", "tensor-data", "pipeline", "experts", "sharded")


@pytest.fixture(scope="module", params=NAMES)
def run(request):
    return simulate(SCENARIOS[request.param].override(steps=2, ideal=True))


def test_every_layout_has_a_scenario():
    assert {SCENARIOS[name].layout.kind for name in NAMES} == set(LAYOUTS)
    assert tuple(LAYOUTS) == LAYOUT_KINDS


def test_members_meet_in_the_same_order_and_leave_together(run):
    links = run.scenario.links
    assert len(run.collectives) > 4
    for one in run.collectives:
        members = run.groups[one.group].ranks
        assert set(one.arrivals) == set(one.ends) == set(one.correlations) == set(members)
        ends, arrivals = ([values[rank] for rank in members] for values in (one.ends, one.arrivals))
        assert np.ptp(ends) <= links.end_jitter_ns
        assert min(ends) - max(arrivals) >= links.latency_ns
    program = LAYOUTS[run.scenario.layout.kind](run.scenario)
    ops = [
        [op for op in program.step(rank, 0, np.random.default_rng(0)) if isinstance(op, Collective)]
        for rank in range(run.scenario.layout.ranks)
    ]
    for number, group in enumerate(run.groups):
        called = {tuple((op.op, op.size_bytes) for op in ops[rank] if op.group == number) for rank in group.ranks}
        assert len(called) == 1, group.name


def test_kernels_follow_their_launches_and_one_another(run):
    for line in run.timelines:
        kernels = line.kernels
        for stream in np.unique(kernels["stream"]).tolist():
            mine = kernels["stream"] == stream
            assert (kernels["start"][mine][1:] >= kernels["end"][mine][:-1]).all()
    for line in run.timelines:
        calls = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
        starts = line.kernels["start"].tolist()
        assert all(calls[c] < start for c, start in zip(line.kernels["correlation"].tolist(), starts, strict=True))
    ops = {one.op for one in run.collectives}
    shorts = {ALL_KERNELS[k].short for line in run.timelines for k in np.unique(line.kernels["kernel"]).tolist()}
    nccl = {short for short in shorts if short.startswith("nccl")}
    expected = {
        "AllReduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        "AllGather": "ncclDevKernel_AllGather_RING_LL",
        "ReduceScatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
        "SendRecv": "ncclDevKernel_SendRecv",
        "AlltoAll": "ncclDevKernel_SendRecv",
    }
    assert nccl == {expected[op] for op in ops}


def test_ranges_stand_around_launches_and_only_a_warm_up_is_slower(run):
    hashes = {group.comm_hash for group in run.groups}
    for rank in (0, run.scenario.layout.ranks - 1):
        line = run.timelines[rank]
        rows = line.ranges
        nccl = rows["domain"] == 1
        starts, ends, texts = (rows[name][nccl].tolist() for name in ("start", "end", "name"))
        payloads = [json.loads(line.payloads.texts[p]) if p >= 0 else {} for p in rows["payload"][nccl].tolist()]
        assert {p["NCCL communicator ID"] for p in payloads if p} <= hashes
        mine = [one for one in run.collectives if rank in one.launches]
        for one in mine:
            (around,) = (
                i for i, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < one.launches[rank] < end
            )
            name = line.names.texts[texts[around]]
            if name == "ncclGroupEnd":
                assert one.op == "SendRecv"
                continue
            assert name == f"nccl{one.op}" if one.op != "SendRecv" else name in {"ncclSend", "ncclRecv"}
            assert payloads[around]["Message size [bytes]"] == one.size_bytes
            assert payloads[around]["NCCL communicator ID"] == run.groups[one.group].comm_hash
    lengths = np.diff(run.steps, axis=2)[:, :, 0].mean(axis=0)
    if run.scenario.work.warmup_steps:
        assert lengths[0] > 1.15 * lengths[1]
    else:
        assert lengths[0] < 1.15 * lengths[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_fits_the_reports(tmp_path, name):
    truth = write_run(name, tmp_path, steps=2, ranks=8, gradient_bytes=1 << 20, ideal=True)
    table = truth.collectives()
    per_rank = np.bincount(table["rank"].to_numpy(), minlength=8)
    for rank in truth.ranks:
        assert rank["compute_ns"] > rank["communication_ns"] - rank["exposed_ns"]
        assert rank["exposed_ns"] <= rank["communication_ns"]
        assert rank["rows"]["CUPTI_ACTIVITY_KIND_KERNEL"] > per_rank[rank["rank"]] > 0
    assert set(table["recorded"].to_pylist()) == {True}
    assert set(table["step"].to_pylist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("pipeline", {"pipeline_stages": 3}, "pipeline_stages must be 2 or more and divide the 16 ranks; 3 was given"),
        ("pipeline", {"layers": 2, "buckets": 1}, "layers must be at least 4; 2 was given"),
        ("pipeline", {"tensor_parallel": 2}, "tensor_parallel is only for the layout 'data'; this one is 'pipeline'"),
        ("pipeline", {"microbatches": 0}, "microbatches must be at least 1"),
        (
            "experts",
            {"ranks": 12, "hosts": 1},
            "expert_parallel must be 2 or more and divide the 12 ranks; 8 was given",
        ),
        ("sharded", {"ranks": 1, "hosts": 1}, "'sharded' needs at least 2 ranks"),
        ("bench", {"kernel_names": 221}, "kernel_names must be 0 to 220; 221 was given"),
        ("healthy", {"outlier_share": 1.5}, "outlier_share must be 0 to 1; 1.5 was given"),
        ("healthy", {"step_names": "epoch"}, "unknown step name 'epoch'"),
    ],
)
def test_layouts_that_cannot_be_are_named(name, changes, words):
    with pytest.raises(UsageError) as error:
        SCENARIOS[name].override(**changes, ideal=True)
    assert words in str(error.value)
