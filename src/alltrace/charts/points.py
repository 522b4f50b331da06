"""Lines, scattered points and rooflines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.charts.columns import Columns
from alltrace.charts.drawing import Axis, Drawing, Series
from alltrace.charts.words import color, label, natural, sizes
from alltrace.recipes.base import Chart
from alltrace.trace.amounts import scale, text

MOST_LINES = 10
_GRID = (1200, 600)
_THIN_FROM = 4000
_OUTSTANDING = 3


def lines(columns: Columns, chart: Chart) -> Drawing:
    """A line for each `y`, or for each value of `group`; a band with its median if too many to distinguish."""
    (x,), across = _axis(columns, (chart.x,), log=chart.log_x)
    values, up = _axis(columns, chart.y, log=chart.log_y)
    if chart.group is None:
        series = [
            _line(label(columns.column(y)), x, v, n) for n, (y, v) in enumerate(zip(chart.y, values, strict=True))
        ]
        return Drawing("", across, up, tuple(_unnamed(series)))
    of, names = columns.coded(chart.group)
    word = label(columns.column(chart.group))
    if len(names) <= MOST_LINES:
        series = [_line(_called(word, g), x[of == i], values[0][of == i], i) for i, g in enumerate(names)]
        return Drawing("", across, up, tuple(_unnamed(series)))
    return Drawing(
        "", across, up, tuple(_band(x, values[0], of, names, word)), notes=(f"{len(names)} lines as a band",)
    )


def scatter(columns: Columns, chart: Chart) -> Drawing:
    """A point for each row; points that would cover each other are drawn once."""
    (x,), across = _axis(columns, (chart.x,), log=chart.log_x)
    (y,), up = _axis(columns, chart.y[:1], log=chart.log_y)
    keep = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not chart.log_x)) & ((y > 0) | (not chart.log_y))
    at = np.flatnonzero(keep)
    of, names, shade = _groups(columns, chart)
    at, notes = _thinned(x, y, of, at, chart)
    words = _notes(columns, chart, at)
    if shade is not None:
        points = Series(
            "", "points", _numbers(x[at]), _numbers(y[at]), color("", 0), shade=_numbers(shade[at]), notes=tuple(words)
        )
        return Drawing("", across, up, (points,), shade=label(columns.column(chart.group or chart.x)), notes=notes)
    return Drawing("", across, up, tuple(_unnamed(_clouds(x[at], y[at], of[at], names, words))), notes=notes)


def _axis(columns: Columns, names: tuple[str, ...], *, log: bool) -> tuple[list[NDArray[Any]], Axis]:
    """The numbers of some columns of one unit and their axis; logarithmic sizes stay bytes, with marks in KiB."""
    if log and columns.column(names[0]).unit in ("bytes", "B"):
        values = [columns.numbers(n) for n in names]
        ticks = sizes(np.concatenate(values).tolist())
        return values, Axis(columns.title(names, ""), log=True, unit="bytes", ticks=ticks)
    scaled, unit = columns.scaled(names)
    whole = len(names) == 1 and columns.whole(names[0])
    return scaled, Axis(columns.title(names, unit), log=log, whole=whole, unit=unit)


def roofline(columns: Columns, chart: Chart) -> Drawing:
    """Points under ceilings, both axes logarithmic (Williams, Waterman and Patterson, CACM 2009)."""
    # The answer's `extra` has the ceilings as rows of `ceilings`: `name`, `kind` (`compute`, a rate of work, or
    # `memory`, bytes per second in the unit that makes it a rate of work when multiplied by the axis across), `value`,
    # and `unit` if known.
    x, y = columns.numbers(chart.x), columns.numbers(chart.y[0])
    keep = np.flatnonzero((x > 0) & (y > 0))
    of, names, _ = _groups(columns, chart)
    words = _notes(columns, chart, keep)
    x, y = x[keep], y[keep]
    series = _ceilings(columns, x, y) + _clouds(x, y, of[keep], names, words)
    units = [columns.column(c).unit or "" for c in (chart.x, chart.y[0])]
    across = Axis(columns.title((chart.x,), units[0]), log=True, unit=units[0])
    return Drawing("", across, Axis(columns.title(chart.y[:1], units[1]), log=True, unit=units[1]), tuple(series))


def _clouds(x: NDArray[Any], y: NDArray[Any], of: NDArray[Any], names: list[str], words: list[str]) -> list[Series]:
    series = []
    for i, name in enumerate(names):
        mine = np.flatnonzero(of == i)
        notes = tuple(words[j] for j in mine.tolist()) if words else ()
        if len(mine):
            series.append(Series(name, "points", _numbers(x[mine]), _numbers(y[mine]), color(name, i), notes=notes))
    return series


_APART = 1.02
"""Ceilings that are nearer to each other are one line."""


def _ceilings(columns: Columns, x: NDArray[Any], y: NDArray[Any]) -> list[Series]:
    """Each ceiling as a line from left to right; a memory ceiling ends at the highest compute ceiling."""
    rows = [dict(r) for r in columns.answer.extra.get("ceilings", ())]
    compute, memory = (
        sorted((float(r["value"]), text(r["name"]), _tag(r)) for r in rows if r["kind"] == kind and r["value"])
        for kind in ("compute", "memory")
    )
    roof = compute[-1][0] if compute else max(y.max(initial=1.0), 1.0) * 4
    slope = memory[-1][0] if memory else 0.0
    ridges = [roof / bandwidth for bandwidth, _, _ in memory]
    left = min([*x.tolist(), *ridges], default=1.0) / 4
    right = max([*x.tolist(), *ridges], default=1.0) * 4
    lines = []
    for bandwidth, name, tag in memory:
        ridge = roof / bandwidth
        lines.append(Series(name, "line", (left, ridge), (left * bandwidth, roof), "#8d99a6", tag=tag))
    for rate, name, tag in _joined(compute):
        begin = max(rate / slope, left) if slope else left
        lines.append(Series(name, "line", (begin, right), (rate, rate), "#5b6673", tag=tag))
    return lines


def _joined(compute: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Ceilings of compute from the lowest, those at one height as one that has all their names."""
    joined: list[tuple[float, str, str]] = []
    for rate, name, tag in compute:
        if joined and rate < joined[-1][0] * _APART:
            joined[-1] = (rate, f"{joined[-1][1]}, {name}", f"{joined[-1][1]}, {tag}")
        else:
            joined.append((rate, name, tag))
    return joined


