"""Small tables of an export as Python rows, from any version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.readers.nsys.mapping import find_table
from alltrace.trace.names import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alltrace.readers.nsys.source import RawSource


def small_rows(source: RawSource, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as tuples of the wanted columns; an absent column yields None, an absent table no rows.

    Bytes, of a column that is declared so, are given as text.
    """
    found = find_table(source.tables, table)
    if found is None:
        return
    types = source.tables[found]
    present = [c for c in columns if c in types]
    if not present:
        return
    for batch in source.batches(found, {c: raw_type(types[c]) for c in present}):
        values = {c: batch.column(i).to_pylist() for i, c in enumerate(present)}
        for column in (c for c in present if types[c] == "binary"):
            values[column] = [None if v is None else text_of_bytes(v) for v in values[column]]
        nothing = [None] * batch.num_rows
        yield from zip(*(values.get(c, nothing) for c in columns), strict=True)


def raw_type(name: str) -> Any:
    """The Arrow type of a raw column's type name."""
    return {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "binary": pa.binary()}[name]


def whole(value: Any) -> int | None:
    """`value` as an integer, or None if it is not one."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
