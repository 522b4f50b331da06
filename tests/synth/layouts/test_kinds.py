import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.layouts import DataParallel, ExpertParallel, FullySharded, PipelineParallel
from alltrace.synth.program import Collective, Compute, HostCollective, Pop, Push, StreamWait
from alltrace.synth.simulate import simulate
from alltrace.synth.truth import _device_times


def _step(scenario, rank=0):
    return DataParallel(scenario).step(rank, 0, np.random.default_rng(0))


def test_communicators_and_kernels_of_data_and_tensor_groups():
    scenario = SCENARIOS["healthy"]
    assert [group.ranks for group in DataParallel(scenario).groups] == [tuple(range(16))]
    reduces = [op for op in _step(scenario) if isinstance(op, Collective)]
    assert [op.size_bytes for op in reduces] == [100_000_000] * 4
    groups = {group.name: group.ranks for group in DataParallel(SCENARIOS["tensor-data"]).groups}
    assert groups["tensor 1"] == (4, 5, 6, 7)
    assert groups["data 1"] == (1, 5, 9, 13)
    assert len(groups) == 1 + 4 + 4
    hashes = [group.comm_hash for group in DataParallel(SCENARIOS["tensor-data"]).groups]
    assert len(set(hashes)) == len(hashes)
    work = SCENARIOS["tiny"].work
    kernels = sum(len(op.kernels) for op in _step(SCENARIOS["tiny"]) if isinstance(op, Compute))
    assert kernels == work.layers * work.kernels_per_layer * 3 + work.optimizer_kernels == 26


def test_tensor_parallel_ranks_single_ranks_and_ranges():
    scenario = SCENARIOS["tensor-data"].override(layers=3, buckets=1, ideal=True)
    ops = _step(scenario, rank=6)
    shared = [op for op in ops if isinstance(op, Collective) and op.size_bytes == scenario.work.activation_bytes]
    assert len(shared) == 6
    groups = DataParallel(scenario).groups
    assert {groups[op.group].ranks for op in shared} == {(4, 5, 6, 7)}
    ops = _step(SCENARIOS["bench"].override(layers=2, buckets=1, rank_source="mpi", ideal=True))
    assert not [op for op in ops if isinstance(op, (Collective, HostCollective, StreamWait))]
    depth = {0: 0, 1: 0}
    for op in _step(SCENARIOS["tiny"]):
        if isinstance(op, Push):
            depth[op.thread] += 1
        elif isinstance(op, Pop):
            depth[op.thread] -= 1
            assert depth[op.thread] >= 0
    assert depth == {0: 0, 1: 0}
    assert not [op for op in _step(SCENARIOS["tiny"].override(nvtx=False, ideal=True)) if isinstance(op, (Push, Pop))]


@pytest.fixture(scope="module")
def run():
    return simulate(SCENARIOS["pipeline"].override(ranks=4, steps=3, ideal=True))


def test_stages_their_communicators_and_messages():
    groups = {group.name: group.ranks for group in PipelineParallel(SCENARIOS["pipeline"]).groups}
    assert groups["pipe 2-6"] == (2, 6)
    assert groups["stage 1"] == (4, 5, 6, 7)
    assert len(groups) == 1 + 12 + 4
    scenario = SCENARIOS["pipeline"]
    for rank in (0, 5, 15):
        ops = PipelineParallel(scenario).step(rank, 1, np.random.default_rng(0))
        kernels = sum(len(op.kernels) for op in ops if isinstance(op, Compute))
        assert kernels == 8 * 2 * 30 + 8
    program = PipelineParallel(scenario)
    link = program.number("pipe 0-4")
    ops = {
        rank: [
            op
            for op in program.step(rank, 1, np.random.default_rng(0))
            if isinstance(op, Collective) and op.group == link
        ]
        for rank in (0, 4)
    }
    # three microbatches fill the pipeline and drain it, five exchange
    kinds = [(op.sends, op.receives) for op in ops[0]]
    assert kinds == [(True, False)] * 3 + [(True, True)] * 5 + [(False, True)] * 3
    assert [(op.receives, op.sends) for op in ops[4]] == kinds


def test_the_bubble_is_what_theory_says_and_later_stages_start_later(run):
    line = run.timelines[0]
    begin, end = run.steps[0, 2]
    kernels = line.kernels
    mine = (kernels["stream"] == 7) & (kernels["start"] >= begin) & (kernels["end"] <= end)
    busy = (kernels["end"] - kernels["start"])[mine].sum() / (end - begin)
    # m microbatches of p stages: m / (m + p - 1), less what messages and the optimizer cost
    assert 0.55 < busy < 8 / 11
    firsts = []
    for rank, line in enumerate(run.timelines):
        begin = run.steps[rank, 2, 0]
        compute = line.kernels["stream"] == 7
        starts = line.kernels["start"][compute]
        firsts.append(int(starts[starts > begin].min()))
    assert (np.diff(firsts) > 1_000_000).all()


