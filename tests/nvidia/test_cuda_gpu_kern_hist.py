import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError


def run_of(tmp_path):
    lengths = {0: (10, 20, 20, 49), 1: (30,)}
    return make_run(
        tmp_path / "run", {r: {"kernels": [kernel(100 * i, 100 * i + n) for i, n in enumerate(ns)]} for r, ns in lengths.items()}
    )


def test_frequencies_and_percentiles(tmp_path):
    answer = ask(run_of(tmp_path), "cuda_gpu_kern_hist", {"bins": 4})
    titles = ("Range Start", "Range End", "Frequency", "Percentage", "Cumulative")
    assert [tuple(r[t] for t in titles) for r in answer.table.to_pylist()] == [
        (10, 20, 1, 20.0, 20.0),
        (20, 30, 2, 40.0, 60.0),
        (30, 40, 1, 20.0, 80.0),
        (40, 50, 1, 20.0, 100.0),
    ]
    of_rank = answer.further["rank_histogram"].table.to_pylist()
    assert [(r["Rank"], r["Frequency"], r["Cumulative"]) for r in of_rank[3:6]] == [(0, 1, 100.0), (1, 0, 0.0), (1, 0, 0.0)]
    marks = {r["Percentile"]: r["Duration"] for r in answer.further["percentiles"].table.to_pylist()}
    assert (marks[1], marks[25], marks[50], marks[75], marks[90], marks[100]) == (10, 20, 20, 30, 49, 49)


def test_more_bins_than_durations_a_name_that_is_not_there_and_no_bins(tmp_path):
    run = run_of(tmp_path)
    assert ask(run, "cuda_gpu_kern_hist", {"bins": 1000}).table.num_rows == 40
    assert ask(run, "cuda_gpu_kern_hist", {"name": "gemm_kernel", "base": True}).table.column("Frequency").to_pylist()[0] == 1
    assert ask(run, "cuda_gpu_kern_hist", {"name": "a/b"}).notes == ("no rank has a kernel called 'a/b'",)
    with pytest.raises(UsageError, match="--bins"):
        ask(run, "cuda_gpu_kern_hist", {"bins": 0})
