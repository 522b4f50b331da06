"""From an answer to a drawing: which numbers go where, in which units, and what is merged so that it can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.charts.bars import bars, boxes, histogram
from alltrace.charts.columns import Columns
from alltrace.charts.drawing import Axis, Drawing
from alltrace.charts.heatmaps import heatmap
from alltrace.charts.points import lines, roofline, scatter
from alltrace.recipes.base import Answer, Chart
from alltrace.trace.amounts import text
from alltrace.trace.errors import UsageError

_KINDS: dict[str, Callable[[Columns, Chart], Drawing]] = {
    "bars": bars,
    "stacked_bars": bars,
    "histogram": histogram,
    "box": boxes,
    "lines": lines,
    "scatter": scatter,
    "roofline": roofline,
    "heatmap": heatmap,
}


def draw(answer: Answer, chart: Chart | None = None, title: str = "") -> Drawing:
    """The picture of an answer, not yet drawn.

    Many rows stay readable: bars and boxes show the first 40 things of an answer, neighbouring ranks are merged past 1,024,
    more than 10 lines become a band, points that would cover each other are drawn once; the notes report it.
    `chart`: how to draw it; None for its own. `title`: the title if the chart has none. Raises `UsageError`: the
    answer has no picture, or lacks a column of it.
    """
    chart = chart or answer.chart
    if chart is None:
        raise UsageError("this answer has no chart; leave out the picture")
    columns = Columns(answer)
    where = chart.where[0] if chart.where else None
    missing = [c for c in (chart.x, *chart.y, chart.group, chart.detail, where) if c is not None and c not in columns]
    if missing:
        raise UsageError(f"the picture needs the column {text(missing[0])!r}, which this answer does not have")
    if chart.where is not None:
        columns = Columns(answer._replace(table=_rows(answer.table, *chart.where)))
    if not len(columns):
        return Drawing(chart.title or title, Axis(""), Axis(""))
    drawn = _KINDS[chart.kind](columns, chart)
    return replace(drawn, title=chart.title or title)


def _rows(table: Any, name: str, value: str | None) -> Any:
    column = table.column(name)
    return table.filter(pc.is_null(column) if value is None else pc.equal(column.cast(pa.string()), value))
