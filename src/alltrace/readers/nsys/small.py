"""Small tables of an export as Python rows, from any version."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from alltrace.readers.nsys.mapping import find_table
from alltrace.readers.nsys.source import RawSource
from alltrace.trace.names import text_of_bytes


def small_rows(source: RawSource, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as tuples of the wanted columns; an absent column yields None, an absent table no rows."""
    present_table = find_table(source.tables, table)
    if present_table is None:
        return
    types = source.tables[present_table]
    present = [c for c in columns if c in types]
    if not present:
        return
    rows = source.rows(present_table, present)
    if len(present) == len(columns):
        yield from rows
        return
    places = [present.index(c) if c in types else -1 for c in columns]
    for row in rows:
        padded = (*row, None)
        yield tuple([padded[place] for place in places])


def rows_of_batches(source: RawSource, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """`RawSource.rows` by `RawSource.batches`."""
    types = source.tables[table]
    for batch in source.batches(table, {c: raw_type(types[c]) for c in columns}):
        values = [column.to_pylist() for column in batch.columns]
        for n, column in enumerate(columns):
            if types[column] == "binary":
                values[n] = [None if v is None else text_of_bytes(v) for v in values[n]]
        yield from zip(*values, strict=True)


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
