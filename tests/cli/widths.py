"""Which columns are on a terminal of some width: `python -m tests.cli.widths` asks all recipes and reports of all
recorded runs."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alltrace.charts.cells import read_name
from alltrace.charts.text_table import TableForm, to_text
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import REPORTS, names
from alltrace.recipes.registry import find as find_recipe
from alltrace.run.members import gpu_names
from alltrace.run.store import Run
from alltrace.trace.columns import by_importance
from alltrace.trace.errors import AlltraceError

WIDTHS = (80, 100, 120, 200)
QUESTIONS = (*names(), *(f"stats:{name}" for name in REPORTS))


def heads(text: str) -> list[str]:
    """The names of the columns of a text table, with their units, joined where they are on several lines."""
    lines = text.splitlines()
    rule = next(n for n, line in enumerate(lines) if line.startswith("-") and not set(line) - {"-", " "})
    spans = [match.span() for match in re.finditer("-+", lines[rule])]
    return ["".join(line[a:b].strip() for line in lines[:rule]) for a, b in spans]


def lacking(run: Run, question: str, widths: Sequence[int] = WIDTHS) -> Iterator[tuple[int, list[str] | None]]:
    """Of an answer with rows, for each width: the columns that say what a row is and what the answer is, and are not
    shown.

    None in their place: the table is wider than the terminal.
    """
    recipe = find_recipe(question)
    try:
        answer = ask(run, recipe, jobs=1)
    except AlltraceError:
        return
    if not answer.table.num_rows:
        return
    columns = by_importance(answer.columns, recipe.important)
    always = [c.name for c in columns if c.importance == 1]
    assert 1 <= len(always) <= 3, question
    for width in widths:
        form = TableForm(width, units=True, gpus=gpu_names(run.ranks))
        text = to_text(
            answer._replace(columns=columns, notes=(), extra={}, verdict=None), answer.table.slice(0, 50), form=form
        )
        shown = heads(text)
        missing = [name for name in always if not any(head.startswith(_read(answer.table, name)) for head in shown)]
        yield width, None if max(map(len, text.splitlines())) > width else missing


def _read(table: Any, name: str) -> str:
    return read_name(table.schema.field(name))


def main() -> int:
    """Print what is not shown, and how many tables show all that they must."""
    from tests.recorded.making import RUNS

    tables = right = 0
    with tempfile.TemporaryDirectory() as copies:
        for place in sorted(path for path in RUNS.iterdir() if path.is_dir()):
            run = Run(shutil.copytree(place / "run", Path(copies) / place.name))
            for question in QUESTIONS:
                for width, missing in lacking(run, question):
                    tables += 1
                    right += missing == []
                    if missing != []:
                        print(f"{place.name}, {question}, {width}: {'too wide' if missing is None else missing}")  # noqa: T201
    print(f"{right} of {tables} tables show what a row is about and the answer")  # noqa: T201
    return int(right != tables)


if __name__ == "__main__":
    sys.exit(main())
