import json

import pytest
from tests.making import copy, kernel, make_run

from alltrace.api import open_run
from alltrace.export.selection import select
from alltrace.export.talp import export_talp
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run


def one_run(tmp_path, ranks, **making):
    run = make_run(tmp_path / "run", ranks, **making)
    found = export_talp(select(run), tmp_path / "talp.json")
    assert json.loads((tmp_path / "talp.json").read_text()) == found
    return found


@pytest.mark.parametrize("scenario", ["tiny", "by-hand"])
def test_the_recipe_has_the_same_numbers(tmp_path, scenario):
    """`efficiency --convention talp` is the other way to these numbers: of the same time, with all digits."""
    if scenario == "tiny":
        write_run("tiny", tmp_path / "in", ideal=True)
        run = open_run(tmp_path / "in", cache_dir=tmp_path / "cache")
    else:
        host = {
            "mpi": [{"start": 10, "end": 40, "name": "MPI_Send"}],
            "osrt": [{"start": -20, "end": 130, "name": "poll"}],
        }
        calls = [{"start": 30, "end": 60, "name": "c", "kind": "runtime"}]
        ranks = {r: {"kernels": [kernel(20, 60 + r)], "copies": [copy(55, 80)], "api": calls, **host} for r in range(3)}
        run = make_run(tmp_path / "run", ranks)
    found = export_talp(select(run, aligned=run.aligned()), tmp_path / "talp.json")["Application"]["Global"]
    device, host_side = ask(run, "efficiency", {"convention": "talp"}).table.to_pylist()
    assert (device["span_ns"], host_side["span_ns"]) == (found["elapsedTime"], found["elapsedTime"])
    assert (device["useful_ns"], device["communication_ns"]) == (found["gpuUsefulTime"], found["gpuCommunicationTime"])
    times = found["usefulTime"], found["mpiTime"], found["gpuRuntimeTime"]
    assert (host_side["useful_ns"], host_side["communication_ns"], host_side["runtime_ns"]) == times
    for side, name, known_as in (
        (device, "parallel_efficiency", "gpuParallelEfficiency"),
        (device, "load_balance", "gpuLoadBalance"),
        (device, "communication_efficiency", "gpuCommunicationEfficiency"),
        (device, "orchestration_efficiency", "gpuOrchestrationEfficiency"),
        (host_side, "parallel_efficiency", "parallelEfficiency"),
        (host_side, "mpi_parallel_efficiency", "mpiParallelEfficiency"),
        (host_side, "offload_efficiency", "deviceOffloadEfficiency"),
    ):
        assert round(side[name], 2) == found[known_as]


def test_devices_of_two_ranks(tmp_path):
    # T = 100; d0 kernels [0,60), copies [60,70); d1 kernels [0,40), copies [40,60)
    ranks = {
        0: {
            "kernels": [kernel(0, 60)],
            "copies": [copy(60, 70)],
            "api": [{"start": 0, "end": 100, "name": "c", "kind": "runtime"}],
        },
        1: {"kernels": [kernel(0, 40), kernel(10, 20, stream=8)], "copies": [copy(40, 60), copy(30, 35)]},
    }
    found = one_run(tmp_path, ranks)["Application"]["Global"]
    assert found["elapsedTime"] == 100
    assert (found["gpuUsefulTime"], found["gpuCommunicationTime"], found["gpuInactiveTime"]) == (100, 30, 70)
    assert (found["maxGpuUsefulTime"], found["maxGpuActiveTime"]) == (60, 70)
    assert found["gpuParallelEfficiency"] == 0.5
    assert found["gpuLoadBalance"] == 0.83
    assert found["gpuCommunicationEfficiency"] == 0.86
    assert found["gpuOrchestrationEfficiency"] == 0.7


def test_processes_with_several_devices_or_none_in_a_list(tmp_path):
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}"} for d in (0, 1)]
    rows = {
        "devices": devices,
        "kernels": [kernel(0, 60), kernel(0, 40, device=1)],
        "copies": [copy(60, 70), copy(40, 60, device=1), copy(99, 100)],
    }
    found = one_run(tmp_path, {0: rows})["Application"]["Global"]
    assert (found["numGpus"], found["gpuParallelEfficiency"], found["gpuLoadBalance"]) == (2, 0.5, 1.0)
    assert (found["maxGpuUsefulTime"], found["maxGpuActiveTime"]) == (100, 131)
    assert (found["gpuCommunicationEfficiency"], found["gpuOrchestrationEfficiency"]) == (0.76, 0.66)
    rows = {"devices": [], "kernels": [kernel(0, 100, device=None)]}
    found = one_run(tmp_path / "2", {0: rows, 1: {"kernels": [kernel(0, 50)]}}, hosts={0: "a", 1: "b"})
    assert found["resources"]["numGpus"] == 2
    assert [n["Global"]["numGpus"] for n in found["node"]] == [1, 1]
    assert [n["Global"]["gpuParallelEfficiency"] for n in found["node"]] == [1.0, 0.5]
    assert found["Application"]["Global"]["gpuParallelEfficiency"] == 0.75


