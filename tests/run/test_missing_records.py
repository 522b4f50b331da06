"""What a profiler lost is counted, said, and not judged; what the edges of a capture explain is not lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.making import kernel, make_run

from alltrace.run.manifest import MissingRecords
from alltrace.run.missing_records import TEXTS, missing_records
from alltrace.run.pieces import Piece


@pytest.fixture(autouse=True, params=["whole", "in parts"])
def size_of_parts(request, monkeypatch):
    """Every case has the same answer when tables are read a few rows at a time, as large ones are."""
    if request.param == "in parts":
        monkeypatch.setattr("alltrace.run.row_groups.ROW_GROUP_ROWS", 7)
        monkeypatch.setattr("alltrace.run.pieces.BLOCK_ROWS", 7)


STEP = 1_000
SLOW = 20_000
"""From one launch to the next, and a kernel, ns."""


def call(n: int, name: str = "cudaLaunchKernel", **others: Any) -> dict[str, Any]:
    """The n-th call."""
    return {"start": n * STEP, "end": n * STEP + 500, "name": name, "correlation": n + 1, "return_value": 0, **others}


def work(n: int, **others: Any) -> dict[str, Any]:
    """What the n-th call launched, on a device that lags behind."""
    return kernel(n * SLOW + 400, (n + 1) * SLOW, correlation=n + 1, **others)


def found(tmp_path, calls, kernels, **tables):
    run = make_run(tmp_path, {0: {"api": calls, "kernels": kernels, **tables}})
    record = run.ranks[0]
    folder = tmp_path / "ranks" / "rank=0"
    # an import has the names of a rank in its folder until all ranks are there
    (folder / "names.parquet").write_bytes((tmp_path / "names.parquet").read_bytes())
    piece = Piece(folder, record.rows)
    piece.end_ns = record.end_ns
    return missing_records(piece)


def without(rows, *gone):
    return [r for n, r in enumerate(rows) if n not in gone]


BETWEEN = {"start": 4 * STEP + 600, "end": 4 * STEP + 700}
CALLS = [call(n) for n in range(40)]
KERNELS = [work(n) for n in range(40)]


def test_nothing_is_missing_in_a_whole_capture(tmp_path):
    assert found(tmp_path, CALLS, KERNELS) == ((), (), ())


def test_kernels_without_a_record_are_counted_and_their_time_is_not_judged(tmp_path):
    missing = found(tmp_path, CALLS, without(KERNELS, 5, 6, 7))
    assert missing.records == (MissingRecords("kernels", 3, 40, 5 * STEP, 7 * STEP, "places"),)
    # from the end of the kernel before to the start of the kernel behind
    assert missing.unrecorded == ((5 * SLOW, 8 * SLOW + 400),)
    assert [(w.text, w.tables, w.number) for w in missing.warnings] == [(TEXTS["kernels"], ("kernels",), 3)]


def test_a_kernel_that_was_set_aside_has_a_record_but_its_time_is_not_judged(tmp_path):
    suspect = {**KERNELS[6], "process": 0, "end": 10**15, "table": "kernels", "reason": "far", "believed_end": None}
    aside = {
        name: suspect.get(name)
        for name in ("start", "end", "process", "correlation", "table", "reason", "believed_end")
    }
    missing = found(tmp_path, CALLS, without(KERNELS, 5, 6, 7), suspects=[aside])
    assert missing.records == (MissingRecords("kernels", 2, 40, 5 * STEP, 7 * STEP, "places"),)
    assert missing.unrecorded == ((5 * SLOW, 8 * SLOW + 400),)
    alone = found(tmp_path / "alone", CALLS, without(KERNELS, 6), suspects=[aside])
    assert (alone.records, alone.warnings, len(alone.unrecorded)) == ((), (), 1)


def test_a_process_whose_device_work_another_report_has_lost_nothing(tmp_path):
    calls = [*CALLS, *(call(n, process=1, thread=1) for n in range(10))]
    assert found(tmp_path, calls, KERNELS) == ((), (), ())
    # but where no process has any, all of it is lost
    missing = found(tmp_path / "b", calls, [], copies=[])
    assert missing.records[0].number == 50


def test_a_trace_of_counters_has_no_kernels_beside_them(tmp_path):
    counters = [{"start": 0, "end": 1, "name": "gemm", "metric": "m", "value": 1.0}]
    assert found(tmp_path, CALLS, [], kernel_counters=counters) == ((), (), ())


def test_the_time_reaches_over_all_streams_as_that_of_a_lost_kernel_is_not_known(tmp_path):
    rows = [work(n, stream=7 if n % 4 else 9) for n in range(40)]
    missing = found(tmp_path, CALLS, without(rows, 5))
    # stream 7 had its last work before at 3, and stream 9 its next at 8
    assert missing.unrecorded == ((4 * SLOW, 8 * SLOW + 400),)
    missing = found(tmp_path / "b", CALLS, without(rows, 6))
    assert missing.unrecorded == ((5 * SLOW, 8 * SLOW + 400),)


def test_first_kernels_that_are_lost_are_told_by_their_place(tmp_path):
    missing = found(tmp_path, CALLS, KERNELS[10:])
    assert missing.records[0][1:] == (10, 40, 0, 9 * STEP, "start")
    assert missing.unrecorded == ((0, 10 * SLOW + 400),)


def test_losses_all_over_leave_no_time_to_judge(tmp_path):
    missing = found(tmp_path, CALLS, without(KERNELS, 3, 9, 15, 21, 30))
    assert missing.records[0].place == "spread"
    assert missing.unrecorded == ((3 * SLOW, 40 * SLOW),)


def test_a_call_that_waits_for_all_work_bounds_the_time(tmp_path):
    calls = without(CALLS, 20)
    wait = {**call(20, "cudaDeviceSynchronize"), "end": 20 * SLOW + 100}
    missing = found(tmp_path, [*calls, wait], without(KERNELS, 3, 9, 15, 17, 19, 20))
    assert missing.unrecorded == ((3 * SLOW, 20 * SLOW + 100),)


def test_what_was_queued_as_the_capture_ended_is_not_lost(tmp_path):
    assert found(tmp_path, CALLS, KERNELS[:12]) == ((), (), ())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"api": [call(60, "cudaDeviceSynchronize")]}, "a call waited for all work"),
        ({"api": [call(400)]}, "the device had nothing to do by then"),
        (
            {"copies": [{"start": 900_000, "end": 900_100, "correlation": 51}], "api": [call(50, "cudaMemcpyAsync")]},
            "a later copy",
        ),
    ],
)
def test_a_sudden_end_is_no_end_of_the_capture(tmp_path, more, why):
    late = 20_000_000 if why.startswith("the device") else 0
    calls = [*CALLS, *({**c, "start": c["start"] + late, "end": c["end"] + late} for c in more["api"])]
    missing = found(tmp_path, calls, KERNELS[:12], **({"copies": more["copies"]} if "copies" in more else {}))
    launches = sum(c["name"] == "cudaLaunchKernel" for c in calls)
    assert [(m.number, m.of, m.place) for m in missing.records] == [(launches - 12, launches, "end")], why


def test_ids_of_the_same_number_and_sum_are_not_taken_for_the_same(tmp_path):
    rows = [{**k, "correlation": 7} if n in (5, 7) else k for n, k in enumerate(KERNELS)]
    assert [m[:3] for m in found(tmp_path, CALLS, rows).records] == [("kernels", 2, 40)]


def test_what_was_launched_before_the_capture_is_not_lost(tmp_path):
    assert found(tmp_path, CALLS[10:], KERNELS) == ((), (), ())


def test_kernels_whose_call_is_gone_are_counted_and_their_time_is_known(tmp_path):
    missing = found(tmp_path, without(CALLS, 5, 9), KERNELS)
    assert [m[:3] for m in missing.records] == [("launches", 2, 40)]
    assert missing.unrecorded == ()
    assert [w.tables for w in missing.warnings] == [("api",)]


@pytest.mark.parametrize(
    "calls",
    [
        [*CALLS, call(4, correlation=90, return_value=700, **BETWEEN)],
        [*CALLS, call(4, correlation=90, start=4 * STEP + 100, end=4 * STEP + 200)],
        [
            *CALLS,
            call(50, "cudaStreamBeginCapture"),
            call(51),
            call(52, "cudaStreamEndCapture"),
            call(53, "cudaMemcpy"),
        ],
        [*CALLS, call(4, "cudaLaunchHostFunc", correlation=90, **BETWEEN)],
        [*CALLS, call(4, correlation=None, **BETWEEN)],
    ],
    ids=["failed", "inside of another", "captured into a graph", "function of the host", "without an id"],
)
def test_launches_that_run_nothing_lost_nothing(tmp_path, calls):
    assert found(tmp_path, calls, KERNELS) == ((), (), ())


def test_graph_launches_need_a_record_of_any_kind(tmp_path):
    launches = [call(n, "cudaGraphLaunch_v10000") for n in range(40, 44)]
    graphs = [{"start": 40 * SLOW, "end": 41 * SLOW, "correlation": 41}]
    copies = [{"start": 41 * SLOW, "end": 42 * SLOW, "correlation": 42}]
    last = work(43)
    missing = found(tmp_path, [*CALLS, *launches], [*KERNELS, last], graphs=graphs, copies=copies)
    assert [m[:3] for m in missing.records] == [("graphs", 1, 4)]
    assert missing.unrecorded == ((42 * SLOW, 43 * SLOW + 400),)
    assert "--cuda-graph-trace=node" in missing.warnings[0].text


def test_a_report_without_any_kernel_lost_all(tmp_path):
    missing = found(tmp_path, CALLS, [])
    assert [m[:3] for m in missing.records] == [("kernels", 40, 40)]
    assert missing.records[0].place == "everywhere"


def test_ids_count_for_each_process(tmp_path):
    calls = [*CALLS, *({**c, "process": 1, "thread": 1} for c in CALLS)]
    rows = [*KERNELS, *({**k, "process": 1, "device": 1} for k in without(KERNELS, 5))]
    missing = found(tmp_path, calls, rows)
    assert [m[:3] for m in missing.records] == [("kernels", 1, 80)]


@pytest.mark.parametrize("seed", range(5))
def test_no_lost_kernel_ran_in_time_that_is_judged(tmp_path, seed):
    draw = random.Random(seed)
    streams = [draw.choice((7, 7, 9)) for _ in range(40)]
    free = {7: 0, 9: 0}
    rows = []
    for n, stream in enumerate(streams):
        start = max(free[stream], n * STEP + 600)
        free[stream] = start + draw.randrange(500, 30_000)
        rows.append(kernel(start, free[stream], correlation=n + 1, stream=stream))
    begin = draw.randrange(20)
    gone = set(range(begin, begin + draw.randrange(1, 12)) if seed % 2 else draw.sample(range(30), 8))
    missing = found(tmp_path, CALLS, without(rows, *gone))
    assert sum(m.number for m in missing.records) == len(gone)
    for n in gone:
        assert any(s <= rows[n]["start"] and rows[n]["end"] <= e for s, e in missing.unrecorded)
