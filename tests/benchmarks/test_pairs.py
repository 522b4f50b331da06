"""Real pairs: the row of a pair with made measurements, and the command."""

from __future__ import annotations

import pytest
from tests.together import together

from alltrace.synth import write_run
from benchmarks import pairs
from benchmarks.first_findings import Diagnosed, Finding, StepTimes
from benchmarks.pairs import HEAD, Pair, Side, row

CELLS = [c.strip() for c in "".join(HEAD[0]).strip("|").split("|")]


def cells(pair, before, after, *findings):
    line = row(pair, before, after, Diagnosed(findings, None, ()))
    values = [c.strip() for c in line.strip("|").split("|")]
    assert len(values) == len(CELLS)
    return dict(zip(CELLS, values, strict=True))


BEFORE = Side(StepTimes(9, 200e6, 180e6), 201e6)
AFTER = Side(StepTimes(9, 150e6, 90e6), None)


def test_what_is_found_is_set_against_what_was_gained():
    pair = Pair("x", kinds=("data-stall",))
    found = cells(pair, BEFORE, AFTER, Finding("launch-bound", 0.3), Finding("data-stall", 0.2))
    assert [found[c] for c in CELLS[1:6]] == ["200 ms", "150 ms", "25.0 %", "50.0 %", "unknown"]
    assert [found[c] for c in CELLS[6:]] == ["`launch-bound` 30.0 %", "`data-stall`", "20.0 %, as number 2", "0.80"]


@together(
    ("kinds", "findings", "words"),
    [
        (("precision",), [Finding("precision", None, 0.6)], ["`precision`", "at most 60.0 %, as number 1", ""]),
        (("precision",), [Finding("precision", 0.0, 0.6)], ["`precision`", "at most 60.0 %, as number 1", ""]),
        (("data-stall",), [Finding("data-stall", None)], ["`data-stall`", "unknown, as number 1", ""]),
        (("data-stall",), [], ["`data-stall`", "not found", ""]),
        ((), [Finding("sync", 0.1)], ["not in the report", "", ""]),
    ],
)
def test_what_cannot_be_compared_is_said(kinds, findings, words):
    found = cells(Pair("x", kinds=kinds), BEFORE, AFTER, *findings)
    assert [found[c] for c in CELLS[7:]] == words


def test_a_change_that_costs_time_gains_less_than_nothing():
    found = cells(Pair("x", kinds=("sync",)), AFTER, BEFORE, Finding("sync", 0.1))
    assert (found[CELLS[3]], found[CELLS[-1]]) == ("-33.3 %", "")


def test_a_pair_of_ones_own(tmp_path, capsys):
    for name, faults in (("before", ("data-stall:stall_ns=20000000",)), ("after", ())):
        write_run("tiny", tmp_path / name, faults=faults, steps=6, ideal=True)
    assert pairs.main(["--before", str(tmp_path / "before"), "--after", str(tmp_path / "after")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == list(HEAD)
    values = dict(zip(CELLS, [c.strip() for c in lines[2].strip("|").split("|")], strict=True))
    whole, alone = (float(values[c].rstrip(" %")) for c in ("gained: all steps", "by the files alone"))
    assert whole == pytest.approx(alone, abs=0.2)
    assert whole > 30
    kind, share, _ = values["first finding"].split()
    assert kind == "`data-stall`"
    assert float(share) > 50  # that of the first run; the second one has but its usual loading


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--before", "x"], "--before and --after come together"), ([], "set ALLTRACE_DATA, or name two runs")],
)
def test_pairs_that_are_not_given_are_refused(monkeypatch, capsys, arguments, words):
    monkeypatch.delenv("ALLTRACE_DATA", raising=False)
    with pytest.raises(SystemExit) as ended:
        pairs.main(arguments)
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert words in captured.err


def test_a_missing_report_is_named_and_the_others_are_measured(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("ALLTRACE_DATA", str(tmp_path))
    assert pairs.main([]) == 3
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(pairs.PAIRS)
    assert all("expected one report, found none" in line for line in errors)


def test_a_page_keeps_its_table_where_a_pair_cannot_be_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLTRACE_DATA", str(tmp_path))
    page = tmp_path / "page.md"
    page.write_text("<!-- table: real pairs -->\nold\n<!-- end of table -->\n")
    assert pairs.main(["--write", str(page)]) == 3
    assert "old" in page.read_text()


@pytest.mark.slow
@pytest.mark.corpus
def test_the_files_alone_agree_with_our_steps(corpus, tmp_path):
    for pair in pairs.PAIRS:
        for pattern in (pair.before, pair.after):
            path = pairs.located(corpus, pattern)
            steps = pairs.diagnosed([path], tmp_path).steps
            # a period of kernels may begin anywhere in a step, and the first and last steps of a window may be cut
            assert steps.mean_ns == pytest.approx(pairs.raw_step_ns(path), rel=0.03)
