"""The content of a chart, independent of the drawing library: axes with readable units, and numbers in these units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mark = Literal["bars", "stacked", "line", "points", "band", "box", "steps"]
"""How a series is drawn: bars side by side or on top of each other, a line, points, an area between two lines, boxes, a line in
steps from one x to the next."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: What it shows, with the unit.
        labels: Of an axis of things rather than numbers, their names; positions are then 0, 1, 2, ...
        log: Whether it is logarithmic.
        whole: Whether only whole numbers have a meaning on it, such as ranks.
        unit: The unit that its numbers are shown in; empty for none.
        ticks: Positions and labels of marks; empty to leave both to the drawing library.
    """

    title: str
    labels: tuple[str, ...] | None = None
    log: bool = False
    whole: bool = False
    unit: str = ""
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Series:
    """Things of one colour.

    Attributes:
        name: What they are; empty if there is but one series.
        mark: How they are drawn.
        x: Positions across, n.
        y: Positions up, n; of boxes the medians. None if there is no value.
        color: `#rrggbb`.
        low: Of a band its lower line; of boxes the first quartiles.
        high: Of a band its upper line; of boxes the third quartiles.
        ends: Of boxes, least and greatest of each.
        shade: A number for each point, which chooses its colour on a scale; then `color` is not used.
        notes: A text for each point, shown if the chart can describe one point; or empty.
        tag: A text at a line, instead of a name in the legend if the chart supports it; or empty.
    """

    name: str
    mark: Mark
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    color: str
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    ends: tuple[tuple[float | None, float | None], ...] = ()
    shade: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    tag: str = ""


@dataclass(frozen=True)
class Heat:
    """A heat map: rows of cells.

    Attributes:
        edges: Where the columns begin, and where the last ends, in the units of the axis across: m + 1.
        rows: The names of the n rows.
        values: n rows of m numbers, NaN if nothing is known.
        name: What the numbers are, with the unit.
        low: The number at the light end of the colours.
        high: The number at the dark end.
    """

    edges: tuple[float, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Drawing:
    """A picture, not yet drawn.

    Attributes:
        title: The title above it.
        x: The axis across.
        y: The axis up.
        series: What is drawn, the first at the bottom.
        lying: Whether bars and boxes are horizontal: `x` then goes down the page, with readable names.
        heat: The heat map, or None.
        shade: What the shades of points mean, or empty.
        notes: What was left out or merged to keep the chart readable.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    lying: bool = False
    heat: Heat | None = None
    shade: str = ""
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.heat is None and not any(s.x for s in self.series)
