from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask


def span(start, end, name, **others):
    return {"start": start, "end": end, "name": name, "kind": "pushpop", **others}


def call(start, end, correlation, **others):
    return {"start": start, "end": end, "name": "cudaLaunchKernel", "correlation": correlation, **others}


def sums(run, recipe, **options):
    return {r["Text"]: (r["Count"], r["Sum"]) for r in ask(run, recipe, options).table.to_pylist()}


TABLES = {
    "ranges": [
        span(0, 100, "step"),
        span(10, 40, "ncclAllReduce", domain="NCCL"),
        span(50, 60, "ncclAllReduce", domain="NCCL"),
        span(61, 62, "ncclAllReduce"),
        span(70, None, "open"),
        span(0, 90, "elsewhere", thread=1),
    ],
    "api": [call(20, 21, 1), call(30, 31, 2), call(80, 81, 3), call(91, 92, 4)],
    "kernels": [kernel(100, 110, correlation=1), kernel(200, 250, correlation=2), kernel(300, 300, correlation=4)],
    "copies": [copy(280, 290, correlation=3)],
    "threads": [{"thread": t, "process": 0, "tid": 4001 + t, "name": "main"} for t in (0, 1)],
}


def test_calls_of_nccl_are_those_of_its_domain(tmp_path):
    run = make_run(tmp_path / "run", {0: TABLES})
    assert sums(run, "nccl_sum") == {"ncclAllReduce": (2, 40)}
    assert sums(run, "nccl_gpu_proj_sum") == {"ncclAllReduce": (1, 150)}


def test_projected_ranges_reach_from_the_first_start_to_the_last_end(tmp_path):
    run = make_run(tmp_path / "run", {0: TABLES})
    assert sums(run, "nvtx_gpu_proj_sum") == {"ncclAllReduce": (1, 150), "step": (1, 200)}
    # filters choose among the work, and leave ranges and calls whole
    assert sums(run, "nvtx_gpu_proj_sum", end=110) == {"ncclAllReduce": (1, 10), "step": (1, 10)}
    trace = ask(run, "nvtx_gpu_proj_trace").table.to_pylist()
    assert [(r["Name"], r["Projected Start"], r["Projected Duration"], r["NumGPUOps"], r["Lvl"], r["File"]) for r in trace] == [
        ("step", 100, 200, 4, 0, "rank0"),
        ("NCCL:ncclAllReduce", 100, 150, 2, 1, "rank0"),
        ("open", 280, 20, 2, 1, "rank0"),
    ]


def test_a_call_of_mpi_that_waits_for_several_requests_counts_once(tmp_path):
    mpi = [
        *({"start": 0, "end": 50, "name": "MPI_Waitall", "kind": "start-wait", "request": r} for r in range(3)),
        {"start": 60, "end": 60, "name": "MPI_Sendrecv", "kind": "p2p"},
        {"start": 60, "end": 70, "name": "MPI_Sendrecv", "kind": "p2p"},
    ]
    run = make_run(tmp_path / "run", {0: {"mpi": mpi}, 1: {"mpi": mpi[:1]}})
    assert sums(run, "mpi_sum") == {"MPI_Sendrecv": (1, 10), "MPI_Waitall": (2, 100)}
