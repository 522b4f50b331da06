"""Traces with one impossible event, or many: the others are read, and what is wrong is counted."""

from __future__ import annotations

import json

import pytest

from alltrace.api import OpenRun
from alltrace.run.importer import import_reports

US = 1_700_000_000_000_000
KERNELS = 24
LEFT_OUT = "events left out because their start or duration is missing, 0 or not a number"
OVERRUN = "rows of `{}` that end after later work of their stream has begun, or a wait for them has ended"
UNREACHABLE = "rows of `kernels` with a time more than 36 years away or a duration of more than a year"


def events():
    """Launches and kernels of 300 us every 400 us on one stream, in pairs."""
    pairs = []
    for n in range(KERNELS):
        at, both = US + 1000 + 400 * n, {"correlation": n + 1}
        on_gpu = {"device": 0, "context": 1, "stream": 7}
        launch = {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 9,
            "tid": 9,
            "ts": at - 20,
            "dur": 5,
            "args": both,
        }
        kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at, "dur": 300, "args": {**both, **on_gpu}}
        pairs.append(({"ph": "X", **launch}, {"ph": "X", **kernel}))
    return pairs


def all_from(first, **changes):
    return dict.fromkeys(range(first, KERNELS), changes)


COPY = {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)"}
CASES = {
    "one over all later ones": ({1: {"dur": 2_000_000}}, OVERRUN.format("kernels"), 1, KERNELS, 7_300_000),
    "two of a stream": (
        {1: {"dur": 2_000_000}, 9: {"dur": 2_000_000}},
        OVERRUN.format("kernels"),
        2,
        KERNELS,
        7_400_000,
    ),
    "a copy over kernels": ({1: {**COPY, "dur": 2_000_000}}, OVERRUN.format("copies"), 1, KERNELS - 1, 6_900_000),
    "to the last but three": ({1: {"dur": 8_000}}, OVERRUN.format("kernels"), 1, KERNELS, 7_300_000),
    "236 years": ({2: {"dur": 7.45e15}}, UNREACHABLE, 1, KERNELS - 1, 6_900_000),
    "minus 236 years": ({2: {"dur": -7.45e15}}, UNREACHABLE, 1, KERNELS - 1, 6_900_000),
    "a start in 236 years": ({2: {"ts": 9.15e15}}, LEFT_OUT, 1, KERNELS - 1, 6_900_000),
    "a start beyond all numbers": ({2: {"ts": 1e30}}, LEFT_OUT, 1, KERNELS - 1, 6_900_000),
    "a duration of null": ({2: {"dur": None}}, LEFT_OUT, 1, KERNELS - 1, 6_900_000),
    "a duration that is no number": ({2: {"dur": float("nan")}}, LEFT_OUT, 1, KERNELS - 1, 6_900_000),
    "half at 0": (all_from(12, ts=0, dur=0), LEFT_OUT, 12, 12, 3_600_000),
    "half at 0 with durations": (all_from(12, ts=0), LEFT_OUT, 12, 12, 3_600_000),
    "half before 0": (all_from(12, ts=-1), LEFT_OUT, 12, 12, 3_600_000),
    "half at the first moment": (
        all_from(12, ts=US),
        "rows of `kernels` without a time or a duration",
        12,
        12,
        3_600_000,
    ),
}


@pytest.mark.parametrize(("changes", "text", "count", "left", "busy_ns"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_counted_and_the_rest_is_read(tmp_path, changes, text, count, left, busy_ns):
    pairs = [(launch, kernel | changes.get(n, {})) for n, (launch, kernel) in enumerate(events())]
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": US, "dur": 11_000, "args": {}}
    report = tmp_path / "rank0.pt.trace.json"
    report.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": [operator, *(event for pair in pairs for event in pair)]})
    )
    import_reports([str(report)], tmp_path / "run", jobs=1)
    run = OpenRun(tmp_path / "run")
    (rank,) = run.manifest.ranks
    warnings = {w.text: w.number for group in (*rank.warnings.values(), *rank.row_warnings.values()) for w in group}
    assert warnings[text] == count
    assert run.table("kernels").aggregate('count(*), sum("end" - start)').fetchall() == [(left, busy_ns)]
    assert (rank.end_ns - rank.start_ns) <= 20_000_000
