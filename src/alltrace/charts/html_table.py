"""An answer as an HTML table, for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from alltrace.trace.errors import printable

if TYPE_CHECKING:
    from alltrace.recipes.base import Answer

_MOST_ROWS = 50


def answer_html(answer: Answer) -> str:
    """The first rows of an answer, and its notes; names from a trace are escaped.

    Args:
        answer: The answer.
    """
    titles = [column.name if column.unit is None else f"{column.name} ({column.unit})" for column in answer.columns]
    shown = answer.table.slice(0, _MOST_ROWS).to_pylist()
    names = answer.table.column_names
    head = "".join(f'<th title="{_safe(c.doc)}">{_safe(t)}</th>' for t, c in zip(titles, answer.columns, strict=True))
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in names)}</tr>" for row in shown)
    left = answer.table.num_rows - len(shown)
    more = [f"{left} more rows"] if left else []
    below = "".join(f"<p>{_safe(note)}</p>" for note in (*more, *answer.notes))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _safe(text: str) -> str:
    return html.escape(printable(text))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.1f}"
    return _safe(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
