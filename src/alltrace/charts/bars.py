"""Bars, stacked bars, histograms and boxes: something for each of some things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.charts.columns import Columns
from alltrace.charts.drawing import Axis, Drawing, Series
from alltrace.charts.words import color, label, natural, size
from alltrace.recipes.base import Chart
from alltrace.trace.amounts import scale, text

MOST_THINGS = 40
MOST_BARS = 1024
MOST_COLORS = 9
_SHORT_NAME = 8
_STANDING = 16


def bars(columns: Columns, chart: Chart) -> Drawing:
    """Bars for each value of `x`, side by side or stacked."""
    if chart.group is not None:
        return _pivoted(columns, chart)
    values, unit = columns.scaled(chart.y)
    keep = np.flatnonzero(np.logical_or.reduce([np.isfinite(v) for v in values]))
    values = [v[keep] for v in values]
    names = [label(columns.column(y)) for y in chart.y]
    at = columns.numbers(chart.x)[keep]
    if columns.whole(chart.x) and 1 < len(np.unique(at)) == len(at) and np.isfinite(at).all():
        across = Axis(label(columns.column(chart.x)), whole=True)
    else:
        across, at = (
            Axis(label(columns.column(chart.x)), tuple(_named(columns, chart, keep))),
            np.arange(len(keep), dtype=np.float64),
        )
    return _of_series(columns, chart, across, at, dict(zip(names, values, strict=True)), unit)


def histogram(columns: Columns, chart: Chart) -> Drawing:
    begins = columns.numbers(chart.x)
    edges = np.unique(begins[np.isfinite(begins)])
    at = np.searchsorted(edges, begins)
    begin = columns.column(chart.x)
    divisors = [scale(begin.unit, [e]) for e in edges.tolist()]
    names = tuple(f"{e / d:g} {u}".strip() for e, (d, u) in zip(edges.tolist(), divisors, strict=True))
    if begin.unit in ("bytes", "B") and any(edges) and not np.any(edges[edges >= 1000] % 1024):
        names = tuple(size(e) for e in edges.tolist())
    what = label(begin).removeprefix("from").strip() or (
        "size" if begin.unit in ("bytes", "B", "MB") else begin.unit or ""
    )
    across = Axis(f"{what}, from", names)
    sums = _sums(columns, chart, at, len(edges), np.isfinite(begins))
    return _of_series(
        columns, chart, across, np.arange(len(edges)), sums, columns.column(chart.y[0]).unit or "", classes=True
    )


def boxes(columns: Columns, chart: Chart) -> Drawing:
    """A box for each value of `x`: whiskers to the extremes, the box between quartiles, a line at the median."""
    values, unit = columns.scaled(chart.y)
    keep = np.flatnonzero(np.isfinite(values[2]))
    shown = keep[:MOST_THINGS]
    least, first, median, third, greatest = (v[shown] for v in values)
    names = _named(columns, chart, shown)
    notes = (f"the first {MOST_THINGS} of {len(keep)}",) if len(keep) > MOST_THINGS else ()
    series = Series(
        "",
        "box",
        tuple(float(i) for i in range(len(shown))),
        _finite(median),
        color("", 0),
        low=_finite(first),
        high=_finite(third),
        ends=tuple(zip(_finite(least), _finite(greatest), strict=True)),
        notes=tuple(names),
    )
    up = Axis(columns.title(chart.y, unit), log=chart.log_y, unit=unit)
    return Drawing(
        "", Axis(label(columns.column(chart.x)), tuple(names)), up, (series,), lying=_lie(names), notes=notes
    )


def _named(columns: Columns, chart: Chart, keep: NDArray[Any]) -> list[str]:
    """The names of the kept rows, made distinct by `detail` or by number if they are equal."""
    names = columns.texts(chart.x)
    names = [names[i] for i in keep.tolist()]
    often = Counter(names)
    if chart.detail is not None and len(often) < len(names):
        details = columns.texts(chart.detail)
        names = [f"{n} · {details[i]}" if often[n] > 1 else n for n, i in zip(names, keep.tolist(), strict=True)]
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


def _readable(
    across: Axis, at: NDArray[Any], heights: dict[str, NDArray[Any]]
) -> tuple[Axis, NDArray[Any], dict[str, NDArray[Any]], list[str]]:
    """The part that fits on a chart: the first things, numbers in order with neighbours merged; and what was done."""
    if across.labels is not None:
        notes = [f"the first {MOST_THINGS} of {len(at)}"] if len(at) > MOST_THINGS else []
        across = replace(across, labels=across.labels[:MOST_THINGS])
        return across, at[:MOST_THINGS], {n: v[:MOST_THINGS] for n, v in heights.items()}, notes
    order = np.argsort(at, kind="stable")
    at, heights = at[order], {n: v[order] for n, v in heights.items()}
    if len(at) <= MOST_BARS:
        return across, at, heights, []
    together = -(-len(at) // MOST_BARS)
    first = np.arange(0, len(at), together)
    sizes = np.diff(np.append(first, len(at)))
    folded = {n: np.add.reduceat(np.nan_to_num(v), first) / sizes for n, v in heights.items()}
    return across, at[first], folded, [f"a bar is the mean of {together} neighbours"]


def _pivoted(columns: Columns, chart: Chart) -> Drawing:
    y = columns.numbers(chart.y[0])
    keep = np.isfinite(y)
    if columns.whole(chart.x) and len(np.unique(columns.numbers(chart.x)[keep])) > 1:
        where = columns.numbers(chart.x)
        keep &= np.isfinite(where)
        numbers, at = np.unique(np.where(keep, where, 0), return_inverse=True)
        across, places = Axis(label(columns.column(chart.x)), whole=True), numbers
    else:
        names = columns.texts(chart.x)
        order = list(dict.fromkeys(n for n, k in zip(names, keep.tolist(), strict=True) if k))
        index = {n: i for i, n in enumerate(order)}
        at = np.array([index.get(n, 0) for n in names])
        across, places = Axis(label(columns.column(chart.x)), tuple(order)), np.arange(len(order), dtype=np.float64)
    sums = _sums(columns, chart, at, len(places), keep)
    divisor, unit = scale(columns.column(chart.y[0]).unit, [float(v.max(initial=0)) for v in sums.values()])
    return _of_series(columns, chart, across, places, {n: v / divisor for n, v in sums.items()}, unit)


def _sums(columns: Columns, chart: Chart, at: NDArray[Any], places: int, keep: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The sums of `y` by place for each value of `group`; the smallest are one if too many for colours."""
    y = np.nan_to_num(columns.numbers(chart.y[0])) * keep
    if chart.group is None:
        return {"": np.bincount(at[keep], y[keep], places)}
    groups = columns.texts(chart.group)
    totals: Counter[str] = Counter()
    for group, value in zip(groups, np.abs(y).tolist(), strict=True):
        totals[group] += value
    largest = [g for g, _ in totals.most_common(len(totals) if len(totals) <= MOST_COLORS + 1 else MOST_COLORS)]
    names = sorted(largest, key=natural) + (["other"] if len(totals) > len(largest) else [])
    index = {g: i for i, g in enumerate(names)}
    of = np.array([index.get(g, len(names) - 1) for g in groups])
    sums = np.zeros((len(names), places))
    np.add.at(sums, (of[keep], at[keep]), y[keep])
    return dict(zip(names, sums, strict=True))


