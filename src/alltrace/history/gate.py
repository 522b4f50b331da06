"""Judges a run by the spread of earlier runs of its job."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from alltrace.history.questions import LEAST_CHANGE, job_names
from alltrace.history.run_rows import rows_of, run_id
from alltrace.history.spread import LEAST_VALUES, SPREADS, usual
from alltrace.history.store import History
from alltrace.recipes.base import Answer
from alltrace.recipes.questions.check import judgement
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError, UsageError, printable
from alltrace.trace.number_text import counted


class Judged(NamedTuple):
    """A judged column of a run: its smallest tolerance above the median, relative and in its own unit."""

    column: str
    least_part: float = 0.0
    least: float = 0.0


JUDGED = (
    Judged("step_ns", least_part=LEAST_CHANGE),
    Judged("exposed_communication_percent", least=1.0),
    Judged("exposed_copy_percent", least=1.0),
    Judged("idle_percent", least=1.0),
    Judged("lost_percent", least=1.0),
)
"""What is judged: more of each is worse."""


def judge_against(
    run: Run, history: History, *, job: str | None = None, jobs: int | None = None, required: bool = False
) -> Answer:
    """Whether `run` is no worse than the spread of its job's runs, on as many ranks and hosts, that began before it."""
    # `run`: the run; if the history has it, it is not compared with itself. `job`: the job that it is compared with;
    # None for its own. `required`: whether a limit that too few runs have cannot be judged, and is not skipped with a
    # note. Returns a row, like those of `check`, for each number that the run or an earlier one has. Raises
    # `UsageError`: the history has no run of the given job. Raises `AlltraceError`: neither the run nor an earlier one
    # has any of them. Raises `DamageError`: a file of the run is damaged.
    known = job_names(history.ask("SELECT job FROM runs"))
    if job is not None and job not in known:
        raise UsageError.unknown("job in the history", job, known)
    own = rows_of(run, jobs=jobs).run
    name = own["job"] if job is None else job
    earlier = history.ask(
        "SELECT * FROM runs WHERE job IS NOT DISTINCT FROM $job AND ranks = $ranks AND hosts = $hosts AND run_id <>"
        " $own AND ($start IS NULL OR start_utc_ns < $start) ORDER BY start_utc_ns",
        {
            "job": name,
            "ranks": own["ranks"],
            "hosts": own["hosts"],
            "own": run_id(run.manifest),
            "start": own["start_utc_ns"],
        },
    )
    of = "runs without the name of a job" if name is None else f"runs of {printable(name)}"
    of += f" on {counted(own['ranks'], 'rank')} and {counted(own['hosts'], 'host')}"
    if len(earlier) < LEAST_VALUES:
        return _judgement([_too_few(len(earlier), of)], [], required=required)
    rows = [_judged(judged, own[judged.column], [e[judged.column] for e in earlier], of) for judged in JUDGED]
    limits = [row for row in rows if row is not None]
    if not limits:
        raise AlltraceError(
            f"{run.path}: neither this run nor any of the earlier {of} has steps or device work to compare"
        )
    notes = (
        []
        if own["start_utc_ns"] is not None
        else ["the run does not contain its start time, so all others count as earlier"]
    )
    return _judgement(limits, notes, required=required)


def _judgement(limits: Sequence[dict[str, Any]], notes: list[str], *, required: bool) -> Answer:
    """The answer; a limit that too few earlier runs have is skipped, unless it is `required`."""
    if not required:
        for row in limits:
            if row["verdict"] == "unknown" and row["value"] is not None:
                row["verdict"] = "skipped"
                notes.append(f"{row['name']}: skipped, for {row['why']}; --require-history makes this a failure")
    return judgement(limits, notes)


def _too_few(count: int, of: str) -> dict[str, Any]:
    return {
        "name": "earlier runs",
        "check": f"{LEAST_VALUES} or more earlier {of}",
        "verdict": "unknown",
        "value": float(count),
        "bound": float(LEAST_VALUES),
        "why": f"the history has {counted(count, 'such run')}, and the comparison needs {LEAST_VALUES} or more",
    }


def _judged(judged: Judged, value: float | None, others: list[Any], of: str) -> dict[str, Any] | None:
    """The row of one number; None if no run has it."""
    column = judged.column
    known = [v for v in others if v is not None]
    if value is None and not known:
        return None
    row = {
        "name": column,
        "check": f"{column} <= median + {SPREADS:g} spreads of {len(known)} earlier {of}",
        "verdict": "unknown",
    }
    if value is None:
        return {**row, "value": None, "why": f"the run has no {column}, and earlier {of} have"}
    expected = usual(known, max(judged.least, judged.least_part * statistics.median(known)) if known else 0.0)
    if expected is None:
        why = (
            f"{counted(len(known), 'earlier run')} with {column} among the {of}; the comparison needs {LEAST_VALUES} or"
            " more"
        )
        return {**row, "value": value, "why": why}
    within = value <= expected.high
    return {
        **row,
        "verdict": "held" if within else "breached",
        "value": value,
        "bound": expected.high,
        "baseline": expected.median,
    }
