from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched


def tables():
    """Three kernels and a copy: calls of 10, 60, 20 and 30 us; delays of 0 (it starts in its call), 5, 200 and 45 us."""
    us = 1000
    kernels = launched(
        [
            ("gemm", 1, 8 * us, 58 * us),
            ("gemm", 2, 165 * us, 170 * us),
            ("add", 3, 420 * us, 421 * us),
            ("lost", 99, 900 * us, 901 * us),
        ]
    )
    copies = [{"start": 575 * us, "end": 675 * us, "kind": "HtoD", "bytes": 8, "correlation": 4}]
    calls = [
        call(0, 10 * us, 1),
        call(100 * us, 160 * us, 2),
        call(200 * us, 220 * us, 3),
        call(500 * us, 530 * us, 4, "cudaMemcpyAsync"),
    ]
    return {"kernels": kernels, "copies": copies, "api": calls}


def test_calls_delays_and_work_of_each_rank(tmp_path):
    one, other = make_run(tmp_path, {0: tables(), 3: tables()}).recipe("launches").to_pylist()
    assert {**one, "rank": 3} == other
    assert (one["launches"], one["short"], one["slow"], one["late"]) == (4, 2, 1, 1)
    assert (one["call_mean_ns"], one["call_median_ns"], one["call_max_ns"]) == (30_000, 25_000, 60_000)
    assert (one["delay_mean_ns"], one["delay_median_ns"], one["delay_max_ns"]) == (62_500, 25_000, 200_000)
    assert (one["gpu_mean_ns"], one["gpu_median_ns"]) == (39_000, 27_500)


def test_by_kernel_over_all_ranks(tmp_path):
    rows = make_run(tmp_path, {0: tables(), 1: tables()}).recipe("launches", by="kernel").to_pylist()
    assert [(r["name"], r["launches"], r["late"], r["delay_max_ns"]) for r in rows] == [
        ("gemm", 4, 0, 5_000),
        ("add", 2, 2, 200_000),
        ("copy HtoD", 2, 0, 45_000),
    ]


def test_by_call_and_the_longest_rows(tmp_path):
    run = make_run(tmp_path, {0: tables()})
    rows = run.recipe("launches", by="call").to_pylist()
    assert [(r["name"], r["launches"]) for r in rows] == [("cudaLaunchKernel", 3), ("cudaMemcpyAsync", 1)]
    assert len(run.recipe("launches", by="call", top=1).to_pylist()) == 1


@pytest.mark.parametrize(
    ("option", "value", "column", "count"), [("call_cutoff_ns", 25_000, "slow", 2), ("delay_cutoff_ns", 4_999, "late", 3)]
)
def test_cutoffs(tmp_path, option, value, column, count):
    (row,) = make_run(tmp_path, {0: tables()}).recipe("launches", **{option: value}).to_pylist()
    assert row[column] == count