def _of_series(
    columns: Columns,
    chart: Chart,
    across: Axis,
    at: NDArray[Any],
    heights: dict[str, NDArray[Any]],
    unit: str,
    *,
    classes: bool = False,
) -> Drawing:
    """The drawing of one series of bars for each name; of a histogram all classes are shown, on top of each other."""
    notes: list[str] = []
    if not classes:
        across, at, heights, notes = _readable(across, at, heights)
    mark = "stacked" if classes or chart.kind == "stacked_bars" else "bars"
    one = len(heights) == 1
    x = tuple(float(a) for a in at.tolist())
    series = tuple(
        Series("" if one else text(name), mark, x, _finite(values), color(name, n))  # type: ignore[arg-type]
        for n, (name, values) in enumerate(heights.items())
    )
    up = Axis(columns.title(chart.y, unit), log=chart.log_y, unit=unit)
    return Drawing("", across, up, series, lying=_lie(across.labels or ()), notes=tuple(notes))


def _lie(names: Sequence[str]) -> bool:
    """Whether things with these names are better drawn one below the other."""
    return len(names) > _STANDING or any(len(n) > _SHORT_NAME for n in names)


def _finite(values: NDArray[Any]) -> tuple[float | None, ...]:
    return tuple(v if v == v else None for v in values.tolist())
