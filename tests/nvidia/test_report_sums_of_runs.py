import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.making import copy, kernel, make_run
from tests.recipes.work import call

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report


def test_quartiles_over_ranks_are_exact_and_files_hold_the_extremes(tmp_path):
    lengths = {0: (10, 20), 1: (10, 50, 60), 2: (5000,)}
    ranks = {
        r: {"kernels": [kernel(9000 * i, 9000 * i + n, "x" if r == 2 else "k") for i, n in enumerate(ns)]}
        for r, ns in lengths.items()
    }
    answer = ask(make_run(tmp_path / "run", ranks), "cuda_gpu_kern_sum")
    x, k = answer.table.to_pylist()
    assert (x["Name"], x["Time"], x["Total Time"], x["Min File"]) == ("x", 97.1, 5000, "rank2")
    assert {c: k[c] for c in ("Instances", "Avg", "Q1", "Med", "Q3", "Min", "Max", "Min File", "Max File")} == {
        "Instances": 5, "Avg": 30.0, "Q1": 10.0, "Med": 20.0, "Q3": 50.0, "Min": 10, "Max": 60,
        "Min File": "rank0, rank1", "Max File": "rank1",
    }  # fmt: skip
    ranks_table = answer.further["rank_stats"].table.to_pylist()
    assert [(r["File"], r["Time"], r["Total Time"]) for r in ranks_table] == [
        ("rank0", 100.0, 30), ("rank1", 100.0, 120), ("rank2", 100.0, 5000),
    ]  # fmt: skip


def test_ranks_of_one_report_are_told_apart(tmp_path):

    from alltrace.nvidia.recipe import files

    run = make_run(tmp_path / "run", {r: {"kernels": [kernel(0, 5)]} for r in (0, 1, 2)})
    report = run.manifest.reports[0]._replace(path="a/one.nsys-rep")

    class Facts:
        manifest = replace(
            run.manifest, reports=(report, report._replace(path="b/one_pqtdir"), report._replace(path="two.json.gz"))
        )
        ranks = run.ranks

    assert files(Facts()) == {0: "one rank 0", 1: "one rank 1", 2: "two"}


def test_thousands_of_reports_are_told_apart_in_no_time():
    from alltrace.nvidia.recipe import files

    ranks = [SimpleNamespace(rank=r, reports=(r,)) for r in range(12_000)]
    reports = [SimpleNamespace(path=f"reports/profile_rank{r.rank:05d}.nsys-rep") for r in ranks]
    began = time.process_time()
    names = files(SimpleNamespace(ranks=ranks, manifest=SimpleNamespace(reports=reports)))
    assert time.process_time() - began < 0.8
    assert len(set(names.values())) == len(ranks)


API = [call(10, 60, 1), call(150, 220, 2), call(300, 390, 3)]
# the first two wait in the queue for 40 and 20 ns, the third begins within its call
KERNELS = [kernel(100, 110, correlation=1), kernel(240, 270, correlation=2), kernel(350, 355, correlation=3)]


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", {0: {"api": API, "kernels": KERNELS}})


def test_phases_of_each_launch_and_their_statistics(run):
    (row,) = ask(run, find_report("cuda_kern_exec_sum")).table.to_pylist()
    assert row == {
        "PID": 4000, "TID": 4001, "DevId": 0, "Count": 3, "QCount": 2,
        # call and kernel together: 100, 120 and 90
        "TAvg (ns)": 103.3, "TMed (ns)": 100.0, "TMin (ns)": 90, "TMax (ns)": 120, "TStdDev (ns)": 15.3,
        # the calls: 50, 70 and 90
        "AAvg (ns)": 70.0, "AMed (ns)": 70.0, "AMin (ns)": 50, "AMax (ns)": 90, "AStdDev (ns)": 20.0,
        # in the queue: 40 and 20
        "QAvg (ns)": 30.0, "QMed (ns)": 30.0, "QMin (ns)": 20, "QMax (ns)": 40, "QStdDev (ns)": 14.1,
        # the kernels: 10, 30 and 5
        "KAvg (ns)": 15.0, "KMed (ns)": 10.0, "KMin (ns)": 5, "KMax (ns)": 30, "KStdDev (ns)": 13.2,
        "API Name": "cudaLaunchKernel", "Kernel Name": "void gemm_kernel(int)",
    }  # fmt: skip
    rows = ask(run, find_report("cuda_kern_exec_trace")).table.to_pylist()
    assert [(r["API Dur (ns)"], r["Queue Dur (ns)"], r["Kernel Dur (ns)"], r["Total Dur (ns)"]) for r in rows] == [
        (50, 40, 10, 100),
        (70, 20, 30, 120),
        (90, None, 5, 90),
    ]
    assert {(r["PID"], r["TID"], r["Kernel Name"]) for r in rows} == {(4000, 4001, "void gemm_kernel(int)")}


