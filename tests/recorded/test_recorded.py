"""Answers about the recorded runs are as recorded; `python -m tests.recorded record` records a change."""

import tempfile
from pathlib import Path

import pytest

from alltrace.api import OpenRun
from tests.recorded.asking import answer, default_questions, opened, option_questions, shape
from tests.recorded.making import MOST_BYTES, MOST_RUN_BYTES, RUNS, make, size_of
from tests.recorded.outputs import OUTPUT_RUNS
from tests.recorded.recording import (
    ANSWERS,
    asked_of,
    differences,
    in_fifth,
    output_differences,
    read_answers,
    text_differences,
)
from tests.recorded.worlds import CHEAP, WORLDS

every_run = pytest.mark.parametrize("name", WORLDS)
runs_with_outputs = pytest.mark.parametrize("name", OUTPUT_RUNS)


@pytest.fixture
def run(made_once, name):
    """A copy of the run, whose derived data all tests of a session share."""
    return OpenRun(made_once(f"recorded-{name}", lambda folder: opened(name, folder)) / name)


def same(lines):
    """Fails with the differences."""
    if lines:
        pytest.fail("answers are not as recorded:\n" + "\n".join(lines), pytrace=False)


@every_run
def test_a_fifth_of_the_answers_is_as_recorded(name, run):
    same(asked_of(name, run, lambda question: question.drawn(name) == 0))


@pytest.mark.slow
@every_run
def test_the_other_answers_are_as_recorded(name, run):
    same(asked_of(name, run, lambda question: question.drawn(name) != 0))


@runs_with_outputs
def test_a_fifth_of_the_outputs_is_as_recorded(name, run, tmp_path):
    same(output_differences(name, run, tmp_path, lambda output: in_fifth(name, output)))


@pytest.mark.slow
@runs_with_outputs
def test_the_other_outputs_are_as_recorded(name, run, tmp_path):
    same(output_differences(name, run, tmp_path, lambda output: not in_fifth(name, output)))


@pytest.mark.parametrize(
    "name", [CHEAP[0], *(pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly]) for name in CHEAP[1:])]
)
def test_a_run_that_is_made_anew_gives_the_recorded_answers(name, tmp_path):
    """As CSV, a run has what its reader makes of each column, also where no recipe shows it."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "outputs").mkdir()
    made = OpenRun(make(name, tmp_path / "made", tmp_path / "reports"))
    lines = asked_of(name, made, lambda question: question.drawn(name) == 1)
    if name in OUTPUT_RUNS:
        lines += output_differences(name, made, tmp_path / "outputs", lambda output: output == "export csv")
    same(lines)


def test_every_recipe_and_option_is_recorded():
    recorded = {name: read_answers(name) for name in WORLDS}
    lacking = [f"{name}: {q}" for name, answers in recorded.items() for q in default_questions() if q not in answers]
    known = {shape(question) for answers in recorded.values() for question in answers}
    with tempfile.TemporaryDirectory() as folder:
        questions = option_questions(opened("mpi", Path(folder)))
        lacking += [str(question) for question in questions if shape(question) not in known]
    assert not lacking, f"python -m tests.recorded record: {lacking}"


def test_what_is_recorded_is_small():
    assert {name for name in WORLDS if size_of(RUNS / name) > MOST_RUN_BYTES} == set()
    assert size_of(RUNS) <= MOST_BYTES
    assert size_of(ANSWERS) <= MOST_BYTES


def test_a_difference_names_row_and_column():
    row = {"rank": 2, "wait_ns": 5, "share": 0.5}
    before = {"columns": [{"name": "rank", "unit": None}], "rows": [row], "notes": []}
    after = {**before, "rows": [{**row, "wait_ns": 7, "share": 0.5 + 1e-13}], "notes": ["a note"]}
    assert differences("ddp: overlap", before, after) == [
        "ddp: overlap",
        "    rows[0] (rank 2) wait_ns: 5 -> 7",
        "    notes: 0 -> 1 of them",
        '    + "a note"',
    ]
    assert differences("x", before, {**before, "rows": [{**row, "share": 0.5 + 1e-13}]}) == []
    assert differences("x", before, {**before, "rows": [{**row, "wait_ns": 5.0}]}) != []
    rows = [{"rank": rank, "wait_ns": rank} for rank in range(5)]
    assert differences("x", {"rows": rows[:2]}, {"rows": [{"rank": 1, "wait_ns": 9}, *rows[2:4]]}) == [
        "x",
        "    rows: 2 -> 3 of them",
        '    - {"rank": 0, "wait_ns": 0}',
        "    rows[1] (rank 1) wait_ns: 1 -> 9",
        '    + {"rank": 2, "wait_ns": 2}',
        '    + {"rank": 3, "wait_ns": 3}',
    ]
    assert differences("x", before, {"refused": "no such table"})[-1] == '    refused: null -> "no such table"'
    assert text_differences("ddp: csv", "a\nb", "a\nc") == [
        "ddp: csv",
        *(f"    {w}" for w in ("--- before", "+++ after", "@@ -2 +2 @@", "-b", "+c")),
    ]


def test_a_wrong_number_is_seen(made_once, monkeypatch):
    run = OpenRun(made_once("recorded-ddp", lambda folder: opened("ddp", folder)) / "ddp")
    question = next(q for q in default_questions() if q.recipe == "breakdown")
    found = answer(run, question)
    assert differences("breakdown", read_answers("ddp")[question], found) == []
    found["rows"][1]["compute_ns"] += 1
    assert differences("breakdown", read_answers("ddp")[question], found)[1].startswith(
        "    rows[1] (rank 1) compute_ns: "
    )
