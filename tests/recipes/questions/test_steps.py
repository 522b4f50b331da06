"""The steps of every rank, and over all of them."""

from __future__ import annotations

from tests.making import COMPUTE_KERNEL, kernel, make_run

from alltrace.recipes.execution.ask import ask


def rows_of(shift=0, slow=None):
    ranges, api, kernels = [], [], []
    at = shift
    for step in range(4):
        length = 150 if step == slow else 100
        ranges.append({"start": at, "end": at + length, "name": f"step {step}", "depth": 0})
        api.append({"start": at + 10, "end": at + 11, "name": "cudaLaunchKernel", "correlation": step})
        kernels.append(kernel(at + 20, at + length + 5, COMPUTE_KERNEL, correlation=step))
        at += length
    return {"ranges": ranges, "api": api, "kernels": kernels}


def test_a_row_per_rank_and_step(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7, slow=2)})
    rows = ask(run, "steps").table.to_pylist()
    assert [(r["rank"], r["step"]) for r in rows] == [(r, s) for r in range(2) for s in range(4)]
    assert rows[6] == {
        "rank": 1,
        "host": "host0",
        "step": 2,
        "kind": "step",
        "start_ns": 207,
        "end_ns": 357,
        "duration_ns": 150,
        "device_start_ns": 227,
        "device_end_ns": 362,
        "device_span_ns": 135,
        "source": "range",
    }


def test_a_row_per_step_over_all_ranks(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7, slow=2), 2: rows_of(3)})
    rows = ask(run, "steps", {"per_step": True}).table.to_pylist()
    assert rows[2] == {
        "step": 2,
        "kind": "step",
        "ranks": 3,
        "duration_ns": 100,
        "slowest_rank": 1,
        "slowest_ns": 150,
        "spread_ns": 50,
        "device_span_ns": 85,
        "start_spread_ns": 7,
    }
    assert [r["start_spread_ns"] for r in rows] == [7, 7, 7, 57]


def test_ranks_and_steps_can_be_chosen(tmp_path):
    run = make_run(tmp_path / "run", {0: rows_of(), 1: rows_of(7)})
    rows = ask(run, "steps", ranks=[1], steps="1:3").table.to_pylist()
    assert [(r["rank"], r["step"]) for r in rows] == [(1, 1), (1, 2)]
