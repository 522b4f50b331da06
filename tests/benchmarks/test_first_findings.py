"""What `diagnose` says first, as the benchmarks compare it."""

from __future__ import annotations

import alltrace
from alltrace.synth import write_run
from benchmarks.first_findings import Diagnosed, Finding, StepTimes, diagnosed, milliseconds, step_times


def step(rank, start_ns, end_ns, kind="step"):
    return {"rank": rank, "start_ns": start_ns, "end_ns": end_ns, "duration_ns": end_ns - start_ns, "kind": kind}


def test_the_mean_counts_the_time_between_steps_and_the_median_the_steady_ones():
    rows = [step(0, 0, 90, "warm-up"), step(0, 100, 120), step(0, 130, 160), step(1, 10, 110), step(1, 111, 141)]
    assert step_times(rows) == StepTimes(3, (160 / 3 + 131 / 2) / 2, 30)
    assert step_times([step(0, 0, 90, "warm-up")]) == StepTimes(1, 90, None)
    assert step_times([]) is None


def test_a_share_is_a_loss_or_a_ceiling_or_unknown():
    row = {"kind": "sync", "lost_share": 0.1234}
    assert Finding.of(row) == Finding("sync", 0.1234, None)
    assert Finding.of({**row, "opportunity_share": None}).share_text() == "12.3 %"
    assert (
        Finding.of({"kind": "precision", "lost_share": None, "opportunity_share": 0.55}).share_text()
        == "at most 55.0 %"
    )
    assert Finding("sync", None).share_text() == "unknown"


def test_times_have_three_digits_that_count():
    assert [milliseconds(ns) for ns in (None, 1_234_567, 123_456_789, 1_234_567_890)] == [
        "",
        "1.23 ms",
        "123 ms",
        "1235 ms",
    ]


def test_findings_about_the_recording_are_left_out_and_the_steps_are_those_of_the_run(tmp_path):
    write_run(
        "tiny",
        tmp_path / "reports",
        faults=("data-stall:stall_ns=20000000", "dropped-events:ranks=0"),
        steps=6,
        ideal=True,
    )
    run = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache")
    assert "capture-fault" in {row["kind"] for row in run.recipe("diagnose").to_pylist()}
    found = diagnosed([tmp_path / "reports"], tmp_path / "cache")
    assert found.first is not None
    assert found.first.kind == "data-stall"
    assert all(f.kind != "capture-fault" for f in found.findings)
    assert found.steps is not None
    assert found.steps.steps == 6
    assert found.steps.mean_ns > 20_000_000
    assert Diagnosed((), None, ()).first is None
