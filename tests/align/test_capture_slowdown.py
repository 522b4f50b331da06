"""Whether steps take longer while they are captured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from alltrace.align.capture_slowdown import capture_slowdown
from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run


def steps(numbers, kinds=None):
    return pa.table({"step": np.array(numbers, np.int64), "kind": kinds or ["step"] * len(numbers)})


def printed(times):
    return pa.table({"step": np.arange(1, len(times) + 1), "step_time_s": np.array(times, np.float64)})


def test_medians_within_and_outside_of_the_capture():
    times = [9.0, 9.0, 9.0, *[0.100, 0.102, 0.098] * 10]
    times[9:14] = [0.121, 0.119, 0.120, 0.5, 0.120]
    found = capture_slowdown(steps([*range(10, 15)] * 2, (["step"] * 3 + ["checkpoint", "step"]) * 2), printed(times))
    assert (found.inside, found.outside, found.certain) == (4, 25, True)
    assert (found.inside_s, found.outside_s, found.ratio) == pytest.approx((0.120, 0.100, 1.2))
    assert found.text.endswith("4 captured steps took 120.0 ms each and the 25 others 100.0 ms: 20.0 % longer")


def test_what_the_spread_explains_is_no_difference():
    draw = np.random.default_rng(5)
    times = 0.1 + 0.01 * draw.standard_normal(60)
    found = capture_slowdown(steps(range(20, 26)), printed(times))
    assert not found.certain
    assert found.text.endswith("no difference beyond their variation")


@pytest.mark.parametrize("numbers", [range(5, 7), range(1, 30), range(90, 99)])
def test_too_few_steps_tell_nothing(numbers):
    assert capture_slowdown(steps(numbers), printed([0.1] * 30)) is None


def test_nothing_is_told_without_a_log_or_steps():
    assert capture_slowdown(steps([1]), None) is None
    assert capture_slowdown(steps([]), printed([0.1] * 9)) is None


def test_a_capture_that_slows_the_program_is_a_fault_of_the_capture(tmp_path):
    write_run("tiny", tmp_path / "reports", steps=10, logs=True)
    log = tmp_path / "reports" / "logs" / "train.log"
    own = aligned(imported(tmp_path / "a", tmp_path / "reports", log)).steps
    longest = max(e - s for s, e in zip(own["start"].to_pylist(), own["end"].to_pylist(), strict=True)) / 1e6
    first = max(own["step"].to_pylist()) + 1
    more = [f" iteration {n}/ 99 | elapsed time per iteration (ms): {longest / 2:.3f} |\n" for n in range(first + 1, first + 13)]
    log.write_text(log.read_text() + "".join(more))
    run = imported(tmp_path / "b", tmp_path / "reports", log)
    found = aligned(run).capture_slowdown
    assert found is not None
    assert found.certain
    assert found.outside in (12, 13)  # a program may count from 0 and its log from 1
    assert found.ratio > 1.05
    (fault,) = (r for r in ask(run, "diagnose", jobs=1).table.to_pylist() if r["where"] == "capture slows the program")
    assert (fault["kind"], fault["ranks"], fault["lost_ns"]) == ("capture-fault", [0, 1], 0)
    assert fault["evidence"]["slowdown"] == pytest.approx(found.ratio, abs=1e-4)
    assert found.text in ask(run, "info", jobs=1).notes
    assert found.text in aligned(run).steps_notes


def imported(folder, reports, log):
    import_reports([str(reports)], folder, jobs=1, training_logs=[str(log)])
    return Run(folder)
