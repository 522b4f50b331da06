"""What each recorder records and answers lack: `python -m benchmarks.recorder_tables --write docs/recorders.md`.

One small simulated job is written as each recorder would have recorded it. The tables list the columns that some
recorders fill and others do not, the columns of answers that are empty with some of them, and the first finding through
each.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.recipes.registry import NVIDIA_RECIPES, RECIPES
from alltrace.run.importer import import_reports
from alltrace.synth import SCENARIOS
from alltrace.trace.errors import AlltraceError, UsageError
from alltrace.trace.schema import EVENT_TABLES
from benchmarks.accuracy_page import write_table
from benchmarks.recorder_files import RECORDERS, write_recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.recorder_files import Recorder

JOB = SCENARIOS["tensor-data"].override(
    ranks=4, hosts=2, tensor_parallel=2, layers=3, kernels_per_layer=4, kernel_ns=400_000, optimizer_kernels=2,
    buckets=2, steps=4, gpu_metrics_hz=500, operators=True, faults=["slow-rank:ranks=2:factor=1.3"],
)  # fmt: skip
"""The job: four ranks, of which one computes longer."""

QUESTIONS = tuple(name for name in RECIPES if name not in NVIDIA_RECIPES)
ALL = "all"
_BESIDE = {"loss_note", "launched_by"}
"""Columns that say more about an answer and are none."""


@dataclass(frozen=True)
class Recorded:
    """What is known through one recorder.

    Attributes:
        columns: The columns with values, by table.
        answers: The columns with values of each answer; none for an empty answer.
        notes: What each answer says.
        verdict: The first finding: kind, ranks and loss.
    """

    columns: dict[str, frozenset[str]] = field(default_factory=dict)
    answers: dict[str, frozenset[str]] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verdict: str = ""


def recorded(recorder: Recorder, folder: Path, questions: Iterable[str] = QUESTIONS) -> Recorded:
    """Write the job as a recorder would have, import it and ask questions."""
    reports, logs = write_recorded(JOB, recorder, folder)
    import_reports([str(reports)], folder / "run", jobs=1, **logs)
    run = alltrace.open(folder / "run")
    made = Recorded()
    for name in EVENT_TABLES:
        with suppress(AlltraceError):  # no report has the table
            made.columns[name] = _filled(run.table(name).arrow().read_all())
    for name in questions:
        with suppress(UsageError):  # an answer that needs an option
            answer = run.recipe(name)
            made.answers[name], made.notes[name] = _filled(answer.to_arrow()), tuple(answer.notes)
    first: dict[str, Any] = next(r for r in run.recipe("diagnose").to_pylist() if r["kind"] != "capture-fault")
    loss = first["loss_note"] if first["lost_share"] is None else f"{100 * first['lost_share']:.1f} %"
    ranks = first["ranks"]
    return Recorded(
        made.columns, made.answers, made.notes, f"{first['kind']}, rank {', '.join(map(str, ranks))}, {loss}"
    )


def _filled(table: Any) -> frozenset[str]:
    return frozenset(n for n in table.column_names if table.column(n).null_count < table.num_rows)


def column_rows(known: Mapping[str, Recorded]) -> list[list[str]]:
    """For each column that some recorders fill and others do not, which do; columns with equal cells are one row."""
    rows = []
    for table in EVENT_TABLES:
        of = {name: r.columns.get(table, frozenset()) for name, r in known.items()}
        alike: defaultdict[tuple[bool, ...], list[str]] = defaultdict(list)
        for column in sorted(frozenset().union(*of.values())):
            alike[tuple(column in of[name] for name in known)].append(column)
        rows += [
            [table, ALL if len(alike) == 1 else ", ".join(columns), *("yes" if has else "" for has in cells)]
            for cells, columns in alike.items()
            if not all(cells)
        ]
    return rows


def answer_rows(known: Mapping[str, Recorded]) -> list[list[str]]:
    """For each answer and what it lacks: the recorders, and the note that says so."""
    rows = []
    for question in sorted({q for r in known.values() for q in r.answers}):
        whole = frozenset().union(*(r.answers[question] for r in known.values())) - _BESIDE
        lacking: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for name, r in known.items():
            missing = whole - r.answers[question]
            if missing and question != "info":  # which counts the rows of tables
                lacking[ALL if missing == whole else ", ".join(sorted(missing)), _why(r.notes[question])].append(name)
        rows += [[f"`{question}`", columns, "; ".join(names), why] for (columns, why), names in lacking.items()]
    return rows


_TELLING = ("no payload", "have no size", "no rank has", "not known", "(a trace of")
"""What notes on a missing record have in them."""


def _why(notes: Sequence[str]) -> str:
    return "; ".join(n for n in notes if any(words in n for words in _TELLING))


def tables(known: Mapping[str, Recorded]) -> dict[str, list[str]]:
    """The tables of the page, Markdown, by name."""
    verdicts = [[name, r.verdict] for name, r in known.items()]
    return {
        "columns": _markdown(["table", "columns", *known], column_rows(known)),
        "answers": _markdown(
            ["answer", "columns without a value", "recorders", "what the answer says"], answer_rows(known)
        ),
        "verdicts": _markdown(["recorder", "first finding"], verdicts),
    }


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def main() -> None:
    """Print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorder_tables", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    page = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="alltrace-recorders-") as folder:
        known = {r.name: recorded(r, Path(folder) / str(n)) for n, r in enumerate(RECORDERS)}
    for name, lines in {"date": [f"Made on {date.today().isoformat()}."], **tables(known)}.items():
        if page is None:
            print("\n".join([f"{name}:", "", *lines, ""]))
        else:
            write_table(page, name, lines)


if __name__ == "__main__":
    main()
