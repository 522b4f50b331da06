"""What many runs say of a cluster, as one HTML file without scripts: hosts to look at, slower jobs, lost GPU hours."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from alltrace import __version__
from alltrace.charts.words import cell
from alltrace.history.questions import COLUMNS, ask_history, slower_jobs
from alltrace.history.store import History
from alltrace.recipes.base import Column
from alltrace.report.words import heading
from alltrace.trace import columns as col
from alltrace.trace.errors import printable
from alltrace.trace.number_text import counted

_MOST_ROWS = 50
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_HOSTS = tuple(c for c in COLUMNS["host"] if c.name not in ("slow_percent", "last_slow_utc"))
_SLOWER = (
    *(c for c in COLUMNS["run"] if c.name in ("job", "ranks", "hosts", "step_ns", "change_percent")),
    col.text("since_utc", "when the first of the runs began that all have been slower from then on, in UTC"),
    col.whole("slower_runs", "these runs"),
    *(c for c in COLUMNS["run"] if c.name in ("run", "top_finding", "top_hosts", "revision")),
)


def history_page(history: History, name: str) -> str:
    """The page of a history. Names are text, and nothing is loaded. `name`: what the page calls it."""
    hosts = [row for row in ask_history(history, "host").table.to_pylist() if row["slow_runs"]]
    jobs = slower_jobs(history)
    answer = ask_history(history, "kind")
    kinds = answer.table.to_pylist()
    runs = ask_history(history, "run").notes
    sections = (
        ("hosts", "Hosts to look at", "No host is slow in any run on several hosts.", _HOSTS, hosts),
        ("jobs", "Jobs that became slower", "The last run of no job is slower than its earlier runs.", _SLOWER, jobs),
        ("kinds", "GPU hours lost", "No run has a finding.", COLUMNS["kind"], kinds),
    )
    style = files("alltrace.report").joinpath("page.css").read_text(encoding="utf-8")
    notes = "".join(f"<li>{_text(note)}</li>" for note in dict.fromkeys([*runs, *answer.notes]))
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, *_ in sections)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(name)} · alltrace</title>\n<style>{style}</style>\n</head>\n<body>",
            f'<header><p class="brand">alltrace</p><h1>{_text(name)}</h1>',
            f'<p class="verdict">{_text(_sentence(history, hosts, jobs, kinds))}</p></header>',
            f'<nav aria-label="Sections"><ol>{links}</ol></nav>\n<main>',
            *(_section(*section) for section in sections),
            f'<section><h2>Notes</h2><ul class="notes">{notes}</ul></section>' if notes else "",
            (
                f"</main>\n<footer><p>Written by alltrace {_text(__version__)}. Times are in"
                " UTC.</p></footer>\n</body>\n</html>\n"
            ),
        ]
    )


def _sentence(
    history: History,
    hosts: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
    kinds: Sequence[Mapping[str, Any]],
) -> str:
    """What there is to do, from the first row of each table."""
    parts = []
    if hosts:
        first = hosts[0]
        since = f", since {first['first_slow_utc']}" if first["first_slow_utc"] else ""
        parts.append(
            f"Look at host {first['host']}: slow in {first['slow_runs']} of {counted(first['runs'], 'run')}{since}."
        )
    if jobs:
        first = jobs[0]
        job = "The job without a name" if first["job"] is None else first["job"]
        size = f"{counted(first['ranks'], 'rank')} and {counted(first['hosts'], 'host')}"
        parts.append(f"{job} on {size} takes {first['change_percent']:.0f} % more time for a step than before.")
    lost = [row for row in kinds if row["lost_gpu_hours"]]
    if lost:
        whole = sum(row["lost_gpu_hours"] for row in lost)
        parts.append(
            f"{whole:,.3g} GPU hours were lost in the recorded time, {lost[0]['lost_gpu_hours']:,.3g} of them to"
            f" {lost[0]['kind']}."
        )
    return (
        " ".join(parts)
        or f"Nothing to do: {counted(len(history.kept()), 'run')} without a slow host, a slower job or a known loss."
    )


def _section(key: str, title: str, nothing: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    body = _table(columns, rows) if rows else f'<p class="nothing">{nothing}</p>'
    return f'<section id="{key}"><h2>{title}</h2>\n{body}</section>'


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [c for c in columns if any(row[c.name] is not None for row in rows)]
    sides = [' class="n"' if all(isinstance(r[c.name], int | float | None) for r in rows) else "" for c in shown]
    head = "".join(
        f'<th scope="col"{s} title="{_text(c.doc)}">{_text(heading(c))}</th>' for c, s in zip(shown, sides, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, shown, sides)}</tr>" for row in rows[:_MOST_ROWS])
    more = f'<p class="more">{len(rows) - _MOST_ROWS:,} more rows</p>' if len(rows) > _MOST_ROWS else ""
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    )


def _cells(row: Mapping[str, Any], columns: Iterable[Column], sides: Iterable[str]) -> str:
    return "".join(f"<td{s}>{_text(cell(row[c.name], c))}</td>" for c, s in zip(columns, sides, strict=True))


def _text(text: str) -> str:
    return html.escape(printable(text))
