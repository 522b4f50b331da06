"""The table of the ladder, for made measurements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from benchmarks.first_findings import Diagnosed, Finding, StepTimes
from benchmarks.ladder.causes import Cause, Settings
from benchmarks.ladder.measuring import Times
from benchmarks.ladder.table import HEAD, Measured, text

CAUSE = Cause("sync-each-step", Settings(reads=True), Settings(), ("sync", "launch-bound"))
TIMES = Times((20e6, 22e6, 30e6), (11e6, 10e6, 16e6))
COLUMNS = [c.strip() for c in HEAD[0].strip("|").split("|")]


def page(diagnoses, *, judged=True, left_out=()):
    return text("A GPU", [Measured(CAUSE, TIMES, judged, diagnoses)], dict(left_out))


def lines_of(page):
    table = [line for line in page.splitlines() if line.startswith("| sync")]
    found = [[c.strip() for c in line.strip("|").split("|")] for line in table]
    assert all(len(cells) == len(COLUMNS) for cells in found)
    return [dict(zip(COLUMNS, cells, strict=True)) for cells in found]


def says(*findings, steps=None):
    return Diagnosed(findings, steps, ())


def test_a_row_sets_what_was_gained_beside_what_was_found():
    (row,) = lines_of(
        page({"torch": says(Finding("sync", 0.4), Finding("idle-gap", 0.1), steps=StepTimes(3, 25e6, 24e6))})
    )
    assert row == {
        "cause": "sync-each-step",
        "switch": "reads: True to False",
        "slow": "22 ms",
        "fast": "11 ms",
        "gained": "50.0 % (20.0 % to 66.7 %)",
        "recorded by": "torch",
        "step when recorded": "25 ms",
        "found": "`sync` 40.0 %",
        "should be first": "`sync` or `launch-bound`",
        "its loss": "40.0 %",
        "was first": "yes",
    }


@pytest.mark.parametrize(
    ("findings", "found", "right"),
    [
        ((), "nothing", "no"),
        ((Finding("idle-gap", 0.3), Finding("sync", 0.2)), "`idle-gap` 30.0 %", "no"),
        ((Finding("launch-bound", 0.3), Finding("idle-gap", 0.2)), "`launch-bound` 30.0 %", "yes"),
    ],
)
def test_only_the_first_finding_counts(findings, found, right):
    (row,) = lines_of(page({"torch": says(*findings)}))
    assert (row["found"], row["was first"]) == (found, right)


def test_each_profiler_has_a_row_and_counts():
    whole = page({"torch": says(Finding("sync", 0.3)), "nsys": says()})
    assert [(r["recorded by"], r["was first"]) for r in lines_of(whole)] == [("torch", "yes"), ("nsys", "no")]
    assert "Of 2 recordings of switches that gain 5.0 % or more, the right kind came first in 1, " in whole


@together(
    ("finding", "near"),
    [
        (Finding("sync", 0.34), True),
        (Finding("sync", 0.32), False),
        (Finding("sync", 0.66), True),
        (Finding("sync", 0.67), False),
        (Finding("sync", None), False),
        (Finding("sync", None, ceiling_share=0.9), True),
        (Finding("sync", None, ceiling_share=0.33), False),
        (Finding("idle-gap", 0.5), False),
    ],
)
def test_a_loss_is_compared_with_the_gain_and_a_ceiling_has_to_cover_it(finding, near):
    whole = page({"torch": says(Finding("jitter", 0.5), finding)})
    assert f"or its ceiling covered it, in {int(near)}." in whole


def test_a_switch_that_gains_little_is_not_counted():
    times = Times((20e6,), (19.5e6,))
    whole = text("A GPU", [Measured(CAUSE, times, True, {"torch": says(Finding("sync", 0.4))})], {})
    assert "came first in" not in whole


def test_without_a_gpu_nothing_is_judged():
    whole = page({"torch": says()}, judged=False)
    (row,) = lines_of(whole)
    assert (row["found"], row["was first"], row["gained"][:6]) == ("", "needs a GPU", "50.0 %")
    assert "came first in" not in whole


def test_what_was_left_out_is_said_with_its_reason():
    whole = page({"torch": says()}, left_out={"compile": "interrupted"})
    assert whole.endswith("\nNot measured:\n\n* compile: interrupted\n")
    assert "Not measured" not in page({"torch": says()})


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(1, 1e12)), min_size=1, max_size=7))
def test_what_was_gained_lies_between_the_least_and_the_most(pairs):
    slow, fast = zip(*pairs, strict=True)
    times = Times(slow, fast)
    assert times.least_gained <= times.gained <= times.most_gained < 1
