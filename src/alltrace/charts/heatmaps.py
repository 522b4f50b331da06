"""Heat maps: rows of cells, one for each rank and time."""

from __future__ import annotations

import numpy as np

from alltrace.charts.columns import Columns
from alltrace.charts.drawing import Axis, Drawing, Heat
from alltrace.charts.words import label, title
from alltrace.recipes.base import Chart

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
