"""Questions to a history: its runs over time, hosts that are slow in many, and findings that come back."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import PurePath
from typing import Any

from alltrace.history.run_rows import CLASSES
from alltrace.history.spread import LEAST_VALUES, usual
from alltrace.history.store import History
from alltrace.recipes.base import Answer, Chart
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError
from alltrace.trace.number_text import counted

QUESTIONS = ("run", "host", "finding", "kind")
ALIKE = ("job", "ranks", "hosts")
"""Runs are compared that are equal in these."""

_NS_PER_HOUR = 3_600_000_000_000
LEAST_CHANGE = 0.01
"""Step times that differ by less than this part of the median are the same."""

_JOB = col.text("job", "name of the job; null if the run has none")
COLUMNS = {
    "run": (
        col.whole("number", "number of the run among those of its job on as many ranks and hosts, by time"),
        col.text("run", "path of the run directory, without the part common to all"),
        _JOB,
        col.ns("step_ns", "median duration of its steps on the host, over all ranks, without warm-up and checkpoints"),
        col.percent(
            "change_percent", "step_ns against the median of the job's earlier runs on as many ranks and hosts"
        ),
        col.text("verdict", "slower or faster than the spread of those runs; else usual; null with too few runs"),
        col.text("start_utc", "when it began, in UTC, to the minute; null if no report states it"),
        col.text("top_finding", "kind of the first finding"),
        col.texts("top_hosts", "hosts of that finding, if at most half of all hosts"),
        col.text("revision", "version of the program, as set at import"),
        col.texts("tags", "words set at import"),
        col.whole("ranks", "number of its ranks"),
        col.whole("hosts", "number of its hosts"),
        col.whole("steps", "number of steps in the median step_ns, over all ranks"),
        *(col.percent(f"{c}_percent", f"{c.replace('_', ' ')} of all devices' time") for c in CLASSES),
        col.percent("lost_percent", "cost of all findings together, as a share of the judged time; null if unknown"),
    ),
    "host": (
        col.text("host", "host"),
        col.whole("runs", "runs on several hosts that it took part in"),
        col.whole("slow_runs", "runs with a finding about it and not about most hosts"),
        col.percent("slow_percent", "slow_runs as a share of runs"),
        col.whole("jobs", "jobs of these runs"),
        col.whole("slow_jobs", "jobs of the slow runs"),
        col.text("kind", "the most frequent kind of those findings"),
        col.percent("lost_percent", "median cost of these findings in a slow run, as a share of the judged time"),
        col.percent(
            "blame_percent", "share of all waits for which its ranks would have to change: the median over its runs"
        ),
        col.text("first_slow_utc", "when the first of the slow runs began, in UTC"),
        col.text("last_slow_utc", "when the last of them did"),
        col.text("last_slow_run", "path of that run, without the part common to all"),
    ),
    "finding": (
        col.text("kind", "kind of the finding"),
        _JOB,
        col.whole("runs", "runs of the job that have it"),
        col.percent("runs_percent", "runs as a share of all runs of the job"),
        col.percent("lost_percent", "median cost in these runs, as a share of the judged time; null if unknown"),
        col.percent("most_lost_percent", "largest cost in one run"),
        col.texts("hosts", "up to three hosts that it concerns most often"),
        col.text("where", "the kernel, range, communicator or call that it names most often"),
        col.text("first_utc", "when the first of these runs began, in UTC"),
        col.text("last_utc", "when the last did"),
    ),
    "kind": (
        col.text("kind", "kind of the finding"),
        col.real(
            "lost_gpu_hours", "what these findings cost in the recorded time, a GPU for each rank; null if unknown", "h"
        ),
        col.percent("lost_percent", "lost_gpu_hours as a share of the GPU hours of all runs"),
        col.whole("runs", "runs that have it"),
        col.texts("jobs", "jobs of these runs, those that lose most first"),
    ),
}
_CHARTS = {
    "run": Chart("lines", "number", ("step_ns",), "job", title="Median step of each run"),
    "host": Chart("bars", "host", ("slow_percent",), title="Runs in which a host is slow"),
    "finding": Chart("bars", "kind", ("runs",), "job", title="Runs that have a finding"),
    "kind": Chart("bars", "kind", ("lost_gpu_hours",), title="GPU hours lost"),
}
BREAKDOWN_CHART = Chart(
    "stacked_bars", "run", tuple(f"{c}_percent" for c in CLASSES), title="Where the time of each run went"
)
"""The picture of the runs' time by class, of the answer by run."""


