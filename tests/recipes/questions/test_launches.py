from __future__ import annotations

import pytest
from tests.making import copy, kernel, make_run
from tests.recipes.work import call, launched

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import FORMER, find, names
from alltrace.trace.errors import UsageError


def tables():
    """Three kernels and a copy: calls of 10, 60, 20 and 30 us; delays of 0 (it starts in its call), 5, 200 and 45
    us."""
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
    ("option", "value", "column", "count"),
    [("call_cutoff_ns", 25_000, "slow", 2), ("delay_cutoff_ns", 4_999, "late", 3)],
)
def test_cutoffs(tmp_path, option, value, column, count):
    (row,) = make_run(tmp_path, {0: tables()}).recipe("launches", **{option: value}).to_pylist()
    assert row[column] == count


def by_device(tmp_path, tables):
    answer = ask(make_run(tmp_path / "run", {0: tables}), "launches", {"by": "device"})
    return answer.table.to_pylist(), answer.notes


def test_kernels_in_flight_and_executing(tmp_path):
    tables = {
        # launched at 0, 5 and 60; they run [20, 40), [30, 50) on another stream, and [70, 100)
        "kernels": [
            kernel(20, 40, correlation=1),
            kernel(30, 50, correlation=2, stream=8),
            kernel(70, 100, correlation=3),
        ],
        "copies": [copy(50, 60, correlation=4)],
        "api": [call(0, 3, 1), call(5, 8, 2), call(60, 65, 3), call(30, 31, 4)],
    }
    rows, notes = by_device(tmp_path, tables)
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
    rows, notes = by_device(
        tmp_path, {"kernels": [kernel(0, 10, correlation=1), kernel(30, 40)], "api": [call(0, 1, 1)]}
    )
    assert [(r["unmatched"], r["starved_ns"], r["held_ns"], r["executing_ns"]) for r in rows] == [(1, 20, 0, 20)]
    assert notes == ("the calls of 1 of 2 kernels are not known",)


def test_a_call_that_starts_after_its_kernel_does_not_turn_time_around(tmp_path):
    rows, _ = by_device(tmp_path, {"kernels": [kernel(0, 10, correlation=1)], "api": [call(5, 6, 1)]})
    assert [(r["span_ns"], r["queued_mean"], r["in_flight_mean"]) for r in rows] == [(10, 0.0, 1.0)]


def test_each_device_has_a_row(tmp_path):
    kernels = [kernel(0, 10, correlation=1), kernel(5, 25, correlation=2, device=1)]
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}"} for d in range(2)]
    rows, _ = by_device(tmp_path, {"kernels": kernels, "api": [call(0, 1, 1), call(1, 2, 2)], "devices": devices})
    assert [(r["gpu"], r["span_ns"], r["executing_ns"], r["held_ns"]) for r in rows] == [
        ("GPU-0", 10, 10, 0),
        ("GPU-1", 24, 20, 4),
    ]


def test_graphs_traced_as_a_whole_are_said_not_to_count(tmp_path):
    tables = {
        "kernels": [kernel(0, 10, correlation=1), kernel(90, 100, correlation=3)],
        "graphs": [{"start": 10, "end": 90, "correlation": 2}],
        "api": [call(0, 1, 1), call(88, 89, 3)],
    }
    rows, notes = by_device(tmp_path, tables)
    assert [(r["kernels"], r["starved_ns"]) for r in rows] == [(2, 78)]
    assert [n for n in notes if n.startswith("CUDA graphs traced as a whole are not kernels here")]


def queued():
    """Outstanding from call to start: [0, 100), [10, 60), [20, 60) and [160, 200)."""
    kernels = launched([("a", 1, 100, 110), ("b", 2, 60, 70), ("c", 3, 60, 80), ("d", 4, 200, 210)])
    return {"kernels": kernels, "api": [call(0, 5, 1), call(10, 15, 2), call(20, 25, 3), call(160, 165, 4)]}


