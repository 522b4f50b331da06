"""What views share: launches with their report, the columns that name them, and tables from rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from alltrace.trace import columns as col
from alltrace.trace.kernel_code import Listing
from alltrace.trace.launches import Launch, Metric, Sizes


@dataclass(frozen=True)
class Profiled:
    """A launch, the name of the report that it is from, and its instructions if it was read with them."""

    report: str
    launch: Launch
    listing: Listing | None = None


IDENTITY: col.Columns = (
    col.text("report", "file"),
    col.whole("launch", "number of the launch in its report"),
    col.text("name", "kernel"),
)
METRIC_VALUE: col.Columns = (
    col.text("metric", "metric"),
    col.text("unit", "unit of its value; null for a plain count, or if the name does not state it"),
    col.real("value", "its value if it is a number, in its unit"),
    col.text("text", "its value if it is text"),
)
CONFIGURATION: col.Columns = (col.text("grid", "blocks in x, y and z"), col.text("block", "threads in x, y and z"))


def identity(profiled: Profiled) -> tuple[str, int, str]:
    return profiled.report, profiled.launch.number, profiled.launch.name


def sizes(three: Sizes | None) -> str | None:
    """A cell of `CONFIGURATION`, such as 8x1x1."""
    return None if three is None else "x".join(map(str, three))


def number_and_text(value: Metric) -> tuple[float | None, str | None]:
    """The cells of a column for numbers and one for texts."""
    return (None, value) if isinstance(value, str) else (float(value), None)


def wanted(name: str, patterns: Sequence[str] | None) -> bool:
    """Whether a name is one of the patterns, in which * is any text; if there are none, every name is."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def lacking(
    notes: Sequence[str], profiled: Sequence[Any], has: Sequence[bool], what: str, advice: str
) -> tuple[str, ...]:
    """The notes, and one if launches lack what a view shows."""
    without = sum(not h for h in has)
    if not without:
        return tuple(notes)
    return (*notes, f"{without} of {len(profiled)} launches have no {what} in their report; {advice}")


def table(columns: col.Columns, rows: Sequence[Sequence[Any]]) -> Any:
    """Rows as a `pyarrow.Table`; None is null."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pa.table(
        [pa.array(own, col.arrow_type(c.type)) for c, own in zip(columns, values, strict=True)],
        [c.name for c in columns],
    )