def ask_history(history: History, by: str = "run", *, job: str | None = None, tag: str | None = None) -> Answer:
    """The answer to a question."""
    # `by`: what a row is, one of `QUESTIONS`. `job`: only runs of this job; None for all. `tag`: only runs with this
    # tag; None for all. Raises `UsageError`: no run has the job or the tag.
    chosen = _chosen(_runs(history), job, tag)
    ids = {r["run_id"] for r in chosen}
    if by == "run":
        rows = _by_run(chosen, {f["run_id"]: f for f in history.ask("SELECT * FROM findings WHERE place = 0")})
    elif by == "host":
        rows = _by_host(
            chosen, [h for h in history.ask("SELECT * FROM hosts WHERE slow IS NOT NULL") if h["run_id"] in ids]
        )
    else:
        findings = [f for f in history.ask("SELECT * FROM findings ORDER BY place") if f["run_id"] in ids]
        rows = _by_finding(chosen, findings) if by == "finding" else _by_kind(chosen, findings)
    shown = [{c.name: row.get(c.name) for c in COLUMNS[by]} for row in rows]
    return Answer.of(shown, COLUMNS[by], tuple(_notes(by, chosen, rows)), chart=chart_of(by))


def choices(history: History) -> tuple[list[str], list[str]]:
    """The jobs and the tags that runs have, each once."""
    runs = _runs(history)
    return job_names(runs), sorted({t for r in runs for t in r["tags"]})


def place_of(history: History, run_id: str, *, job: str | None = None, tag: str | None = None) -> int | None:
    """The row of a run in the answer by run; None if it is missing. The other arguments are those of `ask_history`."""
    return next((n for n, run in enumerate(_chosen(_runs(history), job, tag)) if run["run_id"] == run_id), None)


def _runs(history: History) -> list[dict[str, Any]]:
    return history.ask("SELECT * FROM runs ORDER BY start_utc_ns NULLS LAST, path")


def chart_of(by: str) -> Chart:
    return _CHARTS[by]