def _tag(row: dict[str, Any]) -> str:
    """The label of a ceiling: its name and its value, in a readable unit."""
    value = float(row["value"])
    divisor, unit = scale(row.get("unit"), [value])
    return f"{text(row['name'])} {value / divisor:.3g} {unit}".rstrip()


def _line(name: str, x: NDArray[Any], y: NDArray[Any], number: int) -> Series:
    order = np.argsort(x, kind="stable")
    order = order[np.isfinite(x[order])]
    values = tuple(v if v == v else None for v in y[order].tolist())
    return Series(name, "line", _numbers(x[order]), values, color(name, number))


def _band(x: NDArray[Any], y: NDArray[Any], of: NDArray[Any], names: list[str], word: str) -> list[Series]:
    """The band between the lowest and the highest line, between the quartiles, the median, and the outlying lines."""
    there = np.isfinite(x) & np.isfinite(y)
    places, at = np.unique(x[there], return_inverse=True)
    quantiles = np.array([np.quantile(y[there][at == i], (0, 0.25, 0.5, 0.75, 1)) for i in range(len(places))]).reshape(
        -1, 5
    )
    across, (least, first, median, third, greatest) = _numbers(places), (_numbers(quantiles[:, q]) for q in range(5))
    blue = color("compute", 0)
    series = [
        Series("all", "band", across, median, "#b9cfe4", low=least, high=greatest),
        Series("middle half", "band", across, median, "#7fa8d0", low=first, high=third),
        Series("median", "line", across, median, blue),
    ]
    off = np.zeros(len(names))
    np.add.at(off, of[there], np.abs(y[there] - quantiles[at, 2]))
    spread = float(np.median(off))
    worst = [i for i in np.argsort(-off, kind="stable")[:_OUTSTANDING].tolist() if off[i] > 2 * spread and off[i] > 0]
    return series + [_line(_called(word, names[i]), x[of == i], y[of == i], n + 1) for n, i in enumerate(worst)]


def _groups(columns: Columns, chart: Chart) -> tuple[NDArray[Any], list[str], NDArray[Any] | None]:
    """The group of each row and their names, the rarest together as `other`; for many numbers, a shade for each row."""
    if chart.group is None:
        return np.zeros(len(columns), np.int64), [""], None
    if columns.numeric(chart.group):
        shade = columns.numbers(chart.group)
        if len(np.unique(shade[np.isfinite(shade)])) > MOST_LINES:
            return np.zeros(len(columns), np.int64), [""], np.nan_to_num(shade)
    texts = columns.texts(chart.group)
    often = Counter(texts)
    largest = [g for g, _ in often.most_common(len(often) if len(often) <= MOST_LINES else MOST_LINES - 1)]
    names = sorted(largest, key=natural) + (["other"] if len(often) > len(largest) else [])
    index = {g: i for i, g in enumerate(names)}
    of = np.array([index.get(g, len(names) - 1) for g in texts])
    word = label(columns.column(chart.group))
    plain = columns.numeric(chart.group)
    return of, [_called(word, n) if plain else n for n in names], None


def _called(word: str, name: str) -> str:
    return f"{word} {name}" if name.lstrip("-").isdigit() else name


def _thinned(
    x: NDArray[Any], y: NDArray[Any], of: NDArray[Any], at: NDArray[Any], chart: Chart
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """One point of each group for each place on a fine grid, the first in the answer."""
    if len(at) <= _THIN_FROM:
        return at, ()
    cells = [
        _cells(np.log(v[at]) if log else v[at], n)
        for v, log, n in zip((x, y), (chart.log_x, chart.log_y), _GRID, strict=True)
    ]
    key = (of[at] * _GRID[0] + cells[0]) * _GRID[1] + cells[1]
    _, first = np.unique(key, return_index=True)
    if len(first) == len(at):
        return at, ()
    return at[np.sort(first)], (f"{len(first):,} of {len(at):,} points, the others are hidden by them",)


def _cells(values: NDArray[Any], cells: int) -> NDArray[Any]:
    low, high = values.min(), values.max()
    indices: NDArray[Any] = np.zeros(len(values), np.int64)
    if high > low:
        indices = np.minimum(((values - low) * (cells / (high - low))).astype(np.int64), cells - 1)
    return indices


def _notes(columns: Columns, chart: Chart, at: NDArray[Any]) -> list[str]:
    if chart.detail is None:
        return []
    shown = columns.answer.table.column(chart.detail).take(pa.array(at)).to_pylist()
    return [text(v) for v in shown]


def _numbers(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(v) for v in values.tolist())


def _unnamed(series: list[Series]) -> list[Series]:
    return [replace(series[0], name="")] if len(series) == 1 else series
