from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched

from alltrace.trace.errors import UsageError


def tables():
    """Outstanding from call to start: [0, 100), [10, 60), [20, 60) and [160, 200)."""
    kernels = launched([("a", 1, 100, 110), ("b", 2, 60, 70), ("c", 3, 60, 80), ("d", 4, 200, 210)])
    return {"kernels": kernels, "api": [call(0, 5, 1), call(10, 15, 2), call(20, 25, 3), call(160, 165, 4)]}


def test_mean_by_time_largest_empty_and_full(tmp_path):
    (row,) = make_run(tmp_path, {0: tables()}).recipe("queue-length", full=3).to_pylist()
    assert (row["rank"], row["gpu"], row["stream"], row["start_ns"], row["span_ns"], row["launches"]) == (0, "GPU-0", 7, 0, 200, 4)
    assert row["mean_length"] == pytest.approx((100 + 50 + 40 + 40) / 200)
    assert (row["max_length"], row["empty_ns"], row["full_ns"]) == (3, 60, 40)


def test_a_graph_traced_as_a_whole_is_one_piece_of_work(tmp_path):
    graph = {"start": 90, "end": 300, "device": 0, "stream": 7, "correlation": 5, "process": 0}
    made = tables() | {"graphs": [graph]}
    made["api"].append(call(30, 35, 5))
    (row,) = make_run(tmp_path, {0: made}).recipe("queue-length", full=4).to_pylist()
    assert (row["launches"], row["max_length"], row["empty_ns"], row["full_ns"]) == (5, 4, 60, 30)
    assert row["mean_length"] == pytest.approx((100 + 50 + 40 + 40 + 60) / 200)


def test_over_time(tmp_path):
    rows = make_run(tmp_path, {0: tables()}).recipe("queue-length", bins=4).to_pylist()
    assert [r["start_ns"] for r in rows] == [0, 50, 100, 150]
    assert [r["launches"] for r in rows] == [3, 0, 0, 1]
    assert [r["mean_length"] for r in rows] == pytest.approx([(50 + 40 + 30) / 50, (50 + 10 + 10) / 50, 0, 40 / 50])
    assert [r["max_length"] for r in rows] == [3, 3, 0, 1]
    assert [r["empty_ns"] for r in rows] == [0, 0, 50, 10]


def test_more_bins_than_anyone_looks_at_are_refused(tmp_path):
    with pytest.raises(UsageError, match="100000 or less"):
        make_run(tmp_path, {0: tables()}).recipe("queue-length", bins=1_000_000_000)


def test_streams_have_queues_of_their_own_and_unknown_calls_none(tmp_path):
    kernels = [*launched([("a", 1, 100, 110), ("lost", 99, 500, 600)]), *launched([("b", 2, 40, 50)], stream=8)]
    rows = make_run(tmp_path, {0: {"kernels": kernels, "api": [call(0, 5, 1), call(10, 15, 2)]}}).recipe("queue-length").to_pylist()
    assert [(r["stream"], r["span_ns"], r["max_length"]) for r in rows] == [(7, 100, 1), (8, 30, 1)]


def test_work_that_starts_before_its_call_was_never_outstanding(tmp_path):
    tables = {"kernels": launched([("a", 1, 5, 9)]), "api": [call(7, 8, 1)]}
    (row,) = make_run(tmp_path, {0: tables}).recipe("queue-length").to_pylist()
    assert (row["start_ns"], row["span_ns"], row["mean_length"], row["max_length"]) == (2, 0, 0.0, 0)
