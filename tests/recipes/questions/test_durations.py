from __future__ import annotations

from tests.making import make_run

from alltrace.recipes.questions.diff import compare


def call(start, end, name):
    return {"start": start, "end": end, "name": name}


def test_names_of_calls_stand_without_the_version_that_nsys_adds(tmp_path):
    """Two versions of one call are one call; `_v2` is part of a driver call's name, and ranges keep theirs."""
    rows = [
        call(0, 10, "cudaLaunchKernel_v7000"),
        call(10, 40, "cudaLaunchKernel"),
        call(40, 45, "cudaLaunchKernelExC_v11060"),
    ]
    rows += [call(50, 57, "cuMemFree_v2"), call(60, 68, "cuMemFree_v2")]
    ranges = [{"start": 0, "end": 9, "name": "model_v1234", "depth": 0}]
    run = make_run(tmp_path / "run", {0: {"api": rows, "ranges": ranges}})
    found = {
        (r["what"], r["name"]): (r["count"], r["total_ns"], r["median_ns"]) for r in run.recipe("durations").to_pylist()
    }
    assert found == {
        ("call", "cudaLaunchKernel"): (2, 40, 20.0),
        ("call", "cuMemFree_v2"): (2, 15, 7.5),
        ("call", "cudaLaunchKernelExC"): (1, 5, 5.0),
        ("range", "model_v1234"): (1, 9, 9.0),
    }


def test_runs_of_two_profilers_are_compared_by_the_same_names(tmp_path):
    a = make_run(tmp_path / "a", {0: {"api": [call(i, i + 10, "cudaLaunchKernel_v7000") for i in range(0, 400, 20)]}})
    b = make_run(tmp_path / "b", {0: {"api": [call(i, i + 15, "cudaLaunchKernel") for i in range(0, 400, 20)]}})
    (row,) = compare(a, b, what="call").table.to_pylist()
    assert (row["name"], row["verdict"], row["count_a"], row["count_b"]) == ("cudaLaunchKernel", "slower", 20, 20)
    assert row["total_change_ns"] == 100


def test_a_recipe_may_have_an_option_called_name(tmp_path):
    run = make_run(tmp_path / "run", {0: {"ranges": [{"start": 5, "end": 9, "name": "step", "depth": 0}]}})
    (row,) = run.recipe("nvtx_pace", name="step").to_pylist()
    assert (row["Start"], row["Duration"]) == (5, 4)
