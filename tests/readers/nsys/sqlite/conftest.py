"""Databases made to order, and both ways of reading them side by side."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from alltrace.readers.nsys.source import RawSource

    Read = Callable[..., pa.Table | str]


def _make(path: Path, statements: Iterable[object], pragmas: Iterable[str] = ()) -> Path:
    """A database; a statement is SQL, or SQL with the rows to run it on."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous=OFF")
        for pragma in pragmas:
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        for statement in statements:
            if isinstance(statement, str):
                database.execute(statement)
            else:
                database.execute("BEGIN")
                database.executemany(*statement)
                database.execute("COMMIT")
    return path


def _types(source: RawSource, table: str) -> dict[str, pa.DataType]:
    return {name: getattr(pa, kind)() for name, kind in source.tables[table].items()}


def _read(
    source: RawSource, table: str, types: dict[str, pa.DataType] | None = None, batch_rows: int = 131_072
) -> pa.Table | str:
    """A table whole, checked for being sound Arrow; or what the error said."""
    types = types or _types(source, table)
    try:
        batches = list(source.batches(table, types, batch_rows))
    except InputError as error:
        return str(error)
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    whole = pa.Table.from_batches(batches, pa.schema(list(types.items())))
    whole.validate(full=True)
    return whole


def _rows(source: RawSource, table: str) -> list[tuple[object, ...]] | str:
    """A table as `RawSource.rows` gives it; or what the error said."""
    try:
        return list(source.rows(table, list(source.tables[table])))
    except InputError as error:
        return str(error)


def _as_rows(read: pa.Table | str) -> list[tuple[object, ...]] | str:
    """What `RawSource.rows` must give of a table that was read by batches, or the error that it must raise."""
    if isinstance(read, str):
        return read
    columns = [c.to_pylist() for c in read.columns]
    return [
        tuple(v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for v in row)
        for row in zip(*columns, strict=True)
    ]


@pytest.fixture
def as_rows() -> Callable[[pa.Table | str], list[tuple[object, ...]] | str]:
    return _as_rows


@pytest.fixture
def rows() -> Callable[[RawSource, str], list[tuple[object, ...]] | str]:
    return _rows


@pytest.fixture
def make() -> Callable[..., Path]:
    return _make


@pytest.fixture
def read() -> Read:
    return _read


@pytest.fixture
def both() -> Callable[..., dict[str, pa.Table | str]]:
    """Reads every table of a file both ways, and gives what they agree on."""

    def agreed(path: Path, batch_rows: int = 131_072) -> dict[str, pa.Table | str]:
        with closing(open_sqlite(path)) as auto, closing(open_sqlite(path, "sqlite3")) as slow:
            assert auto.tables == slow.tables
            found = {}
            for table in auto.tables:
                one, other = _read(auto, table, None, batch_rows), _read(slow, table, None, batch_rows)
                assert type(one) is type(other), (one, other)
                assert isinstance(one, str) or one.equals(other), table
                for source, read in ((auto, one), (slow, other)):
                    rows = _rows(source, table)
                    if isinstance(
                        read, str
                    ):  # of several columns that do not fit, batches of another length name another one
                        assert isinstance(rows, str), table
                    else:
                        assert rows == _as_rows(read), table
                if not isinstance(one, str):
                    about = auto.count_about(table)
                    assert 0.5 * one.num_rows <= about <= 2 * one.num_rows
                found[table] = one
            return found

    return agreed
