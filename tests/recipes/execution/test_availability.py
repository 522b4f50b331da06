"""Tables that a recipe needs: what was not imported is refused, what the reports lack is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.execution.availability import EVENTS
from alltrace.recipes.registry import find
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.run.store import Run
from alltrace.trace.errors import InputError
from alltrace.trace.schema import EVENT_TABLES

CALL = {"start": 0, "end": 9, "name": "cudaLaunchKernel", "correlation": 1}
OSRT = {"start": 0, "end": 5, "name": "poll"}
NO_RANGES = "no rank has `ranges`: the reports hold no NVTX ranges, so "


def notes_of(folder, name, options=None, **tables):
    answer = ask(make_run(folder, {0: tables}), name, options or {})
    return answer.table.num_rows, answer.notes


def test_there_are_words_for_the_rows_of_every_table():
    assert tuple(EVENTS) == EVENT_TABLES


@pytest.mark.parametrize("name", ["gpu_gaps", "gpu_time_util"])
def test_a_report_without_gpu_data_does_not_look_healthy(tmp_path, name):
    hold = "the reports hold no GPU kernels, no GPU copies and no CUDA graph launches"
    note = f"no rank has `kernels`, `copies` or `graphs`: {hold}, so the answer is empty"
    assert notes_of(tmp_path, name, overheads=[OSRT], osrt=[OSRT]) == (0, (note,))


def test_each_table_that_is_missing_is_named(tmp_path):
    assert notes_of(tmp_path, "nvtx_gpu_proj_sum", osrt=[OSRT]) == (
        0,
        (
            NO_RANGES + "the answer is empty",
            "no rank has `api`: the reports hold no CUDA calls, so the answer is empty",
            (
                "no rank has `kernels` or `copies`: the reports hold no GPU kernels and no GPU copies, so the answer is"
                " empty"
            ),
        ),
    )


def test_ranks_that_lack_a_table_are_named_in_ranges(tmp_path):
    some = {"kernels": [kernel(0, 5, correlation=1)], "api": [CALL]}
    run = make_run(tmp_path, {n: some if n in (4, 8) else {"api": [CALL]} for n in range(9)})
    assert ask(run, "stats:cuda_kern_exec_sum").notes == (
        "ranks 0-3, 5-7 have no `kernels`: their reports hold no GPU kernels, so they are left out",
    )


@pytest.mark.parametrize(
    ("name", "options", "consequence"),
    [
        ("stats:cuda_gpu_kern_sum", {"nvtx_name": True}, "kernels are named without a range"),
        ("stats:nvtx_kern_sum", {}, "all kernels lie outside of ranges"),
        ("stats:nvtx_gpu_proj_trace", {}, "all GPU work lies outside of ranges"),
        ("nvtx_gpu_proj_trace", {}, "all GPU work lies outside of ranges"),
        ("cuda_gpu_kern_sum", {"filter_nvtx": "step"}, "nothing passes --filter-nvtx step"),
    ],
)
def test_what_follows_from_missing_ranges_is_said(tmp_path, name, options, consequence):
    tables = {"kernels": [kernel(2, 5, correlation=1)], "api": [CALL]}
    assert notes_of(tmp_path, name, options, **tables)[1][0] == NO_RANGES + consequence


def test_an_answer_without_rows_is_never_silent(tmp_path):
    tables = {
        "kernels": [kernel(2, 5, correlation=1)],
        "api": [CALL],
        "ranges": [{"start": 0, "end": 9, "name": "step"}],
    }
    assert notes_of(tmp_path, "nccl_gpu_proj_sum", **tables) == (
        0,
        (
            (
                "nothing in `ranges`, `kernels`, `copies` or `api` matches what nccl_gpu_proj_sum lists, so the answer"
                " is empty"
            ),
        ),
    )


def test_a_table_that_was_not_imported_is_refused(tmp_path):
    make_run(tmp_path, {0: {"kernels": [kernel(0, 5)]}})
    write_manifest(tmp_path, replace(read_manifest(tmp_path), tables=("kernels", "api")))
    run = Run(tmp_path)
    assert ask(run, "kernels").table.num_rows == 1
    refused = (
        f"{tmp_path}: `copies` and `graphs` were not imported; expected all tables that breakdown needs; "
        "import the reports again without --only, or name these tables too"
    )
    with pytest.raises(InputError) as caught:
        ask(run, "breakdown")
    assert str(caught.value) == refused
    assert [reply.skipped for reply in ask_all(run, [(find("breakdown"), {}), (find("kernels"), {})])] == [
        refused,
        None,
    ]
    with pytest.raises(InputError, match="`ranges` was not imported"):
        run.table("ranges")
    with pytest.raises(InputError, match="`ranges` was not imported"):
        ask(run, "stats:cuda_gpu_kern_sum", {"nvtx_name": True})
    assert ask(run, "info").table.num_rows == 1
