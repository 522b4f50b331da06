import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.layouts import PipelineParallel
from alltrace.synth.program import Collective, Compute
from alltrace.synth.simulate import simulate


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
        rank: [op for op in program.step(rank, 1, np.random.default_rng(0)) if isinstance(op, Collective) and op.group == link]
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
