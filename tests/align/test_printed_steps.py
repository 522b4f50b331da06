"""Steps from training logs, on simulated runs."""

from __future__ import annotations

import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.align import printed_steps
from alltrace.align.printed_steps import _as_good, _by_time, _Fit, _fits, _made, _numbered, _uncertain_ns, _zones
from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import InputError


def steps_of(folder, *, edit=None, patterns=(), **changes):
    """The alignment of a simulated run that was imported with its training log, whose lines `edit` may change."""
    write_run(
        "sharded",
        folder / "reports",
        logs=True,
        **{"ranks": 4, "hosts": 1, "steps": 10, "nvtx": False, **changes},
        ideal=True,
    )
    log = folder / "reports" / "logs" / "train.log"
    if edit is not None:
        log.write_text("".join(edit(log.read_text().splitlines(keepends=True))))
    import_reports(
        [str(folder / "reports")], folder / "run", jobs=1, training_logs=[str(log)], training_patterns=patterns
    )
    return aligned(Run(folder / "run"))


def by_rank(alignment):
    table = alignment.steps
    found = {}
    for rank, step in zip(table["rank"].to_pylist(), table["step"].to_pylist(), strict=True):
        found.setdefault(rank, []).append(step)
    return found


def test_steps_found_by_kernels_get_the_programs_numbers(tmp_path):
    alignment = steps_of(tmp_path)
    assert by_rank(alignment) == {r: list(range(1, 11)) for r in range(4)}
    assert set(alignment.steps["source"].to_pylist()) == {"kernels"}
    assert any("steps have the numbers of the training log: 10 of 10" in n for n in alignment.steps_notes)


def in_a_form_of_its_own(lines):
    for line in lines:
        stamp, number, took = re.match(
            r" \[(.*?)\] iteration +([0-9]+)/.*elapsed time per iteration \(ms\): ([0-9.]+)", line
        ).groups()
        yield f"{stamp} tick {number} took {took}\n"


@pytest.mark.slow
def test_lines_of_a_form_of_its_own_are_steps_by_a_pattern(tmp_path):
    with pytest.raises(InputError, match=r"no step lines in 10 lines.* describe its lines with --pattern"):
        steps_of(tmp_path / "without", edit=in_a_form_of_its_own)
    alignment = steps_of(
        tmp_path / "with", edit=in_a_form_of_its_own, patterns=[r"tick (?P<step>\d+) took (?P<step_time_ms>\S+)"]
    )
    assert by_rank(alignment) == {r: list(range(1, 11)) for r in range(4)}
    assert any("steps have the numbers of the training log: 10 of 10" in n for n in alignment.steps_notes)


def test_a_log_that_begins_before_the_reports(tmp_path):
    alignment = steps_of(tmp_path, faults=("late-start:ranks=0,1,2,3:share=0.4",))
    found = by_rank(alignment)
    assert all(steps == found[0] for steps in found.values())
    assert found[0][0] in (4, 5, 6)
    assert found[0][-1] == 10


def without_times(lines):
    return [line.partition("] ")[2] for line in lines]


def test_a_slow_first_step_tells_the_place_without_times(tmp_path):
    alignment = steps_of(tmp_path, edit=without_times)
    assert by_rank(alignment)[0] == list(range(1, 11))


def test_equal_steps_without_times_number_nothing(tmp_path):
    def equal(lines):
        return [re.sub(r"(iteration \(ms\): )[0-9.]+", r"\g<1>28.2", line) for line in without_times(lines)]

    alignment = steps_of(tmp_path, edit=equal, faults=("late-start:ranks=0,1,2,3:share=0.4",))
    assert by_rank(alignment)[0][0] == 0
    assert any("fit in several places of its 10" in n for n in alignment.steps_notes)


def test_steps_come_from_the_log_alone_where_nothing_repeats(tmp_path):
    alignment = steps_of(tmp_path, dropped_share=0.1)
    assert set(alignment.steps["source"].to_pylist()) == {"log"}
    assert by_rank(alignment) == {r: list(range(1, 11)) for r in range(4)}
    lasted = [
        e - s for s, e in zip(alignment.steps["start"].to_pylist(), alignment.steps["end"].to_pylist(), strict=True)
    ]
    assert all(20e6 < t < 60e6 for t in lasted)


def test_a_log_of_another_day_is_not_used(tmp_path):
    alignment = steps_of(
        tmp_path, dropped_share=0.1, edit=lambda lines: [line.replace("[2026-01-01", "[2026-03-05") for line in lines]
    )
    assert alignment.steps.num_rows == 0
    assert any("10 unused steps: their times are not those of the reports" in n for n in alignment.steps_notes)


def test_ranges_of_the_program_stay(tmp_path):
    alignment = steps_of(tmp_path, nvtx=True)
    assert set(alignment.steps["source"].to_pylist()) == {"range"}
    assert any("the training log was not needed" in n for n in alignment.steps_notes)


