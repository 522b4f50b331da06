from __future__ import annotations

import pytest
from tests.making import kernel, make_run
from tests.ncu_launches import ELAPSED, measured, of

from alltrace.recipes.ncu import weigh
from alltrace.trace.launches import short_name

TIME, SM, MEMORY = "gpu__time_duration.sum", f"sm__throughput{ELAPSED}", f"gpu__compute_memory_throughput{ELAPSED}"


def sized(start, end, name, grid, block=256):
    sizes = {"grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": block, "block_y": 1, "block_z": 1}
    return {**kernel(start, end, name), **sizes, "short_name": short_name(name)}


@pytest.fixture
def ran(tmp_path):
    rows = {
        0: [sized(0, 100, "void gemm<float>(float *)", 80), sized(100, 160, "void gemm<float>(float *)", 40)],
        1: [sized(0, 140, "void gemm<float>(float *)", 80), sized(200, 300, "other()", 1)],
    }
    run = make_run(tmp_path, {rank: {"kernels": kernels} for rank, kernels in rows.items()})
    return run.recipe("launch-configurations").to_pylist()


def test_configurations_of_a_run_over_all_ranks(ran):
    shown = [
        (
            r["name"],
            r["short_name"],
            r["grid_x"],
            r["block_x"],
            r["ranks"],
            r["count"],
            r["total_ns"],
            r["min_ns"],
            r["max_ns"],
        )
        for r in ran
    ]
    assert shown == [
        ("void gemm<float>(float *)", "gemm", 80, 256, 2, 2, 240, 100, 140),
        ("other()", "other", 1, 256, 1, 1, 100, 100, 100),
        ("void gemm<float>(float *)", "gemm", 40, 256, 1, 1, 60, 60, 60),
    ]
    assert [r["time_percent"] for r in ran] == [60.0, 25.0, 15.0]


def test_a_launch_is_weighed_by_its_time_over_all_ranks(ran):
    profiled = [
        measured({TIME: 90, SM: 20.0, MEMORY: 75.0}, 0),
        measured({TIME: 110, SM: 20.0, MEMORY: 85.0}, 1),
        measured({TIME: 1}, 2, "no()"),
    ]
    answer = weigh.answer(of(*profiled), ran, ())
    (row,) = answer.table.to_pylist()
    assert (row["matched_by"], row["profiled"], row["profiled_ns"], row["mean_ns"]) == ("name", 2, 100, 120)
    assert (row["ranks"], row["count"], row["total_ns"], row["share_percent"]) == (2, 2, 240, 60.0)
    assert (row["rule"], row["gain_percent"], row["gain_ns"]) == ("memory-bound", pytest.approx(20.0), 48)
    assert row["gain_share_percent"] == pytest.approx(12.0)
    assert [r["name"] for r in answer.further["unmatched"].table.to_pylist()] == ["no()"]
    rest = answer.further["not_profiled"].table.to_pylist()
    assert [(r["name"], r["grid"], r["total_ns"]) for r in rest] == [
        ("other()", "1x1x1", 100),
        ("void gemm<float>(float *)", "40x1x1", 60),
    ]
    assert answer.notes == (
        "1 profiled launches are not in the run (name, grid and block): table unmatched",
        "2 configurations of the run, 40.0 % of its kernel time, are not profiled: table not_profiled",
    )


def test_a_function_without_arguments_matches_those_with(ran):
    (row,) = weigh.answer(of(measured({TIME: 90}, name="gemm")), ran, ()).table.to_pylist()
    assert (row["matched_by"], row["total_ns"], row["rule"], row["gain_ns"]) == ("function", 240, None, None)
    # other arguments are another kernel
    assert weigh.answer(of(measured({TIME: 90}, name="void gemm<int>(int *)")), ran, ()).table.num_rows == 0


def test_a_run_without_kernels_matches_nothing():
    answer = weigh.answer(of(measured({TIME: 90})), [], ())
    assert (answer.table.num_rows, answer.further["unmatched"].table.num_rows) == (0, 1)