def test_an_exchange_is_a_group_of_calls_with_one_kernel(run):
    line = run.timelines[1]
    rows = line.ranges
    nccl = rows["domain"] == 1
    names = [line.names.texts[n] for n in rows["name"][nccl].tolist()]
    payloads = [json.loads(line.payloads.texts[p]) if p >= 0 else None for p in rows["payload"][nccl].tolist()]
    first = names.index("ncclGroupStart")
    assert names[first : first + 4] == ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"]
    assert payloads[first] is payloads[first + 3] is None
    send, receive = payloads[first + 1 : first + 3]
    assert send["Peer rank"] == receive["Peer rank"]
    assert send["Message size [bytes]"] == 32 << 20
    # stage 1 of 4: six exchanges with stage 2 less the last, and likewise with stage 0
    assert (names.count("ncclGroupStart"), names.count("ncclSend")) == (3 * (6 + 5), 3 * 16)
    kernels = (line.kernels["stream"] != 7).sum()
    assert kernels == names.count("ncclSend") + names.count("ncclRecv") - names.count("ncclGroupStart")


def test_communicators_and_exchanges_of_experts():
    groups = {group.name: group.ranks for group in ExpertParallel(SCENARIOS["experts"]).groups}
    assert groups["expert 1"] == tuple(range(8, 16))
    assert groups["data 3"] == (3, 11)
    assert len(groups) == 1 + 2 + 8
    alone = ExpertParallel(SCENARIOS["experts"].override(ranks=8, hosts=1, ideal=True))
    assert [group.name for group in alone.groups] == ["world", "expert 0"]
    scenario = SCENARIOS["experts"]
    ops = ExpertParallel(scenario).step(9, 1, np.random.default_rng(0))
    exchanges = [op for op in ops if isinstance(op, Collective) and op.op == "AlltoAll"]
    assert len(exchanges) == 4 * 12
    assert {op.size_bytes for op in exchanges} == {8 << 20}
    parts = {
        part: sum(len(op.kernels) for op in ops if isinstance(op, Compute) and op.part == part)
        for part in ("layer", "expert")
    }
    assert parts == {"layer": 180, "expert": 180}
    run = simulate(SCENARIOS["experts"].override(steps=1, ideal=True))
    links = run.scenario.links
    for one in run.collectives:
        if one.op == "AlltoAll":
            took = min(one.ends.values()) - max(one.arrivals.values())
            assert took == pytest.approx(links.latency_ns + 7 * (8 << 20) / 300, abs=2_100)


def test_grouped_calls_tell_every_peer():
    run = simulate(SCENARIOS["experts"].override(steps=1, ranks=4, hosts=1, expert_parallel=4, grouped_all_to_all=True))
    line = run.timelines[2]
    rows = line.ranges
    nccl = np.flatnonzero(rows["domain"] == 1)
    names = [line.names.texts[n] for n in rows["name"][nccl].tolist()]
    assert "ncclAlltoAll" not in names
    first = names.index("ncclGroupStart")
    assert names[first : first + 10] == ["ncclGroupStart", *["ncclSend", "ncclRecv"] * 4, "ncclGroupEnd"]
    peers = [
        json.loads(line.payloads.texts[p])["Peer rank"] for p in rows["payload"][nccl][first + 1 : first + 9].tolist()
    ]
    assert peers == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {one.op for one in run.collectives} == {"AlltoAll", "AllReduce"}


def test_gathers_run_under_the_kernels_of_the_layer_before():
    scenario = SCENARIOS["sharded"]
    ops = [op for op in FullySharded(scenario).step(3, 1, np.random.default_rng(0)) if isinstance(op, Collective)]
    names = [op.op for op in ops]
    assert (names.count("AllGather"), names.count("ReduceScatter")) == (24, 12)
    assert {op.size_bytes for op in ops} == {400_000_000 // (12 * 16)}
    run = simulate(SCENARIOS["sharded"].override(steps=3, ideal=True))
    times = _device_times(run.timelines[5])
    assert times["communication_ns"] > 20_000_000
    # the first of each pass is exposed, and the last reduction; so is what ranks wait for each other
    assert times["exposed_ns"] < 0.3 * times["communication_ns"]
    gather = next(one for one in run.collectives if one.op == "AllGather")
    took = min(gather.ends.values()) - max(gather.arrivals.values())
    assert took == pytest.approx(15_000 + 15 * (400_000_000 // 192) / 100, abs=2_100)
