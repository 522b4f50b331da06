"""What the views share: launches with the report that they are from, the columns that name them, and tables from rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.recipes.base import AnswerColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.trace.launches import Launch, Sizes

Typed = tuple[AnswerColumn, type]


@dataclass(frozen=True)
class Profiled:
    """A launch and the name of the report that it is from."""

    report: str
    launch: Launch


def typed(name: str, kind: type, unit: str | None, doc: str) -> Typed:
    """A column and whether its cells are `str`, `int`, `float` or `bool`."""
    return AnswerColumn(name, unit, doc), kind


IDENTITY: tuple[Typed, ...] = (
    typed("report", str, None, "file"),
    typed("launch", int, None, "number of the launch in its report"),
    typed("name", str, None, "kernel"),
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


def plain(columns: Sequence[Typed]) -> tuple[AnswerColumn, ...]:
    """The columns without their types."""
    return tuple(c for c, _ in columns)


def table(columns: Sequence[Typed], rows: Sequence[Sequence[Any]]) -> Any:
    """Rows as a `pyarrow.Table`; None is null."""
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pa.table({c.name: pa.array(part, kinds[kind]) for (c, kind), part in zip(columns, parts, strict=True)})
