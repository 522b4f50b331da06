"""Counters of CUPTI's range profiler: kernels with artificial times, and the calls that have the real ones."""

from __future__ import annotations

import json

import pytest
from tests.readers.kineto.conftest import event, trace
from tests.readers.kineto.test_read import us, warnings_of
from tests.readers.reading import rows_of

FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
PIPE = "sm__inst_executed_pipe_tensor.sum"


def measured(name, ts, device=0, **values):
    return event("cuda_profiler_range", name, ts, 10, device, 0, **values)


def launch(ts, correlation, name="cudaLaunchKernel"):
    return event("cuda_runtime", name, ts, 5, correlation=correlation)


KERNELS = [
    measured("second", 1_000_600, **{FMA: 7, PIPE: 2.5}),
    measured("first", 1_000_500, **{FMA: 9119334400, PIPE: 0}),
]
LAUNCHES = [
    launch(1_000_100, 4), launch(1_000_110, 5, "cudaMemcpyAsync"), launch(1_000_120, 6, "cudaLaunchHostFunc"),
    launch(1_000_200, 9, "cuLaunchKernelEx"),
]  # fmt: skip


def test_counters_go_to_the_launches_in_their_order(write):
    rows = rows_of(write(trace([*KERNELS, *LAUNCHES])), "kernel_counters")
    assert [
        tuple(r[k] for k in ("number", "name", "metric", "value", "time", "thread", "correlation", "device"))
        for r in rows
    ] == [
        (1, "first", FMA, 9119334400.0, us(1_000_100), 0, 4, 0),
        (1, "first", PIPE, 0.0, us(1_000_100), 0, 4, 0),
        (2, "second", FMA, 7.0, us(1_000_200), 0, 9, 0),
        (2, "second", PIPE, 2.5, us(1_000_200), 0, 9, 0),
    ]


@pytest.mark.parametrize(
    "events", [[*KERNELS, LAUNCHES[0]], [*KERNELS[:1], measured("other", 1_000_500, 1, **{FMA: 1}), *LAUNCHES]]
)
def test_where_launches_are_not_as_many_or_devices_several_the_order_alone_is_known(write, events):
    rows = rows_of(write(trace(events)), "kernel_counters")
    assert {(r["thread"], r["correlation"]) for r in rows} == {(None, None)}
    assert {r["time"] for r in rows} == {us(1_000_500), us(1_000_600)}
    assert {r["number"] for r in rows} == ({1} if any(r["device"] for r in rows) else {1, 2})


def test_what_is_no_number_is_left_out_and_arguments_that_are_no_json_are_counted(write):
    odd = measured("odd", 1_000_700, **{FMA: "many", PIPE: True, "l1tex__m.avg": float("nan"), "l1tex__n.avg": -1.5})
    broken = (
        '{"ph": "X", "cat": "cuda_profiler_range", "name": "x", "pid": 0, "tid": 0, "ts": 1000800, "dur": 1, "args":'
        ' {"a": nan}}'
    )
    text = json.dumps(trace([odd])).replace('"traceEvents": [', f'"traceEvents": [{broken}, ')
    assert [(r["number"], r["metric"], r["value"]) for r in rows_of(write(text), "kernel_counters")] == [
        (1, "l1tex__n.avg", -1.5)
    ]
    assert warnings_of(write(text)) == (
        (),
        ("events left out because they are not valid JSON (an escape or a quote may be at fault): 1",),
    )


def test_such_events_are_no_kernels(write):
    path = write(trace([*KERNELS, *LAUNCHES]))
    assert rows_of(path, "kernels") == []
    assert warnings_of(path) == ((), ())
