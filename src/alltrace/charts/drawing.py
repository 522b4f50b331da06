"""The content of a chart, independent of the drawing library: axes with readable units, and numbers in these units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mark = Literal["bars", "stacked", "line", "points", "band", "box", "steps"]
"""How a series is drawn: bars side by side or on top of each other, a line, points, an area between two lines, boxes, a
line in steps from one x to the next."""


@dataclass(frozen=True)
class Axis:
    title: str  # what it shows, with the unit
    # of an axis of things rather than numbers, their names; positions are then 0, 1, 2,
    labels: tuple[str, ...] | None = None
    log: bool = False  # whether it is logarithmic
    whole: bool = False  # whether only whole numbers have a meaning on it, such as ranks
    unit: str = ""  # the unit that its numbers are shown in; empty for none
    # positions and labels of marks; empty to leave both to the drawing library
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Series:
    name: str  # what they are; empty if there is but one series
    mark: Mark  # how they are drawn
    x: tuple[float, ...]  # positions across, n
    y: tuple[float | None, ...]  # positions up, n; of boxes the medians. None if there is no value
    color: str  # `#rrggbb`
    low: tuple[float | None, ...] = ()  # of a band its lower line; of boxes the first quartiles
    high: tuple[float | None, ...] = ()  # of a band its upper line; of boxes the third quartiles
    ends: tuple[tuple[float | None, float | None], ...] = ()  # of boxes, least and greatest of each
    # a number for each point, which chooses its colour on a scale; then `color` is not used
    shade: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()  # a text for each point, shown if the chart can describe one point; or empty
    tag: str = ""  # a text at a line, instead of a name in the legend if the chart supports it; or empty


@dataclass(frozen=True)
class Heat:
    edges: tuple[float, ...]  # where the columns begin, and where the last ends, in the units of the axis across: m + 1
    rows: tuple[str, ...]  # the names of the n rows
    values: tuple[tuple[float, ...], ...]  # n rows of m numbers, NaN if nothing is known
    name: str  # what the numbers are, with the unit
    low: float  # the number at the light end of the colours
    high: float  # the number at the dark end


@dataclass(frozen=True)
class Drawing:
    title: str  # the title above it
    x: Axis  # the axis across
    y: Axis  # the axis up
    series: tuple[Series, ...] = ()  # what is drawn, the first at the bottom
    lying: bool = False  # whether bars and boxes are horizontal: `x` then goes down the page, with readable names
    heat: Heat | None = None  # the heat map, or None
    shade: str = ""  # what the shades of points mean, or empty
    notes: tuple[str, ...] = ()  # what was left out or merged to keep the chart readable

    @property
    def empty(self) -> bool:
        return self.heat is None and not any(s.x for s in self.series)
