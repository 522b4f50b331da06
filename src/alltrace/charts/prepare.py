"""From an answer to a drawing: which numbers go where, in which units, and what is merged so that it can be read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.charts.bars import bars, boxes, histogram
from alltrace.charts.columns import Columns
from alltrace.charts.drawing import Axis, Drawing, Heat
from alltrace.charts.points import lines, roofline, scatter
from alltrace.charts.words import label, title
from alltrace.recipes.base import Answer, Chart
from alltrace.trace.amounts import text
from alltrace.trace.errors import UsageError

MOST_ROWS = 1024
MOST_CELLS = 1000


def heatmap(columns: Columns, chart: Chart) -> Drawing:
    """The first of `y` as colours, time across, a row for each value of `group`."""
    (x,), x_unit = columns.scaled((chart.x,))
    (y,), unit = columns.scaled(chart.y[:1])
    group = chart.group or chart.x
    row, rows = columns.coded(group)
    finite = np.isfinite(x)
    if not finite.any():
        return Drawing("", Axis(""), Axis(""))
    x, y, row = x[finite], y[finite], row[finite]
    times, at = np.unique(x, return_inverse=True)
    notes = []
    down, across = (-(-n // most) for n, most in ((len(rows), MOST_ROWS), (len(times), MOST_CELLS)))
    if down > 1:
        notes.append(f"a row is the mean of {down} neighbours")
    if across > 1:
        notes.append(f"a cell is the mean of {across} times")
    shape = -(-len(rows) // down), -(-len(times) // across)
    there = np.isfinite(y)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (row[there] // down, at[there] // across), y[there])
    np.add.at(counts, (row[there] // down, at[there] // across), 1)
    values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    starts = times[::across]
    last = times[-1] + (times[-1] - times[-2] if len(times) > 1 else 1.0)
    share = unit == "%"
    low = 0.0 if share else float(np.nanmin(values, initial=0.0))
    high = 100.0 if share else float(np.nanmax(values, initial=low))
    word = label(columns.column(group))
    heat = Heat(
        tuple(float(e) for e in [*starts.tolist(), last]),
        tuple(rows[i] for i in range(0, len(rows), down)),
        tuple(tuple(r) for r in values.tolist()),
        title(columns.column(chart.y[0]), unit),
        low,
        high if high > low else low + 1,
    )
    return Drawing("", Axis(columns.title((chart.x,), x_unit), unit=x_unit), Axis(word), heat=heat, notes=tuple(notes))


_KINDS: dict[str, Callable[[Columns, Chart], Drawing]] = {
    "bars": bars, "stacked_bars": bars, "histogram": histogram, "box": boxes, "lines": lines, "scatter": scatter,
    "roofline": roofline, "heatmap": heatmap,
}  # fmt: skip


def draw(answer: Answer, chart: Chart | None = None, title: str = "") -> Drawing:
    """The picture of an answer, not yet drawn."""
    # Many rows stay readable: bars and boxes show the first 40 things of an answer, neighbouring ranks are merged past
    # 1,024, more than 10 lines become a band, points that would cover each other are drawn once; the notes report it.
    # `chart`: how to draw it; None for its own.
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
