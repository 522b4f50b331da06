from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from tests.making import kernel, make_run


def rows(run, **options):
    return run.recipe("kernels", **options).to_pylist()


def test_statistics_are_of_all_durations_of_all_ranks_together(tmp_path):
    draw = random.Random(5)
    times = {rank: [draw.randint(1, 500) for _ in range(40 + rank)] for rank in range(3)}
    other = {"kernels": [kernel(0, 7, "void b<int>(float)", stream=9)]}
    run = make_run(
        tmp_path,
        {
            rank: {
                "kernels": [kernel(1000 * i, 1000 * i + t, "gemm(int)") for i, t in enumerate(some)]
                + (other["kernels"] if rank else [])
            }
            for rank, some in times.items()
        },
    )
    every = [t for some in times.values() for t in some]
    first, second = rows(run)
    assert (first["name"], first["kind"], first["ranks"], first["count"]) == ("gemm(int)", "compute", 3, len(every))
    assert (first["total_ns"], first["min_ns"], first["max_ns"]) == (sum(every), min(every), max(every))
    quartiles = np.quantile(every, [0.25, 0.5, 0.75])
    assert [first["q1_ns"], first["median_ns"], first["q3_ns"]] == pytest.approx(quartiles.tolist(), abs=1e-9)
    assert first["mean_ns"] == pytest.approx(statistics.mean(every))
    assert first["stddev_ns"] == pytest.approx(statistics.stdev(every))
    assert first["time_percent"] == pytest.approx(100 * sum(every) / (sum(every) + 14))
    assert (second["name"], second["ranks"], second["count"], second["stddev_ns"]) == ("void b<int>(float)", 2, 2, 0.0)


def test_by_rank_has_each_ranks_own_statistics(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 10), kernel(20, 40)]}, 1: {"kernels": [kernel(0, 8)]}})
    assert [(r["rank"], r["count"], r["median_ns"], r["time_percent"]) for r in rows(run, by_rank=True)] == [
        (0, 2, 15.0, pytest.approx(3000 / 38)),
        (1, 1, 8.0, pytest.approx(800 / 38)),
    ]


def test_short_names_gather_what_differs_in_parameters_alone(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 10, "gemm(int)"), kernel(20, 40, "gemm(float)")]}})
    assert [(r["name"], r["count"]) for r in rows(run, names="short")] == [("gemm", 2)]
    assert [(r["name"], r["count"]) for r in rows(run)] == [("gemm(float)", 1), ("gemm(int)", 1)]


def test_a_kernel_without_a_name_is_counted_with_its_ranks(tmp_path):
    run = make_run(tmp_path, {r: {"kernels": [kernel(0, 10, None), kernel(10, 14)]} for r in (0, 4)})
    assert [(r["name"], r["kind"], r["ranks"], r["count"], r["total_ns"]) for r in rows(run)] == [
        (None, None, 2, 2, 20),
        ("void gemm_kernel(int)", "compute", 2, 2, 8),
    ]


def test_one_class_alone(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 10), kernel(20, 40, "zzz")]}})
    assert [(r["name"], r["time_percent"]) for r in rows(run, kind="unclassified")] == [("zzz", 100.0)]
    answer = run.recipe("kernels", kind="p2p")
    assert (answer.to_pylist(), answer.notes) == ([], ("no kernel is of class 'p2p'",))


def test_rows_of_equal_totals_stand_in_one_order(tmp_path):
    some = [kernel(20 * n, 20 * n + 10, name) for n, name in enumerate(("b", "a", "d", "c"))]
    assert [r["name"] for r in rows(make_run(tmp_path / "one", {0: {"kernels": some}}))] == ["a", "b", "c", "d"]
    assert [r["name"] for r in rows(make_run(tmp_path / "two", {0: {"kernels": some[::-1]}}))] == ["a", "b", "c", "d"]


def test_a_kernel_without_an_end_is_left_out(tmp_path):
    run = make_run(
        tmp_path, {0: {"kernels": [kernel(0, 10), kernel(20, 25)]}, 1: {"kernels": [kernel(0, 10) | {"end": None}]}}
    )
    assert [(r["count"], r["total_ns"], r["ranks"]) for r in rows(run)] == [(2, 15, 1)]


def test_a_total_beyond_64_bits_is_exact(tmp_path):
    longest = (1 << 62) + 3
    run = make_run(tmp_path, {r: {"kernels": [kernel(0, longest)]} for r in range(3)})
    assert [(int(r["total_ns"]), r["ranks"], r["max_ns"]) for r in rows(run)] == [(3 * longest, 3, longest)]
