from __future__ import annotations

import pytest
from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask


def call(start, end, correlation):
    return {"start": start, "end": end, "correlation": correlation, "name": "cudaLaunchKernel"}


def asked(tmp_path, tables):
    answer = ask(make_run(tmp_path / "run", {0: tables}), "in-flight")
    return answer.table.to_pylist(), answer.notes


def test_kernels_in_flight_and_executing(tmp_path):
    tables = {
        # launched at 0, 5 and 60; they run [20, 40), [30, 50) on another stream, and [70, 100)
        "kernels": [kernel(20, 40, correlation=1), kernel(30, 50, correlation=2, stream=8), kernel(70, 100, correlation=3)],
        "copies": [copy(50, 60, correlation=4)],
        "api": [call(0, 3, 1), call(5, 8, 2), call(60, 65, 3), call(30, 31, 4)],
    }
    rows, notes = asked(tmp_path, tables)
    assert rows == [
        {
            "rank": 0, "gpu": "GPU-0", "kernels": 3, "unmatched": 0, "span_ns": 100,
            # in flight 40 + 45 + 40 ns, executing 20 + 20 + 30 ns, in 100 ns
            "in_flight_mean": 1.25, "in_flight_max": 2, "executing_mean": 0.7, "executing_max": 2,
            "queued_mean": pytest.approx(0.55),
            # nothing in [50, 60); [0, 20) and [60, 70) wait
            "starved_ns": 10, "held_ns": 30, "executing_ns": 60, "starved_percent": 10.0,
        }
    ]  # fmt: skip
    assert notes == ()


def test_a_kernel_without_a_call_is_in_flight_while_it_executes(tmp_path):
    rows, notes = asked(tmp_path, {"kernels": [kernel(0, 10, correlation=1), kernel(30, 40)], "api": [call(0, 1, 1)]})
    assert [(r["unmatched"], r["starved_ns"], r["held_ns"], r["executing_ns"]) for r in rows] == [(1, 20, 0, 20)]
    assert notes == ("the calls of 1 of 2 kernels are not known",)


def test_a_call_that_starts_after_its_kernel_does_not_turn_time_around(tmp_path):
    rows, _ = asked(tmp_path, {"kernels": [kernel(0, 10, correlation=1)], "api": [call(5, 6, 1)]})
    assert [(r["span_ns"], r["queued_mean"], r["in_flight_mean"]) for r in rows] == [(10, 0.0, 1.0)]


def test_each_device_has_a_row(tmp_path):
    kernels = [kernel(0, 10, correlation=1), kernel(5, 25, correlation=2, device=1)]
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}"} for d in range(2)]
    rows, _ = asked(tmp_path, {"kernels": kernels, "api": [call(0, 1, 1), call(1, 2, 2)], "devices": devices})
    assert [(r["gpu"], r["span_ns"], r["executing_ns"], r["held_ns"]) for r in rows] == [("GPU-0", 10, 10, 0), ("GPU-1", 24, 20, 4)]


def test_graphs_traced_as_a_whole_are_said_not_to_count(tmp_path):
    tables = {
        "kernels": [kernel(0, 10, correlation=1), kernel(90, 100, correlation=3)],
        "graphs": [{"start": 10, "end": 90, "correlation": 2}],
        "api": [call(0, 1, 1), call(88, 89, 3)],
    }
    rows, notes = asked(tmp_path, tables)
    assert [(r["kernels"], r["starved_ns"]) for r in rows] == [(2, 78)]
    assert [n for n in notes if n.startswith("CUDA graphs traced as a whole are not kernels here")]
