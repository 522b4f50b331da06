"""SQLite exports: damaged database files, read from their pages, against the `sqlite3` module and its integrity check.

Of a table that the check refuses no rows are read without a warning; of any other they are those that `sqlite3` reads.
The check also checks indexes and the map of pages of a database with auto_vacuum, and the decoder reads neither these
nor tables that are not rows by number: there, rows are compared only if everything is valid.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.readers.nsys.sqlite.database import quoted
from alltrace.trace.errors import AlltraceError

_FILE = Path(tempfile.gettempdir()) / f"fuzz-{os.getpid()}.sqlite"
_MANY = 600  # rows of a table with interior pages
_BATCH_ROWS = 100


def corpus() -> list[bytes]:
    """Small databases: rows of all types, long text, interior pages, WITHOUT ROWID, free pages, columns added later,
    UTF-16."""
    usual = [
        "CREATE TABLE t (a INTEGER, b INT, c TEXT, d REAL, e BLOB)",
        ("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [_row(n) for n in range(60)]),
    ]
    long = [("INSERT INTO StringIds VALUES (?, ?)", [(n, "long text " * (n * 37 % 300)) for n in range(1, 9)])]
    many = [
        "CREATE TABLE m (start INT NOT NULL, end INT NOT NULL, name INT)",
        ("INSERT INTO m VALUES (?, ?, ?)", [(10**12 + n * 1000, 10**12 + n * 1000 + n, n % 7) for n in range(_MANY)]),
    ]
    keyed = [
        "CREATE TABLE w (k INTEGER PRIMARY KEY, v TEXT) WITHOUT ROWID",
        ("INSERT INTO w VALUES (?, ?)", [(n, "v" * n) for n in range(40)]),
    ]
    free = [*usual, "CREATE TABLE gone (a)", ("INSERT INTO gone VALUES (?)", [("x" * 200,)] * 40), "DROP TABLE gone"]
    holes = [*many, "DELETE FROM m WHERE name = 3", "CREATE INDEX i ON m (name)"]
    added = [*usual, "ALTER TABLE t ADD COLUMN f INT", "ALTER TABLE t ADD COLUMN g TEXT DEFAULT 'none'"]
    strange = [*usual, "INSERT INTO t VALUES (1, 2, x'6162', 4, NULL)", "INSERT INTO t (a) VALUES (2)"]
    made = [_made([*usual, *long], size) for size in (512, 1024, 4096)]
    made += [_made(statements, 512) for statements in (many, keyed, free, holes, added, strange, [])]
    made += [
        _made([*many, *long], 512, "auto_vacuum=FULL"),
        _made(many, 1024),
        _made(usual, 512, "encoding='UTF-16le'"),
    ]
    return made


def _row(n: int) -> tuple[object, ...]:
    return n, None if n % 7 == 0 else 2 ** (n % 63), "name" * (n % 9), n / 3, bytes(n % 11)


def _made(statements: Iterable[str | tuple[str, list[tuple[object, ...]]]], page_bytes: int, *pragmas: str) -> bytes:
    path = _FILE.with_suffix(".made")
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in ("synchronous=OFF", "journal_mode=MEMORY", f"page_size={page_bytes}", *pragmas):
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        for statement in statements:
            if isinstance(statement, str):
                database.execute(statement)
            else:
                database.execute("BEGIN")
                database.executemany(*statement)
                database.execute("COMMIT")
    data = path.read_bytes()
    path.unlink()
    return data


def run(data: bytes) -> None:
    """All rows of all tables of the database `data`, both ways."""
    _FILE.write_bytes(data)
    with closing(open_sqlite(_FILE)) as source, closing(open_sqlite(_FILE, "sqlite3")) as plain:
        outcomes = [(_outcome(source, table), table in source.warnings()) for table in source.tables]
        expected = [_outcome(plain, table) for table in source.tables]
    for table, (outcome, warned), other in zip(source.tables, outcomes, expected, strict=True):
        if isinstance(outcome, AlltraceError):  # also where SQLite reads it: it takes a record's broken header for none
            raise outcome
        whole = _is_sound(table)
        assert whole or warned or not _is_checked_alone(table), (
            f"table {table} is read, but the integrity check refuses it"
        )
        assert not whole or _same(outcome, other), (
            f"table {table} is read otherwise than by sqlite3: {outcome}, {other}"
        )


def _outcome(source: RawSource, table: str) -> pa.Table | AlltraceError:
    types = {name: getattr(pa, kind)() for name, kind in source.tables[table].items()}
    try:
        source.count_about(table)
        whole = pa.Table.from_batches(source.batches(table, types, _BATCH_ROWS), pa.schema(list(types.items())))
        assert bool(source.count_about(table)) == bool(whole.num_rows)
    except AlltraceError as error:
        return error
    whole.validate(full=True)
    return whole


def _same(one: pa.Table, other: pa.Table | AlltraceError) -> bool:
    if isinstance(other, AlltraceError):
        return False
    return one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())  # the latter where a number is NaN


def _is_sound(table: str) -> bool:
    """Whether SQLite finds nothing wrong with a table."""
    try:
        with closing(_connected()) as database:
            found = database.execute(f"PRAGMA integrity_check({quoted(table)})").fetchall()
    except (sqlite3.Error, UnicodeDecodeError, MemoryError):  # the last of a record that claims to have gigabytes
        return False
    return found == [("ok",)]


def _is_checked_alone(table: str) -> bool:
    """Whether the check of a table looks at nothing but the rows that are decoded."""
    with closing(_connected()) as database:
        rows = database.execute("SELECT type FROM pragma_table_list WHERE name = ? AND NOT wr", (table,)).fetchall()
        indexes = database.execute("SELECT 1 FROM pragma_index_list(?)", (table,)).fetchall()
        (vacuum,), (encoding,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("auto_vacuum", "encoding"))
    return rows == [("table",)] and not indexes and not vacuum and encoding == "UTF-8"


def _connected() -> sqlite3.Connection:
    return sqlite3.connect(f"file:{_FILE}?mode=ro&immutable=1", uri=True)
