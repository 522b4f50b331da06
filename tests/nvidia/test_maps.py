import json

import numpy as np
import pytest
from tests.making import collective, copy, kernel, make_run

import alltrace
from alltrace.cli.main import main
from alltrace.nvidia.maps import Binning, equal_bins
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.registry import find
from alltrace.run.manifest import Clock
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError

MAPS = ("cuda_gpu_time_util_map", "nccl_gpu_time_util_map", "mpi_gpu_time_util_map", "ucx_gpu_time_util_map")


def cells(answer, *titles):
    return [tuple(row[t] for t in titles) for row in answer.table.to_pylist()]


def mpi(start, end, **others):
    return {"start": start, "end": end, "name": "MPI_Allreduce", "kind": "collective", **others}


def test_bins_are_of_one_length_and_covered_as_far_as_recorded():
    assert equal_bins(0, 100, 4).tolist() == [0, 25, 50, 75, 100]
    assert equal_bins(10, 20, 3).tolist() == [10, 14, 18, 20]
    assert equal_bins(0, 3, 30).tolist() == [0, 1, 2, 3]
    assert equal_bins(5, 5, 30).tolist() == [5, 6]
    # 10 bins of 2 ns would reach to 20
    assert equal_bins(0, 11, 10).tolist() == [0, 2, 4, 6, 8, 10, 11]
    cut = Binning(np.array([0, 10, 20, 30], np.int64), {1: (5, 20), 2: (40, 50)})
    assert cut.covered(0).tolist() == [10, 10, 10]
    assert cut.covered(1).tolist() == [5, 10, 0]
    assert cut.covered(2).tolist() == [0, 0, 0]


def test_kernels_count_once_each_moment_in_the_bin_that_they_begin_in(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 50), kernel(25, 75, stream=8), kernel(90, 100)]}})
    answer = ask(run, "cuda_gpu_time_util_map", {"bins": 2})
    assert answer.table.to_pylist() == [
        {"Duration": 0, "Kernel": 100.0, "PID": 4000, "Device ID": 0, "File": "rank0"},
        {"Duration": 50, "Kernel": 70.0, "PID": 4000, "Device ID": 0, "File": "rank0"},
    ]
    assert cells(ask(run, "cuda_gpu_time_util_map", {"bins": 2, "cumulative": True}), "Kernel") == [(150.0,), (70.0,)]
    run = make_run(
        tmp_path / "2" / "run", {0: {"kernels": [kernel(0, 50), kernel(100, 150)], "copies": [copy(150, 200)]}}
    )
    assert cells(ask(run, "cuda_gpu_time_util_map", {"bins": 2}), "Duration", "Kernel") == [(0, 50.0), (100, 50.0)]


def test_what_was_not_recorded_is_null_on_the_aligned_clock(tmp_path):
    ranks = {0: {"kernels": [kernel(0, 100)]}, 1: {"kernels": [kernel(30, 40), kernel(45, 50)]}}
    answer = ask(make_run(tmp_path / "run", ranks), "cuda_gpu_time_util_map", {"bins": 5})
    assert cells(answer, "Duration", "Kernel")[:5] == [(0, 100.0), (20, 100.0), (40, 100.0), (60, 100.0), (80, 100.0)]
    # [30, 40) is all that is known of the second bin, [40, 50) of the third
    assert cells(answer, "Duration", "Kernel")[5:] == [(0, None), (20, 100.0), (40, 50.0), (60, None), (80, None)]
    ranks = {0: {"kernels": [kernel(0, 100)]}, 1: {"kernels": [kernel(1000, 1050), kernel(1099, 1100)]}}
    clocks = (Clock("a"), Clock("b", offset_ns=1000))
    run = make_run(tmp_path / "2" / "run", ranks, hosts={0: "a", 1: "b"}, clocks=clocks)
    found = cells(ask(run, "cuda_gpu_time_util_map", {"bins": 2}), "Duration", "Kernel", "File")
    assert found == [(0, 100.0, "rank0"), (50, 100.0, "rank0"), (0, 100.0, "rank1"), (50, 2.0, "rank1")]


def test_rows_of_devices_and_processes_filters_and_kinds_of_kernels(tmp_path):
    tables = {
        "kernels": [kernel(0, 10), kernel(10, 20, device=1), kernel(0, 20, process=1)],
        "processes": [{"process": 0, "pid": 5}, {"process": 1, "pid": 6}],
        "devices": [{"device": 0, "ordinal": 3}, {"device": 1, "ordinal": 4}],
    }
    answer = ask(make_run(tmp_path / "run", {0: tables}), "cuda_gpu_time_util_map", {"bins": 1})
    assert cells(answer, "PID", "Device ID", "Kernel") == [(5, 3, 50.0), (5, 4, 50.0), (6, 3, 100.0)]
    run = make_run(tmp_path / "2" / "run", {0: {"kernels": [kernel(0, 10), kernel(40, 60), kernel(90, 100)]}})
    found = cells(ask(run, "cuda_gpu_time_util_map", {"bins": 2, "start": 30, "end": 70}), "Duration", "Kernel")
    assert found == [(30, 50.0), (50, 50.0)]
    kernels = [kernel(0, 40), collective(20, 60), collective(50, 60), kernel(90, 100)]
    run = make_run(tmp_path / "3" / "run", {0: {"kernels": kernels}})
    answer = ask(run, "nccl_gpu_time_util_map", {"bins": 1})
    assert cells(answer, "All", "NCCL", "Compute", "Overlap") == [(70.0, 40.0, 50.0, 20.0)]
    answer = ask(run, "nccl_gpu_time_util_map", {"bins": 1, "cumulative": True})
    assert cells(answer, "All", "NCCL", "Compute", "Overlap") == [(100.0, 50.0, 50.0, 20.0)]


