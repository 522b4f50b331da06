import numpy as np
import pytest
from tests.making import copy, kernel, make_run

from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run


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


def test_calls_of_nccl_by_domain_and_waits_of_mpi_count_once(tmp_path):
    run = make_run(tmp_path / "run", {0: TABLES})
    assert sums(run, "nccl_sum") == {"ncclAllReduce": (2, 40)}
    assert sums(run, "nccl_gpu_proj_sum") == {"ncclAllReduce": (1, 150)}
    mpi = [
        *({"start": 0, "end": 50, "name": "MPI_Waitall", "kind": "start-wait", "request": r} for r in range(3)),
        {"start": 60, "end": 60, "name": "MPI_Sendrecv", "kind": "p2p"},
        {"start": 60, "end": 70, "name": "MPI_Sendrecv", "kind": "p2p"},
    ]
    run = make_run(tmp_path / "2" / "run", {0: {"mpi": mpi}, 1: {"mpi": mpi[:1]}})
    assert sums(run, "mpi_sum") == {"MPI_Sendrecv": (1, 10), "MPI_Waitall": (2, 100)}


def test_projected_ranges_reach_from_the_first_start_to_the_last_end(tmp_path):
    run = make_run(tmp_path / "run", {0: TABLES})
    assert sums(run, "nvtx_gpu_proj_sum") == {"ncclAllReduce": (1, 150), "step": (1, 200)}
    # filters choose among the work, and leave ranges and calls whole
    assert sums(run, "nvtx_gpu_proj_sum", end=110) == {"ncclAllReduce": (1, 10), "step": (1, 10)}
    trace = ask(run, "nvtx_gpu_proj_trace").table.to_pylist()
    assert [
        (r["Name"], r["Projected Start"], r["Projected Duration"], r["NumGPUOps"], r["Lvl"], r["File"]) for r in trace
    ] == [
        ("step", 100, 200, 4, 0, "rank0"),
        ("NCCL:ncclAllReduce", 100, 150, 2, 1, "rank0"),
        ("open", 280, 20, 2, 1, "rank0"),
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A simulated run whose reports name no communicator and no size, imported alone and with NCCL's logs."""
    folder = tmp_path_factory.mktemp("runs")
    write_run("tiny", folder / "in", logs=True, nvtx=False, ranks=4, hosts=1, ideal=True)
    logs = [str(p) for p in sorted((folder / "in" / "logs").glob("*")) if "train" not in p.name]
    import_reports([str(folder / "in")], folder / "alone", jobs=1)
    import_reports([str(folder / "in")], folder / "joined", jobs=1, nccl_logs=logs)
    return {name: Run(folder / name) for name in ("alone", "joined")}


@pytest.mark.slow
def test_sizes_and_types_come_from_the_logs(runs):
    alone, joined = ({k: t.table.to_pylist() for k, t in ask(r, "nccl_sum").further.items()} for r in runs.values())
    assert {r["Bytes"] for r in alone["operations"]} == {None}
    assert all(r["Bytes"] and r["Datatype"] and r["Ranks"] == 4 for r in joined["operations"])
    assert sum(r["Count"] for r in joined["operations"]) == sum(r["Count"] for r in alone["operations"]) > 0
    assert sum(r["Sum"] for r in joined["operations"]) == sum(r["Sum"] for r in alone["operations"]) > 0


def test_communicators_add_up_and_filters_let_operations_pass(runs):
    run = runs["joined"]
    answer = ask(run, "nccl_sum")
    operations, communicators = (answer.further[n].table.to_pylist() for n in ("operations", "communicators"))
    assert sum(r["Count"] for r in communicators) == sum(r["Count"] for r in operations)
    assert sum(r["Sum"] for r in communicators) == sum(r["Sum"] for r in operations)
    assert sum(r["Bytes"] for r in communicators) == sum(r["Bytes"] * r["Count"] for r in operations)
    assert {r["Rank"] for r in communicators} == {0, 1, 2, 3}
    aligned(run)
    (total,) = run.table("collectives").aggregate('count(*), sum("end" - start), sum(bytes)').fetchall()
    assert tuple(sum(r[c] for r in communicators) for c in ("Count", "Sum", "Bytes")) == tuple(int(v) for v in total)
    answer = ask(runs["alone"], "nccl_sum", {"start": 0})
    assert answer.table.num_rows == 0
    assert answer.further["operations"].table.num_rows
    assert not any("nothing passes" in note for note in answer.notes)


def spans(name, *lengths, **others):
    return [
        {"start": 1000 * i, "end": 1000 * i + n, "name": name, "kind": "pushpop", **others}
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    ranks = {
        0: [*spans("a", 10, 20, 40), *spans("b", 7), *spans("c", 0), {"start": 5, "name": "d", "kind": "pushpop"}],
        3: [*spans("a", 100), *spans("a", 1, domain="NCCL"), *spans("n", 3, domain="NCCL"), *spans("b", 9)],
    }
    return ask(
        make_run(tmp_path_factory.mktemp("nvtx") / "run", {r: {"ranges": rows} for r, rows in ranks.items()}),
        "nvtx_sum",
    )


def test_statistics_over_all_ranks_and_of_each(answer):
    rows = {r["Text"]: r for r in answer.table.to_pylist()}
    # a name that two domains have is told apart, one that a single domain has is not
    assert list(rows) == ["NCCL:a", "a", "b", "n"]
    values = [10, 20, 40, 100]
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    assert rows["a"] == {
        "Text": "a", "Count": 4, "Mean": 42.5, "Std (approx)": round(np.std(values, ddof=1), 1), "Min": 10,
        "Q1 (approx)": q1, "Median (approx)": median, "Q3 (approx)": q3, "Max": 100, "Sum": 170,
    }  # fmt: skip
    assert rows["n"]["Std (approx)"] is None
    table = answer.further["rank_stats"].table
    assert [(r["Rank"], r["File"], r["Text"], r["Sum"]) for r in table.to_pylist()] == [
        (0, "rank0", "a", 70), (0, "rank0", "b", 7),
        (3, "rank3", "NCCL:a", 1), (3, "rank3", "a", 100), (3, "rank3", "b", 9), (3, "rank3", "n", 3),
    ]  # fmt: skip
    assert table.column("Std").to_pylist()[0] == pytest.approx(np.std([10, 20, 40], ddof=1))
    assert answer.further["files"].table.to_pylist() == [{"File": "rank0", "Rank": 0}, {"File": "rank3", "Rank": 3}]
