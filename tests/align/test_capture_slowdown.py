"""Whether steps take longer while they are captured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.making import kernel, make_run

from alltrace.align.capture_slowdown import capture_slowdown, slowdown_by_program, step_time_marks
from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.step_time_mark import StepTimeMark, parse_mark


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
    write_run("tiny", tmp_path / "reports", steps=10, logs=True, ideal=True)
    log = tmp_path / "reports" / "logs" / "train.log"
    own = aligned(imported(tmp_path / "a", tmp_path / "reports", log)).steps
    longest = max(e - s for s, e in zip(own["start"].to_pylist(), own["end"].to_pylist(), strict=True)) / 1e6
    first = max(own["step"].to_pylist()) + 1
    more = [
        f" iteration {n}/ 99 | elapsed time per iteration (ms): {longest / 2:.3f} |\n"
        for n in range(first + 1, first + 13)
    ]
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


def ranked(starts_ms, ranks=2, kinds=None):
    """Steps from 70 on that begin at these times, ms, on each rank."""
    count = len(starts_ms)
    return pa.table(
        {
            "rank": np.repeat(np.arange(ranks), count),
            "step": np.tile(np.arange(70, 70 + count), ranks),
            "start": np.tile(np.array(starts_ms, np.int64) * 1_000_000, ranks),
            "kind": (kinds or ["step"] * count) * ranks,
        }
    )


def test_what_the_program_says_of_the_steps_before():
    found = slowdown_by_program(ranked([0, 120, 240, 360, 480]), [StepTimeMark(57, 100_000_000, 500_000)])
    assert (found.inside, found.outside, found.certain) == (4, 57, True)
    assert (found.inside_s, found.outside_s, found.ratio) == pytest.approx((0.120, 0.100, 1.2))
    assert (
        found.text
        == "according to alltrace.instrument.steps, the 4 captured steps took 120.0 ms each and the 57 others 100.0 ms:"
        " 20.0 % longer"
    )


@pytest.mark.parametrize("each_ms", [119.0, 200.0])
def test_within_the_error_or_shorter_is_no_difference(each_ms):
    """The host runs ahead behind the wait that begins a window."""
    found = slowdown_by_program(ranked([0, 120, 240, 360, 480]), [StepTimeMark(57, round(each_ms * 1e6), 500_000)])
    assert not found.certain


def test_steps_of_other_kinds_and_gaps_do_not_count():
    kinds = ["step", "checkpoint", "step", "step", "step"]
    found = slowdown_by_program(ranked([0, 120, 900, 1020, 1140], kinds=kinds), [StepTimeMark(57, 100_000_000, 0)])
    assert (found.inside, found.inside_s) == (3, pytest.approx(0.120))
    assert slowdown_by_program(ranked([0, 120, 240]), [StepTimeMark(57, 100_000_000, 0)]) is None
    assert slowdown_by_program(ranked([0, 120, 240, 360, 480]), []) is None


def test_marks_are_names_of_ranges_of_that_form_alone():
    mark = StepTimeMark(57, 104_123_456, 9)
    names = pa.table(
        {"value": ["step 70", mark.text, None, "alltrace: nonsense", mark.text + "!", StepTimeMark(5, 0, 0).text]}
    )
    assert step_time_marks(names) == [mark]
    assert parse_mark(None) is None


def test_the_answer_says_that_the_profiler_slows_the_program(tmp_path):
    mark = StepTimeMark(57, 100_000_000, 500_000).text
    rows = {}
    for rank in range(2):
        ranges = [{"start": 120_000_000 * n, "end": 120_000_000 * (n + 1), "name": f"step {70 + n}"} for n in range(6)]
        ranges.append({"start": 1000, "end": 1001, "name": mark})
        kernels = [kernel(120_000_000 * n + 10, 120_000_000 * n + 110_000_000) for n in range(6)]
        rows[rank] = {"ranges": [{**r, "kind": "pushpop"} for r in ranges], "kernels": kernels}
    run = make_run(tmp_path / "run", rows)
    said = (
        "according to alltrace.instrument.steps, the 5 captured steps took 120.0 ms each and the 57 others 100.0 ms:"
        " 20.0 % longer"
    )
    assert said in ask(run, "info", jobs=1).notes
    (fault,) = (r for r in ask(run, "diagnose", jobs=1).table.to_pylist() if r["where"] == "capture slows the program")
    assert fault["evidence"]["slowdown"] == pytest.approx(1.2, abs=1e-4)
    assert "20 % longer than others, by alltrace.instrument.steps" in fault["advice"]
    assert ask(run, "steps", jobs=1).table.num_rows == 12  # the range that says it is no step


def imported(folder, reports, log):
    import_reports([str(reports)], folder, jobs=1, training_logs=[str(log)])
    return Run(folder)
