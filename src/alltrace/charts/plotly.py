"""A drawing as a figure in plotly's format: plain dicts, lists, numbers and texts; plotly itself is not needed.

plotly reads texts as a small markup language and, if MathJax is loaded, as formulas; here all text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from alltrace.charts.drawing import Axis, Drawing, Heat, Series

HEAT_COLORS = ("#f2f6fa", "#bcd5ea", "#74aad4", "#2f77b5", "#14406b")
SHADES = ("#2f77b5", "#5f9fb0", "#9cb069", "#dba730", "#c4302b")
_MANY_LABELS = 60
_FEW = 3


def figure(drawing: Drawing) -> dict[str, Any]:
    """The figure of a drawing, which `json.dumps` can write."""
    # Returns `data`, a list of traces, and `layout`, as `plotly.graph_objects.Figure` and `Plotly.newPlot` take them.
    # Texts are escaped.
    traces = [_heat(drawing.heat)] if drawing.heat is not None else _traces(drawing)
    x, y = _axis(drawing.x), _axis(drawing.y)
    if drawing.lying:
        x, y = y, x | {"autorange": "reversed"}
    if drawing.heat is not None:
        y |= {"type": "category", "autorange": "reversed"}
        x |= {"showgrid": False}
    layout: dict[str, Any] = {
        "title": {"text": escaped(drawing.title)},
        "xaxis": x | {"automargin": True},
        "yaxis": y | {"automargin": True},
        "margin": {"l": 60, "r": 20, "t": 50 if drawing.title else 20, "b": 50},
        "hovermode": "closest",
        "showlegend": any(s.name for s in drawing.series),
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    if any(s.mark in ("bars", "stacked") for s in drawing.series):
        layout |= {
            "barmode": "stack" if any(s.mark == "stacked" for s in drawing.series) else "group",
            "bargap": 0.15 if len({x for s in drawing.series for x in s.x}) > _FEW else 0.6,
        }
    things = len(drawing.x.labels or ())
    if drawing.lying:
        layout["height"] = max(260, 110 + 24 * things)
    if drawing.heat is not None:
        layout["height"] = min(max(220, 120 + 16 * len(drawing.heat.rows)), 760)
    notes = [*drawing.notes, *(["nothing to show"] if drawing.empty else [])]
    if notes:
        layout["annotations"] = [
            {
                "text": escaped("; ".join(notes)),
                "showarrow": False,
                "xref": "paper",
                "yref": "paper",
                "x": 1,
                "y": 1.0,
                "xanchor": "right",
                "yanchor": "bottom",
                "font": {"size": 11},
            }
        ]
    return {"data": traces, "layout": layout}


def escaped(text: str) -> str:
    """Text that plotly shows as it is: no markup, no formula."""
    return html.escape(text, quote=True).replace("$", "&#36;")


def _axis(axis: Axis) -> dict[str, Any]:
    settings: dict[str, Any] = {"title": {"text": escaped(axis.title)}, "type": "log" if axis.log else "linear"}
    if axis.labels is not None:
        many = len(axis.labels) > _MANY_LABELS
        settings |= {
            "tickmode": "array",
            "tickvals": list(range(len(axis.labels))),
            "ticktext": [escaped(t) for t in axis.labels],
        }
        settings |= {"showgrid": False, "zeroline": False, "range": [-0.5, max(len(axis.labels), 1) - 0.5]}
        if many:
            settings["tickfont"] = {"size": 8}
    elif axis.whole:
        settings |= {"tickformat": "d", "zeroline": False}
    if axis.ticks:
        places, names = zip(*axis.ticks, strict=True)
        settings |= {"tickmode": "array", "tickvals": list(places), "ticktext": [escaped(n) for n in names]}
    elif axis.log:
        settings |= {"dtick": 1, "exponentformat": "power"}
    return settings


def _traces(drawing: Drawing) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    for series in drawing.series:
        if series.mark == "band":
            traces += _band(series)
        elif series.mark == "box":
            traces.append(_box(series, drawing))
        elif series.mark in ("bars", "stacked"):
            traces.append(_bars(series, drawing))
        else:
            traces.append(_points(series, drawing.shade))
    return traces


def _named(series: Series) -> dict[str, Any]:
    return {"name": escaped(series.name), "showlegend": bool(series.name)}


def _bars(series: Series, drawing: Drawing) -> dict[str, Any]:
    unit = f" {drawing.y.unit}" if drawing.y.unit else ""
    places = (
        [drawing.x.labels[int(x)] for x in series.x]
        if drawing.x.labels
        else [f"{drawing.x.title} {x:g}" for x in series.x]
    )
    lying = drawing.lying
    return _named(series) | {
        "type": "bar",
        "orientation": "h" if lying else "v",
        "x": _numbers(series.y if lying else series.x),
        "y": _numbers(series.x if lying else series.y),
        "marker": {"color": series.color, "line": {"width": 0}},
        "hovertext": [
            escaped(f"{place}: {'none' if value is None else f'{value:.4g}{unit}'}")
            for place, value in zip(places, series.y, strict=True)
        ],
        "hoverinfo": "text+name" if series.name else "text",
    }


def _box(series: Series, drawing: Drawing) -> dict[str, Any]:
    along, across = ("y", "x") if drawing.lying else ("x", "y")
    least, greatest = ([e[i] for e in series.ends] for i in (0, 1))
    return _named(series) | {
        "type": "box",
        "orientation": "h" if drawing.lying else "v",
        along: _numbers(series.x),
        "lowerfence": _numbers(least),
        "q1": _numbers(series.low),
        "median": _numbers(series.y),
        "q3": _numbers(series.high),
        "upperfence": _numbers(greatest),
        "marker": {"color": series.color},
        "line": {"width": 1.5},
        "hoverinfo": across,
    }


def _points(series: Series, shade: str) -> dict[str, Any]:
    mode = "markers" if series.mark == "points" else "lines"
    trace = _named(series) | {"type": "scatter", "mode": mode, "x": _numbers(series.x), "y": _numbers(series.y)}
    if series.mark != "points":
        return trace | {"line": {"color": series.color, "width": 1.8}}
    trace["marker"] = {"color": series.color, "size": 6, "opacity": 0.75}
    if series.shade:
        trace["marker"] |= {
            "color": list(series.shade),
            "colorscale": _scale(SHADES),
            "showscale": True,
            "colorbar": {"title": {"text": escaped(shade)}, "thickness": 12},
        }
    if series.notes:
        trace |= {"text": [escaped(n) for n in series.notes], "hoverinfo": "x+y+text+name"}
    return trace


def _band(series: Series) -> list[dict[str, Any]]:
    """An area between two lines: the lower one, not drawn, and the upper one, filled down to it."""
    common = {"type": "scatter", "mode": "lines", "line": {"width": 0, "color": series.color}, "x": _numbers(series.x)}
    lower = common | {"y": _numbers(series.low), "showlegend": False, "hoverinfo": "skip", "name": ""}
    upper = common | _named(series) | {"y": _numbers(series.high), "fill": "tonexty", "fillcolor": _clear(series.color)}
    return [lower, upper]


def _heat(heat: Heat) -> dict[str, Any]:
    centers = [(a + b) / 2 for a, b in zip(heat.edges, heat.edges[1:], strict=False)]
    return {
        "type": "heatmap",
        "x": _numbers(centers),
        "y": [escaped(r) for r in heat.rows],
        "z": [[None if v != v else float(f"{v:.3g}") for v in row] for row in heat.values],
        "zmin": heat.low,
        "zmax": heat.high,
        "colorscale": _scale(HEAT_COLORS),
        "colorbar": {"title": {"text": escaped(heat.name), "side": "right"}, "thickness": 12},
        "hoverongaps": False,
    }


def _scale(colors: Sequence[str]) -> list[list[Any]]:
    return [[i / (len(colors) - 1), c] for i, c in enumerate(colors)]


def _clear(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.5)"


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    """Numbers short enough for a file: nine digits."""
    return [None if v is None else float(f"{v:.9g}") for v in values]