def test_sizes_of_copies(tmp_path):
    copies = [copy(10 * mb, 10 * mb + 5, bytes=mb * 1_000_000) for mb in (4, 1, 9, 2)]
    rows = ask(
        make_run(tmp_path / "run", {0: {"copies": copies}}), find_report("cuda_gpu_mem_size_sum")
    ).table.to_pylist()
    assert rows == [
        {
            "Total (MB)": 16.0, "Count": 4, "Avg (MB)": 4.0, "Med (MB)": 3.0, "Min (MB)": 1.0, "Max (MB)": 9.0,
            "StdDev (MB)": 3.559, "Operation": "[CUDA memcpy Host-to-Device]",
        }
    ]  # fmt: skip


def test_sizes_of_messages(tmp_path):
    sends = [
        {
            "start": 10 * mb,
            "end": 10 * mb + 5,
            "name": "MPI_Send",
            "kind": "p2p",
            "bytes": mb * 1_000_000,
            "tag": 40 + mb,
            "peer": 1,
        }
        for mb in (6, 1, 2)
    ]
    run = make_run(tmp_path / "run", {0: {"mpi": sends}})
    assert ask(run, find_report("mpi_msg_size_sum")).table.to_pylist() == [
        {
            "Total Message Volume (MB)": 9.0, "Instances": 3, "Avg (MB)": 3.0, "Med (MB)": 2.0, "Min (MB)": 1.0,
            "Max (MB)": 6.0, "StdDev (MB)": 2.646, "Source": "p2p", "Name": "MPI_Send",
        }
    ]  # fmt: skip
    rows = ask(run, find_report("mpi_event_trace")).table.to_pylist()
    assert [(r["Start (ns)"], r["Tag"], r["Pid"], r["Tid"]) for r in rows] == [
        (10, 41, 4000, 4001),
        (20, 42, 4000, 4001),
        (60, 46, 4000, 4001),
    ]


LOW, HIGH = 0x7F0000000000, 0x7F0000001000


@pytest.fixture
def run_unified(tmp_path):
    moved = [("UvmHtoD", 2_000_000, 1000, LOW), ("UvmHtoD", 1_000_000, 1000, LOW), ("UvmDtoH", 500_000, 500, HIGH)]
    copies = [
        copy(10_000 * n, 10_000 * n + took, kind, bytes=size, address=at)
        for n, (kind, size, took, at) in enumerate(moved)
    ]
    faults = [
        {"start": 5, "kind": "cpu", "address": HIGH},
        {"start": 6, "kind": "cpu", "address": HIGH},
        {"start": 7, "kind": "gpu", "address": LOW, "count": 30},
    ]
    return make_run(tmp_path / "run", {0: {"copies": copies, "page_faults": faults}})


def test_migrations_and_faults_by_address_and_together(run_unified):
    assert ask(run_unified, find_report("um_sum")).table.to_pylist() == [
        {
            "Virtual Address": "0x7F0000000000", "HtoD Migration size (MB)": 3.0, "DtoH Migration size (MB)": None,
            "CPU Page Faults": None, " GPU Page Faults": 30, "Migration Throughput (MB/s)": 1_500_000.0,
        },
        {
            "Virtual Address": "0x7F0000001000", "HtoD Migration size (MB)": None, "DtoH Migration size (MB)": 0.5,
            "CPU Page Faults": 2, " GPU Page Faults": None, "Migration Throughput (MB/s)": 1_000_000.0,
        },
    ]  # fmt: skip
    assert ask(run_unified, find_report("um_total_sum")).table.to_pylist() == [
        {
            "Total HtoD Migration Size (MB)": 3.0, "Total DtoH Migration Size (MB)": 0.5, "Total CPU Page Faults": 2,
            "Total GPU PageFaults": 30, "Minimum Virtual Address": "0x7F0000000000",
            "Maximum Virtual Address": "0x7F0000001000",
        }
    ]  # fmt: skip