def test_queues_have_mean_by_time_largest_empty_and_full(tmp_path):
    (row,) = make_run(tmp_path, {0: queued()}).recipe("launches", by="stream", full=3).to_pylist()
    assert (row["rank"], row["gpu"], row["stream"], row["start_ns"], row["span_ns"], row["launches"]) == (
        0,
        "GPU-0",
        7,
        0,
        200,
        4,
    )
    assert row["mean_length"] == pytest.approx((100 + 50 + 40 + 40) / 200)
    assert (row["max_length"], row["empty_ns"], row["full_ns"]) == (3, 60, 40)


def test_a_graph_traced_as_a_whole_is_one_piece_of_work(tmp_path):
    graph = {"start": 90, "end": 300, "device": 0, "stream": 7, "correlation": 5, "process": 0}
    made = queued() | {"graphs": [graph]}
    made["api"].append(call(30, 35, 5))
    (row,) = make_run(tmp_path, {0: made}).recipe("launches", by="stream", full=4).to_pylist()
    assert (row["launches"], row["max_length"], row["empty_ns"], row["full_ns"]) == (5, 4, 60, 30)
    assert row["mean_length"] == pytest.approx((100 + 50 + 40 + 40 + 60) / 200)


def test_queues_over_time(tmp_path):
    rows = make_run(tmp_path, {0: queued()}).recipe("launches", by="stream", bins=4).to_pylist()
    assert [r["start_ns"] for r in rows] == [0, 50, 100, 150]
    assert [r["launches"] for r in rows] == [3, 0, 0, 1]
    assert [r["mean_length"] for r in rows] == pytest.approx([(50 + 40 + 30) / 50, (50 + 10 + 10) / 50, 0, 40 / 50])
    assert [r["max_length"] for r in rows] == [3, 3, 0, 1]
    assert [r["empty_ns"] for r in rows] == [0, 0, 50, 10]


def test_more_bins_than_anyone_looks_at_are_refused(tmp_path):
    with pytest.raises(UsageError, match="100000 or less"):
        make_run(tmp_path, {0: queued()}).recipe("launches", by="stream", bins=1_000_000_000)


def test_streams_have_queues_of_their_own_and_unknown_calls_none(tmp_path):
    kernels = [*launched([("a", 1, 100, 110), ("lost", 99, 500, 600)]), *launched([("b", 2, 40, 50)], stream=8)]
    rows = (
        make_run(tmp_path, {0: {"kernels": kernels, "api": [call(0, 5, 1), call(10, 15, 2)]}})
        .recipe("launches", by="stream")
        .to_pylist()
    )
    assert [(r["stream"], r["span_ns"], r["max_length"]) for r in rows] == [(7, 100, 1), (8, 30, 1)]


def test_work_that_starts_before_its_call_was_never_outstanding(tmp_path):
    tables = {"kernels": launched([("a", 1, 5, 9)]), "api": [call(7, 8, 1)]}
    (row,) = make_run(tmp_path, {0: tables}).recipe("launches", by="stream").to_pylist()
    assert (row["start_ns"], row["span_ns"], row["mean_length"], row["max_length"]) == (2, 0, 0.0, 0)


def test_no_known_call_is_no_queue(tmp_path):
    answer = ask(
        make_run(tmp_path, {0: {"kernels": launched([("a", 99, 0, 5)]), "api": [call(0, 1, 1)]}}),
        "launches",
        {"by": "stream"},
    )
    assert (answer.table.num_rows, answer.notes) == (0, ("no call that launched GPU work is known",))


@pytest.mark.parametrize(("name", "by"), [("in-flight", "device"), ("queue-length", "stream")])
def test_names_that_once_were_answer_with_a_note(tmp_path, name, by):
    run = make_run(tmp_path, {0: queued(), 1: queued()})
    now, once = ask(run, "launches", {"by": by}), ask(run, name)
    assert (once.table, once.columns, once.chart) == (now.table, now.columns, now.chart)
    assert once.notes == (
        f"{name} is now `alltrace recipe launches --by {by}`; the old name answers in 0.3 and 0.4",
        *now.notes,
    )
    assert find(name).name == name
    assert not FORMER.keys() & set(names())
