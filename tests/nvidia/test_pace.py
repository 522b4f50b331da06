import numpy as np
import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError


def step(start, end, **others):
    return {"start": start, "end": end, "name": "step", "kind": "pushpop", **others}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    ranks = {
        0: [step(30, 40), step(0, 10), step(50, 70), {"start": 5, "end": 6, "name": "other", "kind": "pushpop"}],
        2: [step(100, 105), step(115, 130)],
        3: [{"start": 5, "end": 6, "name": "other", "kind": "pushpop"}],
    }
    return make_run(tmp_path_factory.mktemp("pace") / "run", {r: {"ranges": rows} for r, rows in ranks.items()})


def test_iterations_of_each_rank_and_of_a_name_that_none_has(run):
    answer = ask(run, "nvtx_pace", {"name": "step"})
    titles = ("Iteration", "Rank", "Start", "End", "Duration", "Delta", "Duration Accum", "Delta Accum")
    assert [tuple(r[t] for t in titles) for r in answer.table.to_pylist()] == [
        (0, 0, 0, 10, 10, None, 10, 0),
        (1, 0, 30, 40, 10, 20, 20, 20),
        (2, 0, 50, 70, 20, 10, 40, 30),
        (0, 2, 100, 105, 5, None, 5, 0),
        (1, 2, 115, 130, 15, 10, 20, 10),
    ]
    assert answer.notes == ("ranks have 2 to 3 occurrences; they are matched from the first on",)
    answer = ask(run, "nvtx_pace", {"name": "a@b/c"})
    assert (answer.table.num_rows, answer.notes) == (0, ("no rank has 'a@b/c'",))
    with pytest.raises(UsageError, match="needs --name"):
        ask(run, "nvtx_pace")


def test_a_column_for_each_rank_as_nsys_has_them(run):
    tables = {n: t.table for n, t in ask(run, "nvtx_pace", {"name": "step"}).further.items()}
    assert tables["pace_start"].to_pydict() == {"0": [0, 30, 50], "2": [100, 115, None]}
    assert tables["pace_duration_accum"].to_pydict() == {"0": [10, 20, 40], "2": [5, 20, None]}
    assert tables["pace_delta"].to_pydict() == {"0": [None, 20, 10], "2": [None, 10, None]}
    assert tables["pace_delta_stats"].to_pylist() == [
        {"Count": 0, **dict.fromkeys(("Mean", "Std", "Min", "Q1", "Median", "Q3", "Max", "Sum"))},
        {
            "Count": 2, "Mean": 15.0, "Std": np.std([20, 10], ddof=1), "Min": 10, "Q1": 12.5, "Median": 15.0,
            "Q3": 17.5, "Max": 20, "Sum": 30,
        },
        {"Count": 1, "Mean": 10.0, "Std": None, "Min": 10, "Q1": 10.0, "Median": 10.0, "Q3": 10.0, "Max": 10,
            "Sum": 10},
    ]  # fmt: skip
    (stats,) = tables["stats"].to_pylist()
    assert (stats["Text"], stats["Count"], stats["Median (approx)"], stats["Sum"]) == ("step", 5, 10.0, 60)
    assert tables["files"].column("Rank").to_pylist() == [0, 2]


def test_threads_short_names_and_ranges_without_a_thread(tmp_path):
    run = make_run(tmp_path / "run", {0: {"ranges": [step(0, 10), step(5, 8, thread=1)]}})
    answer = ask(run, "nvtx_pace", {"name": "step"})
    assert answer.table.column("Delta").to_pylist() == [None, -5]
    assert "several threads of rank 0" in answer.notes[0]
    rows = [step(0, 10, thread=None), step(30, 40, thread=None), step(50, None, thread=None)]
    answer = ask(make_run(tmp_path / "2" / "run", {0: {"ranges": rows}}), "nvtx_pace", {"name": "step"})
    assert answer.table.column("Start").to_pylist() == [0, 30]
    run = make_run(
        tmp_path / "3" / "run",
        {0: {"kernels": [kernel(10, 20, "void f<int>(int)"), kernel(5, 7, "void f<int>(int)"), kernel(0, 1)]}},
    )
    short = "f<int>"
    answer = ask(run, "cuda_gpu_kern_pace", {"name": short})
    assert answer.table.column("Start").to_pylist() == [5, 10]
    assert answer.further["stats"].table.column("Shortname").to_pylist() == [short]
