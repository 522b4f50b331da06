"""A drawing as a PNG or SVG file, by matplotlib."""

from __future__ import annotations

import io
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alltrace.charts.drawing import Drawing, Heat, Series
from alltrace.charts.plotly import HEAT_COLORS, SHADES
from alltrace.trace.amounts import shortened
from alltrace.trace.errors import UsageError, printable

FORMATS = ("png", "svg")
_FEW_DECADES = 100
_MOST_TICKS = 16
_FEW = 3
_LEGEND_ROW = 6
_LEGEND_WIDTH = 110
_FEW_POINTS = 60
_LEGEND_NAME = 44
_TICK_NAME = 46
_INK = "#22272e"
_GRID = "#d8dee4"


def check_picture(path: Path) -> None:
    """Check that a chart can be written to `path`, before the work is done."""
    # Raises `UsageError`: the name ends in no known format, or matplotlib is not installed.
    if path.suffix.lower().lstrip(".") not in FORMATS or path.is_dir():
        raise UsageError(
            f"--picture is {printable(str(path))!r}; expected the name of a file that ends in .png or .svg"
        )
    if find_spec("matplotlib") is None:
        raise UsageError("--picture needs matplotlib, which is not installed; pip install 'alltrace[pictures]'")


def picture_bytes(drawing: Drawing, kind: str = "png", *, dpi: int = 144) -> bytes:
    """The picture as the contents of a file."""
    # `kind`: `png` or `svg`. `dpi`: dots per inch of a PNG. Raises `UsageError`: matplotlib is not installed.
    if find_spec("matplotlib") is None:
        raise UsageError("a picture needs matplotlib, which is not installed; pip install 'alltrace[pictures]'")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # no names from a trace as formulas; text stays text in an SVG; equal drawings give equal files
    settings = {
        "text.parse_math": False,
        "text.usetex": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "alltrace",
        "axes.formatter.use_mathtext": False,
        "font.family": "DejaVu Sans",
        "font.size": 9,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # a name in letters that the font lacks, or one that leaves no room, is not a reason to speak
        warnings.simplefilter("ignore")
        figure = Figure(figsize=_size(drawing), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        _paint(drawing, figure, axes)
        out = io.BytesIO()
        canvas = FigureCanvasSVG(figure) if kind == "svg" else FigureCanvasAgg(figure)
        metadata: dict[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        canvas.print_figure(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()


def _size(drawing: Drawing) -> tuple[float, float]:
    """Inches across and up: taller with more items below each other."""
    if drawing.heat is not None:
        return 9.5, min(max(2.6, 1.6 + 0.16 * len(drawing.heat.rows)), 9.0)
    if drawing.lying:
        return 9.5, max(2.4, 1.3 + 0.26 * len(drawing.x.labels or ()))
    named = sum(bool(s.name) for s in drawing.series)
    return 9.5, 4.6 + 0.2 * max(0, named - _LEGEND_ROW)


def _paint(drawing: Drawing, figure: Any, axes: Any) -> None:
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#8d99a6")
    axes.tick_params(colors=_INK, labelsize=8)
    across, up = (axes.yaxis, axes.xaxis) if drawing.lying else (axes.xaxis, axes.yaxis)
    if drawing.empty:
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes, color=_INK)
        axes.set_axis_off()
    elif drawing.heat is not None:
        _paint_heat(drawing.heat, figure, axes)
    else:
        for number, series in enumerate(drawing.series):
            _paint_series(series, number, drawing, figure, axes)
        up.grid(visible=True, color=_GRID, linewidth=0.7)
        _scales(drawing, axes, across, up)
    _words(drawing, axes, across, up)


def _paint_series(series: Series, number: int, drawing: Drawing, figure: Any, axes: Any) -> None:
    name = _called(series)
    y = [float("nan") if v is None else v for v in series.y]
    if series.mark in ("bars", "stacked"):
        _paint_bars(series, number, drawing, axes)
    elif series.mark == "box":
        _paint_boxes(series, drawing, axes)
    elif series.mark == "band":
        low, high = ([float("nan") if v is None else v for v in side] for side in (series.low, series.high))
        axes.fill_between(series.x, low, high, color=series.color, linewidth=0, label=name)
    elif series.mark == "points":
        if series.shade:
            from matplotlib.colors import LinearSegmentedColormap

            colors = LinearSegmentedColormap.from_list("shades", list(SHADES))
            drawn = axes.scatter(series.x, y, c=series.shade, cmap=colors, s=14, alpha=0.8, linewidths=0)
            figure.colorbar(drawn, ax=axes, label=drawing.shade, pad=0.01, aspect=35)
        else:
            size = 14 if len(series.x) > _FEW_POINTS else 34
            axes.scatter(series.x, y, color=series.color, s=size, alpha=0.75, linewidths=0, label=name, zorder=3)
    elif series.tag:
        axes.plot(series.x, y, color=series.color, linewidth=1.6)
        level = y[0] == y[-1]
        axes.annotate(series.tag, (series.x[-1 if level else 0], y[-1 if level else 0]), xytext=(0 if level else 12, 3),
                      textcoords="offset points", ha="right" if level else "left", va="bottom", fontsize=8, color=_INK,
                      zorder=2.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6,
                          "alpha": 0.85})  # fmt: skip
    else:
        few = 2 < len(series.x) <= 60
        axes.plot(series.x, y, color=series.color, linewidth=1.6, marker="o" if few else None, markersize=3, label=name)


def _called(series: Series) -> str | None:
    """The name of a series in the legend; matplotlib leaves out what begins with an underscore, as mangled names do."""
    return f" {series.name}" if series.name.startswith("_") else series.name or None


def _paint_bars(series: Series, number: int, drawing: Drawing, axes: Any) -> None:
    heights = [v or 0.0 for v in series.y]
    gaps = sorted({b - a for a, b in zip(series.x, series.x[1:], strict=False)} - {0.0})
    step = gaps[0] if gaps else 1.0
    many = len(series.x) > 150
    width = step * (1.0 if many else 0.82 if len(series.x) > _FEW else 0.4)
    bottoms = [0.0] * len(heights)
    at = list(series.x)
    if series.mark == "stacked":
        for below in drawing.series[:number]:
            bottoms = [b + (v or 0.0) for b, v in zip(bottoms, below.y, strict=True)]
    else:
        width /= len(drawing.series)
        at = [x + (number - (len(drawing.series) - 1) / 2) * width for x in at]
    # as one shape if bars are thinner than a dot: thousands of rectangles are slow and leave seams
    if many and series.mark == "stacked":
        edges = [at[0] - step / 2, *(x + step / 2 for x in at)]
        axes.stairs([b + h for b, h in zip(bottoms, heights, strict=True)], edges, baseline=bottoms, fill=True,
                    color=series.color, linewidth=0, label=_called(series))  # fmt: skip
    elif drawing.lying:
        axes.barh(at, heights, width, left=bottoms, color=series.color, linewidth=0, label=_called(series))
    else:
        axes.bar(at, heights, width, bottom=bottoms, color=series.color, linewidth=0, label=_called(series))


def _paint_boxes(series: Series, drawing: Drawing, axes: Any) -> None:
    rows = zip(series.low, series.y, series.high, series.ends, strict=True)
    stats: list[dict[str, Any]] = [
        {"q1": low, "med": median, "q3": high, "whislo": ends[0], "whishi": ends[1], "fliers": []}
        for low, median, high, ends in rows
    ]
    axes.bxp(
        stats,
        positions=list(series.x),
        widths=0.6,
        orientation="horizontal" if drawing.lying else "vertical",
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": "#c5d9ec", "edgecolor": series.color},
        medianprops={"color": "#d9603b", "linewidth": 1.6},
        whiskerprops={"color": series.color},
        capprops={"color": series.color},
    )


def _paint_heat(heat: Heat, figure: Any, axes: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list("heat", list(HEAT_COLORS))
    rows = [r - 0.5 for r in range(len(heat.rows) + 1)]
    drawn = axes.pcolormesh(heat.edges, rows, heat.values, cmap=colors, vmin=heat.low, vmax=heat.high, rasterized=True)
    figure.colorbar(drawn, ax=axes, label=heat.name, pad=0.01, aspect=35)
    every = -(-len(heat.rows) // 32)
    axes.set_yticks(range(0, len(heat.rows), every), [heat.rows[i] for i in range(0, len(heat.rows), every)])
    axes.invert_yaxis()


def _scales(drawing: Drawing, axes: Any, across: Any, up: Any) -> None:
    """Logarithms, names at places, whole numbers, and 0 where bars begin."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    for axis, spec in ((across, drawing.x), (up, drawing.y)):
        if spec.log:
            set_scale = axes.set_yscale if axis is axes.yaxis else axes.set_xscale
            set_scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
            low, high = sorted(axis.get_view_interval())
            if spec.ticks:
                shown = [(place, name) for place, name in spec.ticks if low <= place <= high]
                axis.set_ticks([place for place, _ in shown], [name for _, name in shown])
                axis.set_minor_locator(NullLocator())
                continue
            # within a decade or two there may be no power of ten to label
            if low > 0 and high < _FEW_DECADES * low:
                axis.set_major_locator(
                    LogLocator(subs=(1.0, 2.0, 3.0, 5.0)) if high > 3 * low else MaxNLocator(_MOST_TICKS)
                )
        elif spec.whole and spec.labels is None:
            axis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
    if drawing.x.labels is not None:
        across.set_ticks(range(len(drawing.x.labels)), [shortened(t, _TICK_NAME) for t in drawing.x.labels])
        if drawing.lying:
            axes.set_ylim(len(drawing.x.labels) - 0.5, -0.5)
        else:
            axes.set_xlim(-0.5, len(drawing.x.labels) - 0.5)
    elif any(s.mark in ("bars", "stacked") for s in drawing.series):
        places = [x for s in drawing.series for x in s.x]
        axes.set_xlim(min(places) - 0.6, max(places) + 0.6)


def _words(drawing: Drawing, axes: Any, across: Any, up: Any) -> None:
    across.set_label_text(drawing.x.title, color=_INK)
    up.set_label_text(drawing.y.title, color=_INK)
    drawn = () if drawing.empty else drawing.series
    named = [shortened(name, _LEGEND_NAME) for s in drawn if not s.tag and (name := _called(s))]
    columns = max(1, min(_LEGEND_ROW, _LEGEND_WIDTH // (max(map(len, named), default=0) + 6)))
    pad = 8 if not named else 10 + 15 * -(-len(named) // columns)
    axes.set_title(drawing.title, loc="left", fontsize=11, color=_INK, pad=pad)
    if drawing.notes:
        axes.set_title("; ".join(drawing.notes), loc="right", fontsize=7, color="#57606a", pad=pad)
    if named:
        axes.legend(
            labels=named,
            handles=axes.get_legend_handles_labels()[0],
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=columns,
            frameon=False,
            borderaxespad=0.2,
            handlelength=1.2,
            columnspacing=1.4,
        )