def job_names(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({r["job"] for r in runs if r["job"] is not None})


def _chosen(runs: list[dict[str, Any]], job: str | None, tag: str | None) -> list[dict[str, Any]]:
    if job is not None and job not in job_names(runs):
        raise UsageError.unknown("job in the history", job, job_names(runs))
    tags = {t for r in runs for t in r["tags"]}
    if tag is not None and tag not in tags:
        raise UsageError.unknown("tag in the history", tag, tags)
    chosen = [r for r in runs if (job is None or r["job"] == job) and (tag is None or tag in r["tags"])]
    if runs and not chosen:
        raise UsageError(f"no run of the job {job!r} has the tag {tag!r}; leave out one of them")
    return chosen


def _by_run(runs: Sequence[dict[str, Any]], top: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown = _short_paths([r["path"] for r in runs])
    earlier: dict[tuple[Any, ...], list[int]] = {}
    number: Counter[tuple[Any, ...]] = Counter()
    rows = []
    for run, path in zip(runs, shown, strict=True):
        like, step = tuple(run[name] for name in ALIKE), run["step_ns"]
        number[like] += 1
        before = earlier.setdefault(like, [])
        first = top.get(run["run_id"], {})
        rows.append(
            {
                **run,
                "number": number[like],
                "run": path,
                "start_utc": _utc(run["start_utc_ns"]),
                "change_percent": 100 * (step / statistics.median(before) - 1) if before and step is not None else None,
                "verdict": _verdict(step, before),
                "top_finding": first.get("kind"),
                "top_hosts": first.get("hosts") or None,
            }
        )
        if step is not None:
            before.append(step)
    return rows


def _verdict(step: int | None, earlier: Sequence[int]) -> str | None:
    expected = usual(earlier, LEAST_CHANGE * statistics.median(earlier)) if earlier else None
    if step is None or expected is None:
        return None
    return "slower" if step > expected.high else "faster" if step < expected.low else "usual"


def _by_host(runs: Sequence[Mapping[str, Any]], hosts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hosts that are slow most often first."""
    run_of = {r["run_id"]: r for r in runs}
    place = dict(zip(run_of, _short_paths([r["path"] for r in runs]), strict=True))
    when = {r["run_id"]: n for n, r in enumerate(runs) if r["start_utc_ns"] is not None}
    rows = []
    for host, own in _grouped(hosts, "host").items():
        slow = [h for h in own if h["slow"]]
        dated = sorted((h["run_id"] for h in slow if h["run_id"] in when), key=when.__getitem__)
        first, last = (run_of[dated[0]], run_of[dated[-1]]) if dated else ({}, {})
        rows.append(
            {
                "host": host,
                "runs": len(own),
                "slow_runs": len(slow),
                "slow_percent": 100 * len(slow) / len(own),
                "jobs": len({run_of[h["run_id"]]["job"] for h in own}),
                "slow_jobs": len({run_of[h["run_id"]]["job"] for h in slow}),
                "kind": _most(h["kind"] for h in slow),
                "lost_percent": _median(h["lost_percent"] for h in slow),
                "blame_percent": _median(h["blame_percent"] for h in own),
                "first_slow_utc": _utc(first.get("start_utc_ns")),
                "last_slow_utc": _utc(last.get("start_utc_ns")),
                "last_slow_run": place.get(last.get("run_id", "")),
            }
        )
    return sorted(rows, key=lambda r: (-r["slow_percent"], -r["slow_runs"], -(r["blame_percent"] or 0), r["host"]))


def _by_finding(runs: Sequence[Mapping[str, Any]], findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings that most runs of their job have first."""
    run_of = {r["run_id"]: r for r in runs}
    of_job = Counter(r["job"] for r in runs)
    rows = []
    for (kind, job), own in _grouped(
        ({**f, "key": (f["kind"], run_of[f["run_id"]]["job"])} for f in findings), "key"
    ).items():
        ids = {f["run_id"] for f in own}
        starts = [s for i in ids if (s := run_of[i]["start_utc_ns"]) is not None]
        lost: dict[str, float] = {}
        for finding in own:
            if finding["lost_percent"] is not None:
                lost[finding["run_id"]] = lost.get(finding["run_id"], 0.0) + finding["lost_percent"]
        hosts = Counter(h for f in own for h in f["hosts"])
        rows.append(
            {
                "kind": kind,
                "job": job,
                "runs": len(ids),
                "runs_percent": 100 * len(ids) / of_job[job],
                "lost_percent": _median(lost.values()),
                "most_lost_percent": max(lost.values(), default=None),
                "hosts": [h for h, _ in sorted(hosts.items(), key=lambda c: (-c[1], c[0]))[:3]] or None,
                "where": _most(f["where"] for f in own if f["where"]),
                "first_utc": _utc(min(starts, default=None)),
                "last_utc": _utc(max(starts, default=None)),
            }
        )
    return sorted(rows, key=lambda r: (-r["runs_percent"], -(r["lost_percent"] or 0), r["kind"], r["job"] or ""))


def _by_kind(runs: Sequence[Mapping[str, Any]], findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kinds that lose most GPU hours first."""
    run_of = {r["run_id"]: r for r in runs}
    whole = sum(r["span_ns"] * r["ranks"] for r in runs)
    rows = []
    for kind, own in _grouped(findings, "kind").items():
        of_job: Counter[str | None] = Counter()
        for finding in own:
            run = run_of[finding["run_id"]]
            of_job[run["job"]] += (finding["lost_ns"] or 0) * run["ranks"]
        lost = of_job.total() if any(f["lost_ns"] is not None for f in own) else None
        rows.append(
            {
                "kind": kind,
                "lost_gpu_hours": None if lost is None else lost / _NS_PER_HOUR,
                "lost_percent": None if lost is None or not whole else 100 * lost / whole,
                "runs": len({f["run_id"] for f in own}),
                "jobs": (
                    [job for job, _ in sorted(of_job.items(), key=lambda c: (-c[1], c[0] or "")) if job is not None]
                    or None
                ),
            }
        )
    return sorted(rows, key=lambda r: (-(r["lost_gpu_hours"] or 0), r["kind"]))


def slower_jobs(history: History) -> list[dict[str, Any]]:
    """The jobs, on as many ranks and hosts, whose last run is slower than earlier ones: its row, and `since_utc`."""
    # `since_utc`: when the first of the runs began that all have been slower from then on.
    of_job: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in ask_history(history, "run").table.to_pylist():
        of_job.setdefault(tuple(row[name] for name in ALIKE), []).append(row)
    rows = []
    for own in of_job.values():
        known = [row for row in own if row["verdict"] is not None]
        slower = list(takewhile(lambda row: row["verdict"] == "slower", reversed(known)))
        if slower:
            rows.append({**slower[0], "since_utc": slower[-1]["start_utc"], "slower_runs": len(slower)})
    return sorted(rows, key=lambda row: -row["change_percent"])


def _notes(by: str, runs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    if not runs:
        return ["the history has no run"]
    jobs, nameless = job_names(runs), sum(r["job"] is None for r in runs)
    if len(jobs) + bool(nameless) > 1 and by == "run":
        notes.append(
            f"runs of {counted(len(jobs) + bool(nameless), 'job')}, each compared within the job; --job NAME"
            " selects one"
        )
    sizes = {tuple(r[name] for name in ALIKE) for r in runs}
    if by == "run" and len(sizes) > len({job for job, *_ in sizes}):
        notes.append("runs of a job on other numbers of ranks or hosts are not compared with each other")
    if nameless:
        notes.append(
            f"{counted(nameless, 'run')} without a job name, treated as one job; `import --job NAME` sets the name"
        )
    undated = sum(r["start_utc_ns"] is None for r in runs)
    if undated:
        words = "does not contain its start time" if undated == 1 else "do not contain their start time"
        notes.append(f"{counted(undated, 'run')} {words}; such runs come last, ordered by path")
    if by == "run" and not any(r["verdict"] for r in rows):
        notes.append(
            f"no run has {LEAST_VALUES} earlier runs of its job and size with known step times, so none is judged"
        )
    if by == "host" and not rows:
        notes.append("no run is on several hosts, so none is slower than others")
    if by in ("finding", "kind") and not rows:
        notes.append("no run has a finding")
    codes = {r["code"] for r in runs}
    if len(codes) > 1:
        notes.append(
            f"{counted(len(codes), 'version')} of alltrace read these runs, so findings may differ between versions"
        )
    return notes


def _short_paths(paths: Sequence[str]) -> list[str]:
    if not paths:
        return []
    common = os.path.commonpath([PurePath(p).parent for p in paths])
    return [os.path.relpath(p, common) for p in paths]


def _grouped(rows: Iterable[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _most(texts: Iterable[str]) -> str | None:
    """The most frequent text, the first of equal ones by the alphabet."""
    counts = Counter(texts)
    return min(counts, key=lambda t: (-counts[t], t), default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _utc(ns: int | None) -> str | None:
    return None if ns is None else f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M}"