@pytest.mark.parametrize(("own", "lines"), [(1, 1), (2, 9), (9, 2), (5, 40), (40, 5), (300, 2_000)])
def test_places_looked_at_together_fit_as_each_alone(own, lines):
    rng = np.random.default_rng(own)
    lasted, took = rng.uniform(1e7, 1e8, own), rng.uniform(1e7, 1e8, lines)
    took[rng.random(lines) < 0.1] = np.nan
    fits = _fits(lasted, took, range(1 - own, lines), 0.0)
    for shift in range(1 - own, lines):
        at = np.arange(own) + shift
        inside = (at >= 0) & (at < lines)
        if inside.sum() < min(3, own, lines):
            assert shift not in fits
            continue
        ratio = np.abs(np.log(lasted[inside] / took[at[inside]]))
        cost = np.where(np.isfinite(ratio), ratio, 0.0)
        assert fits[shift] == (cost.mean(), cost.var(), cost.max(), len(cost))


def test_a_long_log_is_held_against_the_steps_in_little_memory():
    took = np.random.default_rng(0).uniform(1e7, 1e8, 10_000)
    tracemalloc.start()
    fits = _fits(took[4_000:4_200], took, range(-199, 10_000), np.inf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert min(fits, key=fits.get) == 4_000
    assert peak < 12 << 20  # an array for each place would be 16 MB


def clocks(*offsets, evidence=9):
    return SimpleNamespace(
        manifest=SimpleNamespace(clocks=[SimpleNamespace(offset_ns=n, evidence=evidence) for n in offsets])
    )


def test_the_clock_of_the_log_is_as_uncertain_as_the_hosts_differ():
    assert _uncertain_ns(clocks()) == 5e6
    assert _uncertain_ns(clocks(70)) == 5e6
    assert _uncertain_ns(clocks(-300, 700)) == 1000 + 5e6
    assert _uncertain_ns(clocks(-300, 700, evidence=0)) == 1000 + 1e9
    assert _uncertain_ns(clocks(-300, evidence=0)) == 5e6


def test_zones_are_quarters_of_an_hour_at_which_a_line_is_within_the_time():
    quarter = 900e9
    assert _zones(np.array([10e9, 20e9]), 0, int(15e9)) == [0]
    assert _zones(np.array([10e9]) + 8 * quarter, 0, int(15e9)) == [8]
    assert _zones(np.array([10e9]) - 56 * quarter, 0, int(15e9)) == [-56]
    assert _zones(np.array([10e9]) - 57 * quarter, 0, int(15e9)) == []
    assert _zones(np.array([10e9]), int(11e9), int(15e9)) == []
    assert _zones(np.array([10e9, 10e9 + quarter]) + quarter, int(10e9), int(10e9)) == [1, 2]


def test_steps_are_placed_by_the_times_of_lines():
    line = np.arange(1, 9) * 5e9 + 0.5
    assert _by_time(line, line[2:6] - 2e9, 4e9) == 2
    assert _by_time(line, line[[2, 3, 4, 5, 6]] - np.array([2e9, 2e9, 2e9, 2e9, 6e9]), 4e9) == 2  # four of five agree
    assert _by_time(line, line[[2, 3, 4, 5]] - np.array([2e9, 2e9, 2e9, 6e9]), 4e9) is None
    assert _by_time(np.round(line), line[2:6] - 2e9, 4e9) == 2
    lacking = np.where(np.arange(len(line)) == 4, np.nan, line)
    assert _by_time(lacking, line[2:6] - 2e9, 4e9) is None
    assert _by_time(np.round(line), line[2:6] - 2e9, 3.9e9) is None  # whole seconds are too coarse
    assert _by_time(line[::-1], line[2:6], 4e9) is None
    assert _by_time(np.append(line, np.nan), line[2:6], 4e9) is None


def test_another_place_is_as_good_unless_times_tell_them_apart():
    best = _Fit(0.01, 1e-4, 0.05, 25)
    assert _as_good(best._replace(steps=2), best)
    assert not _as_good(best._replace(worst=0.4), best)
    assert _as_good(best._replace(worst=0.39), best)
    spread = np.sqrt(2e-4 / 25)
    assert _as_good(best._replace(mean=0.01 + 2.9 * spread), best)
    assert not _as_good(best._replace(mean=0.01 + 3.1 * spread), best)
    wide = best._replace(variance=1.0)
    assert _as_good(wide._replace(mean=0.19), wide)
    assert not _as_good(wide._replace(mean=0.2), wide)


def a_run(offsets=(0,)):
    """Ranks 0 and 1 with 100 s from 10 s of UTC on, by clocks that agree with it."""
    of_run = clocks(*offsets)
    of_run.manifest.zero_utc_ns = 0
    of_run.ranks = [
        SimpleNamespace(rank=n, start_ns=int(10e9), end_ns=int(110e9), time_base_utc_ns=0) for n in range(2)
    ]
    return of_run


@pytest.fixture
def bases(monkeypatch):
    monkeypatch.setattr(
        printed_steps, "_bases", lambda run: {0: 0, 1: 1000} if run.manifest.zero_utc_ns is not None else None
    )


def test_lines_with_times_are_steps_by_themselves(bases):
    number, end = np.array([4, 5, 6, 8, 9]), np.array([5.0, 20.0, 40.0, 60.0, 130.0]) * 1e9
    nothing = np.full(5, np.nan)
    made, reason = _made(a_run(), number, end, nothing)
    assert reason == ""
    # the one after a gap in the numbers has no begin
    assert made.select(["rank", "step", "start", "end"]).to_pylist() == [
        {"rank": rank, "step": step, "start": int(begin * 1e9) - base, "end": int(stop * 1e9) - base}
        for rank, base in ((0, 0), (1, 1000))
        for step, begin, stop in ((5, 5, 20), (6, 20, 40), (9, 60, 130))
    ]
    assert set(made.column("source").to_pylist()) == {"log"}
    took = np.array([2.0, 2.0, 30.0, 3.0, 50.0]) * 1e9
    made, _ = _made(a_run(), number, end, took)
    assert made.column("start").to_numpy()[:4].tolist() == [
        18e9,
        20e9,
        57e9,
        80e9,
    ]  # none before the end of the one before


def test_lines_that_cannot_be_steps_say_why(bases):
    number, end, took = np.arange(3), np.array([20.0, 40.0, 60.0]) * 1e9, np.full(3, 2e9)
    assert _made(a_run(), number, end * np.nan, took) == (None, "their lines have no time")
    unknown = a_run()
    unknown.manifest.zero_utc_ns = None
    assert _made(unknown, number, end, took) == (None, "a report does not contain its start time")
    assert _made(a_run(), number, end + 450e9, took) == (None, "their times are not those of the reports")
    day = np.array([20.0, 920.0]) * 1e9 + 900e9
    assert _made(a_run(), number[:2], day, took[:2]) == (None, "their times have no time zone, and several would fit")
    assert _made(a_run(), number[:1], end[:1], np.full(1, np.nan)) == (None, "none of them is within the reports")
    half = "the hosts' clocks differ by more than half of a step (2000 ms), and the log does not name its host"
    assert _made(a_run((0, int(1e9))), number, end, took) == (None, half)
    assert _made(a_run((0, int(0.99e9))), number, end, took)[1] == ""


def reports(lasting, rank=0):
    begin = np.cumsum([0, *lasting])[:-1].astype(np.int64)
    columns = {
        "rank": [rank] * len(begin),
        "step": range(len(begin)),
        "start": begin,
        "end": begin + np.array(lasting, np.int64),
    }
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def test_numbers_of_the_log_are_those_where_steps_take_as_long(bases):
    unknown = a_run()
    unknown.manifest.zero_utc_ns = None
    took = np.array([20, 80, 35, 110, 15, 70, 25, 95], float) * 1e9
    number, stamp = np.arange(8) * 10 + 100, np.full(8, np.nan)
    steps = reports(took[3:6] * 1.02)
    found, notes = _numbered(unknown, steps, ("before",), number, stamp, took)
    assert found.column("step").to_pylist() == [130, 140, 150]
    assert notes == (
        "before",
        "steps have the numbers of the training log: 3 of 3 steps of the reports have a line in it",
    )
    # a step after the last line goes on by one
    found, notes = _numbered(unknown, reports([*took[4:], 50e9]), (), np.arange(8) + 100, stamp, took)
    assert notes[0].endswith("4 of 5 steps of the reports have a line in it")
    assert found.column("step").to_pylist() == [104, 105, 106, 107, 108]
    other = _numbered(unknown, reports([1e9, 7e9, 2e9]), (), number, stamp, took)
    assert other[1] == ("the training log was not joined: its 8 steps do not fit the 3 steps of the reports",)
    alike = _numbered(unknown, reports([50e9] * 3), (), number, stamp, np.full(8, 50e9))
    assert alike[1] == ("the training log was not joined: the 3 steps of the reports fit in several places of its 8",)
    shuffled = _numbered(unknown, steps, (), number[::-1], stamp, took)
    assert shuffled[1] == ("the training log was not joined: its steps are out of order where they fit",)


def test_times_of_lines_place_steps_that_are_all_alike(bases):
    number, stamp = np.arange(8) + 100, np.arange(1, 9) * 5e9 + 0.5
    steps = reports([5e9] * 4)
    shifted = {name: pa.array(steps.column(name).to_numpy() + int(10e9)) for name in ("start", "end")}
    later = pa.table({"rank": steps.column("rank"), "step": steps.column("step"), **shifted})
    found, notes = _numbered(a_run(), later, (), number, stamp, np.full(8, np.nan))
    assert found.column("step").to_pylist() == [102, 103, 104, 105]
    assert notes == ("steps have the numbers of the training log: 4 of 4 steps of the reports have a line in it",)
