from __future__ import annotations

import pytest
from tests.making import COMPUTE_KERNEL, collective, copy, kernel, make_run

from alltrace.trace.errors import UsageError

HAND_MADE = {
    0: {
        "kernels": [kernel(0, 100), kernel(90, 120, "b", stream=8), collective(400, 500)],
        "copies": [copy(620, 700, "DtoH")],
    },
    1: {"kernels": [kernel(0, 100), kernel(150, 160, "b")], "graphs": [{"start": 1000, "end": 1100}]},
}


def rows(run, **options):
    return run.recipe("gaps", **options).to_pylist()


def test_gaps_of_all_ranks_the_longest_first_with_what_ran_around_them(tmp_path):
    found = rows(make_run(tmp_path, HAND_MADE), min_ns=50)
    assert [(r["rank"], r["gpu"], r["start_ns"], r["duration_ns"]) for r in found] == [
        (1, "GPU-1", 160, 840),
        (0, "GPU-0", 120, 280),
        (0, "GPU-0", 500, 120),
        (1, "GPU-1", 100, 50),
    ]
    assert [(r["before"], r["after"]) for r in found] == [
        ("b", "CUDA graph"),
        ("b", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "copy DtoH"),
        (COMPUTE_KERNEL, "b"),
    ]


def test_rows_and_least_length_bound_the_list(tmp_path):
    run = make_run(tmp_path, HAND_MADE)
    assert [r["duration_ns"] for r in rows(run, min_ns=50, rows=2)] == [840, 280]
    assert [r["duration_ns"] for r in rows(run, min_ns=121, rows=0)] == [840, 280]
    assert [r["duration_ns"] for r in rows(run, min_ns=0, rows=0)] == [840, 280, 120, 50]


def test_an_answer_without_gaps_says_so(tmp_path):
    answer = make_run(tmp_path, HAND_MADE).recipe("gaps")
    assert answer.to_pylist() == []
    assert answer.notes == ("no device was idle for 100,000 ns or more between two pieces of work",)


@pytest.mark.parametrize(
    ("option", "value"), [("rows", -1), ("min_ns", -5), ("min_ns", 1 << 63), ("rows", True), ("rows", 1.5)]
)
def test_numbers_that_mean_nothing_are_refused(tmp_path, option, value):
    with pytest.raises(UsageError, match=f"^{option} of gaps is {value}"):
        rows(make_run(tmp_path, HAND_MADE), **{option: value})


@pytest.mark.parametrize("reverse", [False, True])
def test_of_work_that_starts_or_ends_together_the_longest_is_named(tmp_path, reverse):
    kernels = [
        kernel(0, 10, "long"),
        kernel(10, 10, "dot", stream=8),
        kernel(40, 40, "dot", stream=9),
        kernel(40, 60, "next", stream=10),
    ]
    (row,) = rows(make_run(tmp_path, {0: {"kernels": kernels[:: -1 if reverse else 1]}}), min_ns=1)
    assert (row["start_ns"], row["duration_ns"], row["before"], row["after"]) == (10, 30, "long", "next")


def test_kernels_without_a_name_have_none(tmp_path):
    (row,) = rows(make_run(tmp_path, {0: {"kernels": [kernel(0, 10, None), kernel(30, 50)]}}), min_ns=1)
    assert (row["before"], row["after"]) == (None, COMPUTE_KERNEL)
