"""The names of axes and series: columns without their unit's ending, marks of sizes, colours by meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from alltrace.recipes.base import Column
from alltrace.trace.amounts import amount
from alltrace.trace.amounts import text as shortened

# Classes that are drawn next to each other (`NEIGHBOURS`) also differ in lightness, for colour-blind readers and for
# print in grey. `ui/static/palette.js` has the same for the page.
PALETTE = {
    "compute": "#095f8c",
    "communication": "#cd6d0a",
    "exposed communication": "#df4c29",
    "unclassified": "#f0c64a",
    "copy": "#6dc286",
    "exposed copy": "#6dc286",
    "idle": "#dee3e8",
    "api": "#7d5ba4",
    "ranges": "#3fb0b3",
    "mpi": "#b74c82",
    "host": "#aab065",
}
"""Classes of time and of events."""

DARK = {"idle": "#29343c"}
"""What differs on a dark page."""

SEVERITIES = {"high": "#b72220", "medium": "#d88127", "low": "#c8d3dc"}
"""How grave a finding is."""

NEIGHBOURS = (
    ("compute", "exposed communication", "exposed copy", "idle", "compute"),
    ("compute", "communication", "copy", "idle"),
    ("exposed communication", "idle"),
    ("communication", "idle"),
    ("api", "ranges", "mpi", "host", "api"),
)
"""Classes that are drawn side by side, in this order."""


_ENDINGS = {
    "ns": ("_ns",), "us": ("_us",), "s": ("_s",), "bytes": ("_bytes",), "%": ("_percent",), "GB/s": ("_gb_per_s",),
    "bytes/s": ("_bytes_per_s",), "FLOP/s": ("_flop_per_s",), "FLOP/byte": ("_flop_per_byte",),
}  # fmt: skip
NAMING = frozenset({"rank", "local_rank", "slowest_rank", "process", "step", "component"})
"""Columns with numbers that are names, so that they are written without commas."""

_PLACES = frozenset({"start_ns", "end_ns"})
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MOST_SIZES = 16
_BY_MEANING = {
    **PALETTE,
    **SEVERITIES,
    "overlapped": PALETTE["compute"],
    "exposed": PALETTE["exposed communication"],
    "transfer": PALETTE["exposed communication"],
    "caused": PALETTE["exposed communication"],
    "waited": "#54b6e4",
    "gap": "#8e979e",
    "warm-up": PALETTE["communication"],
    "checkpoint": PALETTE["api"],
    "step": PALETTE["compute"],
    "other": "#8e979e",
}
_COLORS = ("#2f77b5", "#d9603b", "#3f9b6c", "#8a5fb4", "#dba730", "#33a3b5", "#c65b8b", "#8b6f47", "#6b7f2e", "#5561c7")


def label(column: Column) -> str:
    name = column.name
    for ending in _ENDINGS.get(column.unit or "", ()):
        name = name.removesuffix(ending)
    if column.unit:
        name = name.removesuffix(f"({column.unit})")
    return name.replace("_", " ").strip()


def title(column: Column, unit: str) -> str:
    """The title of an axis: the column's label and the unit of the numbers."""
    return f"{label(column)} [{unit}]" if unit else label(column)


def sizes(values: Iterable[float]) -> tuple[tuple[float, str], ...]:
    """Marks for sizes in bytes on a logarithmic axis: powers of two such as 4 KiB; sixteen at most."""
    # `values`: the sizes; those above 0 count.
    positive = [v for v in values if 0 < v < float("inf")]
    if not positive:
        return ()
    low, high = max(0, math.floor(math.log2(min(positive)))), math.ceil(math.log2(max(positive)))
    step = next((s for s in (1, 2, 5) if (high - low) // s < _MOST_SIZES), 10)
    # multiples of ten are where the prefix changes, so that they are among the marks
    places = range(low - low % step, high + 1 + (-high % step), step)
    return tuple(
        (float(2**e), f"{2 ** (e % 10)} {_BINARY[min(e // 10, len(_BINARY) - 1)]}")
        for e in places
        if e // 10 < len(_BINARY)
    )


def size(value: float) -> str:
    """A size in bytes with a binary prefix: `64 KiB`, `1.5 MiB`."""
    step = 0
    while abs(value) >= 1024 and step < len(_BINARY) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.4g} {_BINARY[step]}"


def color(name: str, position: int) -> str:
    """The colour of a series: what means the same has the same colour in all pictures."""
    return _BY_MEANING.get(name) or _COLORS[position % len(_COLORS)]


def natural(name: str) -> tuple[object, ...]:
    """A key for natural sort order: `node9` before `node10`."""
    return tuple((0, int(p), "") if "0" <= p[0] <= "9" else (1, 0, p) for p in re.split(r"([0-9]{1,18})", name) if p)


def cell(value: Any, column: Column) -> str:
    if column.name in NAMING and value is not None:
        return str(value)
    if column.name in _PLACES and value is not None:
        return f"{value / 1e9:.6f} s"
    if isinstance(value, list):
        return shortened(", ".join(map(str, value)))
    return amount(value, column.unit)
