import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.layouts import ExpertParallel
from alltrace.synth.program import Collective, Compute
from alltrace.synth.simulate import simulate


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
        part: sum(len(op.kernels) for op in ops if isinstance(op, Compute) and op.part == part) for part in ("layer", "expert")
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
    peers = [json.loads(line.payloads.texts[p])["Peer rank"] for p in rows["payload"][nccl][first + 1 : first + 9].tolist()]
    assert peers == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {one.op for one in run.collectives} == {"AlltoAll", "AllReduce"}