@pytest.mark.parametrize(
    ("name", "table", "word"), [("mpi_gpu_time_util_map", "mpi", "MPI"), ("ucx_gpu_time_util_map", "ucx", "UCX")]
)
def test_kernels_and_calls_of_a_process(name, table, word, tmp_path):
    calls = [mpi(10, 30), mpi(20, 50), mpi(60, 61, process=1)]
    tables = {"kernels": [kernel(0, 20), kernel(10, 40, device=1), kernel(90, 100)], table: calls}
    tables["processes"] = [{"process": 0, "pid": 5}, {"process": 1, "pid": 6}]
    answer = ask(make_run(tmp_path / "run", {0: tables}), name, {"bins": 2})
    # process 0: kernels [0, 40) and [90, 100), calls [10, 50), both [10, 40)
    assert cells(answer, "PID", "Duration", "Kernel", word, "Overlap") == [
        (5, 0, 80.0, 80.0, 60.0), (5, 50, 20.0, 0.0, 0.0), (6, 0, 0.0, 0.0, 0.0), (6, 50, 0.0, 2.0, 0.0),
    ]  # fmt: skip


def test_a_rank_with_calls_alone_is_answered(tmp_path):
    answer = ask(
        make_run(tmp_path / "run", {0: {"mpi": [mpi(0, 10), mpi(30, 40)]}}), "mpi_gpu_time_util_map", {"bins": 2}
    )
    assert cells(answer, "Kernel", "MPI") == [(0.0, 50.0), (0.0, 50.0)]


@pytest.mark.parametrize("name", MAPS)
def test_no_bins_are_refused(name, tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)]}})
    with pytest.raises(UsageError, match=f"--bins of {name} is 0; expected 1 or more"):
        ask(run, name, {"bins": 0})
    with pytest.raises(UsageError, match="expected 100000 or less"):
        ask(run, name, {"bins": 100_001})


def test_all_maps_at_once_and_of_the_chosen_steps(tmp_path):
    ranks = {r: {"kernels": [kernel(r, 40), collective(20, 60)], "mpi": [mpi(10, 90)]} for r in range(2)}
    run = make_run(tmp_path / "run", ranks)
    for reply in ask_all(run, [(find(n), {"bins": 7}) for n in MAPS]):
        assert reply.answer is not None
        assert reply.answer.table.equals(ask(run, reply.recipe, {"bins": 7}).table)
        assert reply.answer.table.num_rows == 14
    steps = [{"start": i * 100, "end": i * 100 + 100, "name": f"step {i}", "kind": "pushpop"} for i in range(4)]
    calls = [{"start": i * 100 + 1, "end": i * 100 + 2, "correlation": i} for i in range(4)]
    kernels = [kernel(i * 100 + 10, i * 100 + 50 + 10 * i, correlation=i) for i in range(4)]
    run = make_run(tmp_path / "2" / "run", {0: {"ranges": steps, "api": calls, "kernels": kernels}})
    found = cells(ask(run, "cuda_gpu_time_util_map", {"bins": 2}, steps="1:2"), "Duration", "Kernel")
    # step 1 is [100, 200), in which the second kernel runs [110, 160)
    assert found == [(100, 80.0), (150, 20.0)]


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory):
    """Reports of two hosts whose clocks are 400 ms apart."""
    folder = tmp_path_factory.mktemp("two hosts")
    write_run("healthy", folder, ranks=4, hosts=2, steps=3, layers=4, offset_ms=400, ideal=True)
    return folder


def test_several_hosts_are_laid_on_one_clock_and_the_answer_says_so(two_hosts, tmp_path):
    run = alltrace.open(two_hosts, cache_dir=tmp_path)
    answer = ask(run, "cuda_gpu_time_util_map", {"bins": 40})
    assert any(
        note.startswith("the times of 2 hosts are on one clock, determined from shared collectives")
        for note in answer.notes
    )
    busy = {}
    for row in answer.table.to_pylist():
        if row["Kernel"]:
            busy.setdefault(row["File"], []).append(row["Duration"])
    # data parallel ranks end together; by their stamps they would be apart by more than the job takes
    length = answer.table.column("Duration")[1].as_py() - answer.table.column("Duration")[0].as_py()
    assert len(busy) == 4
    ends = [b[-1] for b in busy.values()]
    assert max(ends) - min(ends) <= length
    assert abs(run.manifest.clocks[1].offset_ns) > 40 * length


def test_one_host_is_not_aligned_for_a_heat_map(tmp_path):
    ranks = {r: {"kernels": [kernel(0, 100)]} for r in range(2)}
    assert ask(make_run(tmp_path / "one", ranks), "cuda_gpu_time_util_map", {"bins": 5}).notes == ()
    answer = ask(make_run(tmp_path / "two", ranks, hosts={0: "a", 1: "b"}), "cuda_gpu_time_util_map", {"bins": 5})
    assert len(answer.notes) == 1
    assert "clocks are aligned by UTC stamps" in answer.notes[0]


def test_reports_of_several_hosts_are_imported_with_what_aligns_them(two_hosts, tmp_path, capsys):
    arguments = ["recipe", "cuda_gpu_time_util_map", str(two_hosts), "--cache-dir", str(tmp_path), "--format", "json"]
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert any("are on one clock" in note for note in answer["notes"])