def test_gpus_that_ranks_share_and_work_without_an_end(tmp_path):
    rows = {"devices": [{"device": 0, "ordinal": 0, "uuid": "GPU-0"}]}
    found = one_run(tmp_path, {0: {**rows, "kernels": [kernel(0, 50)]}, 1: {**rows, "kernels": [kernel(50, 100)]}})
    assert found["resources"]["numGpus"] == found["node"][0]["Global"]["numGpus"] == 1
    assert (
        found["Application"]["Global"]["gpuParallelEfficiency"]
        == found["node"][0]["Global"]["gpuParallelEfficiency"]
        == 1.0
    )
    found = one_run(
        tmp_path / "2", {0: {"kernels": [kernel(-100, None), kernel(-50, -40), kernel(20, 30), kernel(60, None)]}}
    )
    assert found["Application"]["Global"]["gpuUsefulTime"] == 20


def test_hosts(tmp_path):
    # T = 100; ranks with MPI 20 and GPU calls 30, MPI 40 and GPU calls 20
    def host(mpi, calls):
        return {
            "mpi": [{"start": 0, "end": mpi, "name": "MPI_Allreduce", "kind": "collective"}],
            "api": [
                {"start": mpi - 10, "end": mpi + calls, "name": "cudaDeviceSynchronize", "kind": "runtime"},
                {"start": mpi, "end": mpi + 5, "name": "cuCtxSynchronize", "kind": "driver"},
            ],
            "kernels": [kernel(99, 100)],
        }

    found = one_run(tmp_path, {0: host(20, 30), 1: host(40, 20)}, hosts={0: "a", 1: "b"})
    whole = found["Application"]["Global"]
    assert (whole["usefulTime"], whole["mpiTime"], whole["gpuRuntimeTime"]) == (90, 60, 50)
    assert (whole["numMpiCalls"], whole["numGpuRuntimeCalls"], whole["numNodes"]) == (2, 4, 2)
    assert whole["parallelEfficiency"] == 0.45
    assert whole["mpiParallelEfficiency"] == 0.7
    assert (whole["mpiLoadBalance"], whole["mpiCommunicationEfficiency"]) == (0.88, 0.8)
    assert (whole["mpiLoadBalanceIn"], whole["mpiLoadBalanceOut"]) == (1.0, 0.88)
    assert whole["deviceOffloadEfficiency"] == 0.64
    assert [n["hostname"] for n in found["node"]] == ["a", "b"]
    assert [(p["rank"], p["pid"], p["nodeId"], p["usefulTime"]) for p in found["Process"]["Global"]] == [
        (0, 4000, 0, 50),
        (1, 4001, 1, 40),
    ]


def test_what_reaches_into_a_window_counts_with_its_part(tmp_path):
    rows = {
        "kernels": [kernel(0, 130), kernel(180, 400, stream=8)],
        "copies": [copy(120, 140)],
        "mpi": [{"start": 50, "end": 110, "name": "MPI_Wait", "kind": "start-wait"}],
        "api": [
            {"start": 90, "end": 120, "name": "cudaDeviceSynchronize", "kind": "runtime"},
            {"start": 150, "end": 160, "name": "cudaMalloc", "kind": "runtime"},
        ],
    }
    run = make_run(tmp_path / "run", {0: rows})
    found = export_talp(select(run, window_ns=(100, 200)), tmp_path / "talp.json")["Application"]["Global"]
    assert (found["elapsedTime"], found["gpuUsefulTime"], found["gpuCommunicationTime"], found["gpuInactiveTime"]) == (
        100,
        50,
        10,
        40,
    )
    assert (found["mpiTime"], found["gpuRuntimeTime"], found["usefulTime"]) == (10, 20, 70)
    assert (found["numMpiCalls"], found["numGpuRuntimeCalls"]) == (0, 1)


@pytest.mark.parametrize("ranks", [{}, {0: {}}])
def test_an_empty_run_has_no_efficiency(tmp_path, ranks):
    found = one_run(tmp_path, ranks)["Application"]["Global"]
    assert (found["elapsedTime"], found["parallelEfficiency"], found["gpuParallelEfficiency"]) == (0, 0, 0)
