from __future__ import annotations

import pytest
from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask


def samples(metric, values, period=100, first=100, **others):
    return [{"time": first + i * period, "metric": metric, "value": v, **others} for i, v in enumerate(values)]


def asked(tmp_path, tables, **options):
    answer = ask(make_run(tmp_path / "run", {0: tables}), "metric-attribution", options)
    return answer.table.to_pylist(), answer.notes


def cells(rows, *titles):
    return [tuple(row[t] for t in titles) for row in rows]


def test_samples_count_by_the_time_of_the_work_in_theirs(tmp_path):
    rows, notes = asked(tmp_path, {"kernels": [kernel(50, 250, "a")], "gpu_metrics": samples("SM Active", [80, 40, 0])})
    assert rows == [
        {
            # 50 ns of 80, 100 of 40, 50 of 0; only the second sample tells of the kernel alone
            "rank": 0, "gpu": "GPU-0", "name": "a", "metric": "SM Active", "value": 40.0, "work_ns": 200,
            "covered_ns": 200, "coverage_percent": 100.0, "samples": 3, "pure_samples": 1, "pure_value": 40.0,
        }
    ]  # fmt: skip
    assert notes == ()


def test_where_samples_are_missing_nothing_is_known(tmp_path):
    # samples at 100, 200, 300, 900, 1000: the one at 900 tells of [800, 900)
    taken = [*samples("A", [10, 10, 10]), *samples("A", [50, 50], first=900)]
    rows, _ = asked(tmp_path, {"kernels": [kernel(200, 900, "a")], "gpu_metrics": taken})
    assert cells(rows, "value", "covered_ns", "samples", "pure_samples", "pure_value") == [(30.0, 200, 2, 2, 30.0)]
    assert rows[0]["coverage_percent"] == pytest.approx(200 / 7)


def test_two_periods_are_no_gap(tmp_path):
    taken = [*samples("A", [10, 10, 10]), *samples("A", [50, 50], first=500)]
    rows, _ = asked(tmp_path, {"kernels": [kernel(200, 500, "a")], "gpu_metrics": taken})
    assert cells(rows, "value", "covered_ns") == [(pytest.approx((10 * 100 + 50 * 200) / 300), 300)]


def test_kernels_by_name_device_and_metric_those_with_most_time_first(tmp_path):
    kernels = [kernel(0, 30, "a"), kernel(20, 50, "a", stream=8), kernel(100, 200, "b"), kernel(0, 10, "c", device=1)]
    taken = [*samples("A", [10, 20]), *samples("B", [1, 2]), *samples("A", [5, 6], device=1)]
    tables = {"kernels": kernels, "gpu_metrics": taken, "devices": [{"device": d, "ordinal": d} for d in range(2)]}
    rows, _ = asked(tmp_path, tables)
    assert cells(rows, "name", "metric", "value", "work_ns") == [
        ("b", "A", 20.0, 100), ("b", "B", 2.0, 100), ("a", "A", 10.0, 50), ("a", "B", 1.0, 50), ("c", "A", 5.0, 10),
    ]  # fmt: skip
    rows, _ = asked(tmp_path / "top", tables, top=1)
    assert cells(rows, "name", "metric") == [("b", "A"), ("b", "B"), ("c", "A")]


def test_the_work_of_ranges_and_not_the_time_between_it(tmp_path):
    tables = {
        "kernels": [
            kernel(0, 100, "a", correlation=1),
            kernel(300, 400, "b", correlation=2),
            kernel(100, 200, "c", correlation=3),
        ],
        "copies": [copy(400, 450, correlation=4)],
        "api": [{"start": 10 * i, "end": 10 * i + 5, "correlation": c} for i, c in enumerate((1, 2, 4, 3))],
        "ranges": [
            {"start": 0, "end": 26, "name": "forward", "kind": "pushpop"},
            {"start": 10, "end": 16, "name": "layer", "kind": "pushpop"},
        ],
        "gpu_metrics": samples("A", [10, 90, 90, 40, 20]),
    }
    rows, _ = asked(tmp_path, tables, by="range")
    # forward: [0, 100) of 10, [300, 400) of 40, [400, 450) of 20; layer: [300, 400)
    assert cells(rows, "name", "work_ns", "value") == [
        ("forward", 250, pytest.approx(6000 / 250)),
        ("layer", 100, 40.0),
    ]


def test_work_without_samples_is_said(tmp_path):
    tables = {"kernels": [kernel(0, 100, "a"), kernel(5000, 5100, "b")], "gpu_metrics": samples("A", [10, 20])}
    rows, notes = asked(tmp_path, tables)
    assert cells(rows, "name", "value", "coverage_percent") == [("a", 10.0, 100.0), ("b", None, 0.0)]
    assert notes == ("1 of 2 rows have no value, because no sample describes their work",)


def test_rates_of_a_gpu(tmp_path):
    devices = [{"device": 0, "ordinal": 0, "uuid": "GPU-0", "memory_bandwidth_bytes_per_s": 1000}]
    taken = [
        *samples("Tensor Active [Throughput %]", [10, 20, 60]),
        *samples("DRAM Read Bandwidth [Throughput %]", [50, 50, 20]),
        *samples("NVLink RX Requests User Data [Throughput %]", [4, 4, 4]), *samples("Something else", [1, 1, 1]),
    ]  # fmt: skip
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 300)], "gpu_metrics": taken, "devices": devices}})
    rows = ask(run, "gpu-rates").table.to_pylist()
    assert cells(rows, "rate", "samples", "known_ns", "mean", "median", "max", "mean_bytes_per_s") == [
        ("tensor active", 3, 300, 30.0, 20.0, 60.0, None), ("dram read", 3, 300, 40.0, 50.0, 50.0, 400),
        ("nvlink received", 3, 300, 4.0, 4.0, 4.0, None),
    ]  # fmt: skip
    assert rows[0]["p95"] == pytest.approx(56.0)


def test_rates_are_weighted_by_the_time_that_a_sample_tells_of(tmp_path):
    taken = [*samples("SM Issue", [10, 10, 10]), *samples("SM Issue", [40], first=500)]
    rows = ask(make_run(tmp_path / "run", {0: {"gpu_metrics": taken}}), "gpu-rates").table.to_pylist()
    assert cells(rows, "rate", "known_ns", "mean") == [("sm issue", 500, 22.0)]
