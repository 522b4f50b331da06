"""The page on recorders says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recorder_files import RECORDERS
from benchmarks.recorder_tables import ALL, Recorded, answer_rows, column_rows, recorded

PAGE = Path(__file__).parents[2] / "docs" / "recorders.md"


def rows(name):
    """The rows of a table of the page, without its head."""
    text = (
        PAGE.read_text(encoding="utf-8").partition(f"<!-- table: {name} -->")[2].partition("<!-- end of table -->")[0]
    )
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("number", range(len(RECORDERS)), ids=[r.name for r in RECORDERS])
def test_the_page_has_what_a_recorder_fills_and_what_answers_lack(number, tmp_path):
    name = RECORDERS[number].name
    answers = rows("answers")
    found = recorded(RECORDERS[number], tmp_path, dict.fromkeys(row[0].strip("`") for row in answers))
    for table, columns, *cells in rows("columns"):
        filled = found.columns.get(table, frozenset())
        has = bool(filled) if columns == ALL else set(columns.split(", ")) <= filled
        assert (cells[number] == "yes") == has, (table, columns)
    for question, columns, recorders, said in answers:
        filled = found.answers[question.strip("`")]
        lacking = not filled if columns == ALL else not set(columns.split(", ")) & filled
        alike = [row for row in answers if row[:2] == [question, columns]]  # with another note
        assert lacking == any(name in row[2].split("; ") for row in alike), (question, columns)
        if name in recorders.split("; "):
            assert said in "; ".join(found.notes[question.strip("`")]), (question, columns)
    assert found.verdict == dict(rows("verdicts"))[name]


def test_columns_that_all_fill_are_left_out_and_equal_ones_share_a_row():
    one = Recorded({"kernels": frozenset({"start", "context", "grid"}), "osrt": frozenset({"start"})})
    other = Recorded({"kernels": frozenset({"start"})})
    assert column_rows({"a": one, "b": other}) == [["kernels", "context, grid", "yes", ""], ["osrt", "all", "yes", ""]]


def test_what_an_answer_lacks_stands_with_the_note_that_says_so():
    whole = Recorded(answers={"collectives": frozenset({"op", "bytes"})}, notes={"collectives": ()})
    note = "64 operations have no size: rocprofv3 does not record it"
    less = Recorded(answers={"collectives": frozenset({"op"})}, notes={"collectives": ("the skew is small", note)})
    none = Recorded(answers={"collectives": frozenset()}, notes={"collectives": ("no rank has `collectives`",)})
    assert answer_rows({"a": whole, "b": less, "c": none}) == [
        ["`collectives`", "bytes", "b", note],
        ["`collectives`", "all", "c", "no rank has `collectives`"],
    ]
