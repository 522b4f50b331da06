"""What the views share: launches with the report that they are from, the columns that name them, and tables from rows."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.recipes.base import AnswerColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.trace.kernel_code import Listing
    from alltrace.trace.launches import Launch, Metric, Sizes

Typed = tuple[AnswerColumn, type]


@dataclass(frozen=True)
class Profiled:
    """A launch, the name of the report that it is from, and its instructions if it was read with them."""

    report: str
    launch: Launch
    listing: Listing | None = None


def typed(name: str, kind: type, unit: str | None, doc: str) -> Typed:
    """A column and whether its cells are `str`, `int`, `float` or `bool`."""
    return AnswerColumn(name, unit, doc), kind


IDENTITY: tuple[Typed, ...] = (
    typed("report", str, None, "file"),
    typed("launch", int, None, "number of the launch in its report"),
    typed("name", str, None, "kernel"),
)
METRIC_VALUE: tuple[Typed, ...] = (
    typed("metric", str, None, "metric"),
    typed("unit", str, None, "unit of its value; null for a plain count, or if the name does not state it"),
    typed("value", float, None, "its value if it is a number, in its unit"),
    typed("text", str, None, "its value if it is text"),
)
CONFIGURATION: tuple[Typed, ...] = (
    typed("grid", str, None, "blocks in x, y and z"),
    typed("block", str, None, "threads in x, y and z"),
)


def identity(profiled: Profiled) -> tuple[str, int, str]:
    """The cells of `IDENTITY`."""
    return profiled.report, profiled.launch.number, profiled.launch.name


def sizes(given: Sizes | None) -> str | None:
    """A cell of `CONFIGURATION`, such as 8x1x1."""
    return None if given is None else "x".join(map(str, given))


def number_and_text(value: Metric) -> tuple[float | None, str | None]:
    """The cells of a column for numbers and one for texts."""
    return (None, value) if isinstance(value, str) else (float(value), None)


def wanted(name: str, patterns: Sequence[str] | None) -> bool:
    """Whether a name is one of the patterns, in which * is any text; if there are none, every name is."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def lacking(notes: Sequence[str], profiled: Sequence[Any], has: Sequence[bool], what: str, advice: str) -> tuple[str, ...]:
    """The notes, and one if launches lack what a view shows."""
    without = sum(not h for h in has)
    if not without:
        return tuple(notes)
    return (*notes, f"{without} of {len(profiled)} launches have no {what} in their report; {advice}")


def plain(columns: Sequence[Typed]) -> tuple[AnswerColumn, ...]:
    """The columns without their types."""
    return tuple(c for c, _ in columns)


def table(columns: Sequence[Typed], rows: Sequence[Sequence[Any]]) -> Any:
    """Rows as a `pyarrow.Table`; None is null."""
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pa.table({c.name: pa.array(part, kinds[kind]) for (c, kind), part in zip(columns, parts, strict=True)})
