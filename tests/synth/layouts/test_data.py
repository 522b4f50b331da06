import numpy as np

from alltrace.synth import SCENARIOS
from alltrace.synth.layouts import DataParallel
from alltrace.synth.program import Collective, Compute, HostCollective, Pop, Push, StreamWait


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
