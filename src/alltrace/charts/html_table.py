"""An answer as an HTML table, for notebooks."""

from __future__ import annotations

import html

from alltrace.charts.timeline_links import PAGE, places_of
from alltrace.charts.words import cell, label
from alltrace.recipes.base import Answer
from alltrace.trace.errors import printable

_MOST_ROWS = 50


def answer_html(answer: Answer, zero_ns: int = 0) -> str:
    """The first rows of an answer, with times that link to the timeline of the page, and its notes; names from a trace are escaped.

    `zero_ns`: what its times are at the run's start.
    """
    titles = [label(column) for column in answer.columns]
    shown = answer.table.slice(0, _MOST_ROWS).to_pylist()
    head = "".join(f'<th title="{_safe(c.doc)}">{_safe(t)}</th>' for t, c in zip(titles, answer.columns, strict=True))
    places = places_of(answer.columns, zero_ns)
    body = ""
    for row in shown:
        fragment = None if places is None else places.fragment(row)
        cells = {column.name: _safe(cell(row[column.name], column)) for column in answer.columns}
        if places is not None and fragment is not None:
            cells[places.start] = f'<a href="{_safe(PAGE + fragment)}" target="_blank" rel="noreferrer">{cells[places.start]}</a>'
        body += f"<tr>{''.join(f'<td>{text}</td>' for text in cells.values())}</tr>"
    left = answer.table.num_rows - len(shown)
    more = [f"{left} more rows"] if left else []
    if places is not None and shown:
        more.append("Times lead to the timeline of the page: alltrace ui RUN --port 8765")
    below = "".join(f"<p>{_safe(note)}</p>" for note in (*more, *answer.notes))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _safe(text: str) -> str:
    return html.escape(printable(text))
