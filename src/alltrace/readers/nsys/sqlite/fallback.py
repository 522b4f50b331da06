"""Rows of a table by the `sqlite3` module: slow, and able to read everything that SQLite can."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.sqlite.columns import as_text
from alltrace.readers.nsys.sqlite.database import Access, Watch, connection, quoted
from alltrace.readers.nsys.sqlite.detect import Header
from alltrace.readers.nsys.sqlite.schema import Table
from alltrace.trace.errors import InputError

_FETCH_ROWS = 512
_FETCH_BYTES = 1 << 20
_FLUSH_BYTES = 64 << 20
_SMALLEST_ROW = 6  # bytes in a page, with its pointer
_TIMES = frozenset(("start", "end", "timestamp", "rawTimestamp"))
_NO_TIME = 1 << 62
_FEW, _FEW_SHARE = 3, 100


def fallback_batches(
    access: Access, header: Header, table: Table, types: Mapping[str, pa.DataType], batch_rows: int, after: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a table, in its own order.

    `access`: how to open the database. `header`: of the file. `table`: the table or view. `types`: the columns wanted,
    with the type to deliver. `batch_rows`: the most rows of a batch. `after`: only rows with a larger number; None for
    all. Raises `InputError`: SQLite finds the file broken, or a value does not fit its column's type.
    """
    # a cyclic tree yields rows forever; an acyclic one can only yield this many
    limit = header.page_count * header.page_size // _SMALLEST_ROW if table.root else None
    rows: list[tuple[Any, ...]] = []
    size = delivered = 0
    fetch = 1  # rows at a time: many short ones, or one long one
    with connection(access, f"table {table.name!r}") as opened:
        watch = Watch(opened)
        query = _query(table, types, after)
        cursor = opened.execute(query, () if after is None else (after,))
        while some := cursor.fetchmany(min(fetch, batch_rows - len(rows))):
            watch.progress()
            delivered += len(some)
            if limit is not None and delivered > limit:
                raise InputError(
                    access.path, found=f"table {table.name!r} is corrupt: it has more rows than the file has room for"
                )
            rows += some
            more = sum(len(value) for row in some for value in row if isinstance(value, bytes))
            size += more
            fetch = min(2 * fetch, _FETCH_ROWS) if more < _FETCH_BYTES else max(fetch // 2, 1)
            if len(rows) == batch_rows or size >= _FLUSH_BYTES:
                yield _batch(access.path, table.name, types, rows)
                rows, size = [], 0
        if rows:
            yield _batch(access.path, table.name, types, rows)


def fallback_count(access: Access, table: Table) -> int:
    """The number of rows of a table or view."""
    with connection(access, f"table {table.name!r}") as opened:
        watch = Watch(opened)
        watch.progress()
        return int(opened.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()[0])


def _query(table: Table, types: Mapping[str, pa.DataType], after: int | None) -> str:
    query = f"SELECT {', '.join(map(quoted, types))} FROM {quoted(table.name)}"
    if table.root:
        query += " NOT INDEXED"  # an index with all columns would return the rows in its own order
    if table.rowid:
        if after is not None:
            query += f" WHERE {table.rowid} > ?"
        query += f" ORDER BY {table.rowid}"
    return query


def _batch(path: Path, table: str, types: Mapping[str, pa.DataType], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = []
    for (name, wanted), values in zip(types.items(), zip(*rows, strict=True), strict=True):
        try:
            arrays.append(
                _array(wanted, list(values) if wanted != pa.int64() or name not in _TIMES else _as_times(values))
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
            problem = f"table {table!r}, column {name!r} holds {_misfit(wanted, values)}"
            raise InputError(
                path, found=problem, expected=f"values that fit {wanted}", advice="leave this column out"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _array(wanted: pa.DataType, values: list[Any]) -> pa.Array:
    if wanted == pa.string():
        return as_text([_as_bytes(value) for value in values])
    if wanted == pa.binary():
        return pa.array([_only_bytes(value) for value in values], wanted)
    if wanted == pa.float64():
        return pa.array([_as_real(value) for value in values], wanted)
    return pc.cast(pa.array([_as_integer(value) for value in values], pa.int64()), wanted)


def _as_times(values: tuple[Any, ...]) -> list[Any]:
    """The times; of rows with something else one that cannot be true, so that the import sets them aside."""
    times = [
        value if value is None or (isinstance(value, (int, float)) and value == value // 1) else _NO_TIME
        for value in values
    ]
    return times if times.count(_NO_TIME) <= max(_FEW, len(values) // _FEW_SHARE) else list(values)


def _as_integer(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise TypeError


def _as_real(value: Any) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return None if value is None else float(value)
    raise TypeError


def _only_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, int):
        return str(value).encode()
    with closing(sqlite3.connect(":memory:")) as memory:  # a number as text, just as SQLite writes it
        return str(memory.execute("SELECT CAST(? AS TEXT)", (value,)).fetchone()[0]).encode()


def _misfit(wanted: pa.DataType, values: tuple[Any, ...]) -> str:
    """The kind of the first value that does not fit."""
    for value in values:
        try:
            _array(wanted, [value])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
            kind = {int: "the integer", float: "the number"}.get(type(value))
            return f"{kind} {value}" if kind else "text or bytes"
    return "values of several kinds"
