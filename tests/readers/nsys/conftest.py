"""Builds small exports, and reads any export whole."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from alltrace.readers.nsys.read import open_report
from alltrace.trace.schema import EVENT_TABLES, TABLES

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[tuple[Any, ...]]


class Exports:
    """Writes exports as SQLite: `tables` maps `NAME(column TYPE, ...)` to rows; a type left out is INTEGER."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, tables: dict[str, Rows], name: str = "report.sqlite", strings: dict[int, Any] | None = None
    ) -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        connection.execute("create table StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        for key, text in (strings or {}).items():
            value, kind = (text, "?") if isinstance(text, str) else (text, "cast(? as TEXT)")
            connection.execute(f"insert into StringIds values (?, {kind})", (key, value))
        for declared, rows in tables.items():
            table, _, inside = declared.partition("(")
            columns = [c.split() for c in inside.rstrip(")").split(",")]
            columns = [c if len(c) > 1 else [c[0], "INTEGER"] for c in columns]
            connection.execute(
                f"create table {table} ({', '.join(f'{chr(34)}{c[0]}{chr(34)} {c[1]}' for c in columns)})"
            )
            if rows:
                connection.executemany(f"insert into {table} values ({', '.join('?' * len(columns))})", rows)
        connection.commit()
        connection.close()
        return path


class Whole:
    """A report read to the end: `report`, and each table as rows with the names as text."""

    def __init__(self, path: Path, wanted: tuple[str, ...] = EVENT_TABLES) -> None:
        reader = open_report(path)
        try:
            self.report = reader.report
            self.estimate = reader.rows_estimate(wanted)
            batches: dict[str, list[Any]] = {}
            for name, batch in reader.stream(wanted):
                batch.validate(full=True)
                assert batch.schema.equals(TABLES[name].arrow_schema())
                batches.setdefault(name, []).append(batch)
            self.dictionaries = reader.dictionaries()
            self.warnings = reader.warnings()
        finally:
            reader.close()
        self.tables = {name: pa.Table.from_batches(parts) for name, parts in batches.items()}
        for name, table in self.dictionaries.items():
            assert table.schema.equals(TABLES[name].arrow_schema())
        names = self.dictionaries["names"].to_pylist()
        self.texts = {n["id"]: n["value"] for n in names}
        assert len(self.texts) == len(names)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table or dictionary; a column of names holds text."""
        found = self.tables.get(table, self.dictionaries.get(table))
        if found is None:
            return []
        named = TABLES[table].name_columns()
        return [
            {k: self.texts[v] if k in named and v is not None else v for k, v in row.items()}
            for row in found.to_pylist()
        ]

    def column(self, table: str, column: str) -> list[Any]:
        """One column of `rows`."""
        return [row[column] for row in self.rows(table)]

    def everything(self) -> str:
        """All that a run would keep, as one text."""
        parts = [repr(self.report)]
        parts += [repr(t.to_pylist()) for t in (*self.tables.values(), *self.dictionaries.values())]
        return "\n".join(parts)


@pytest.fixture
def export(tmp_path: Path) -> Exports:
    return Exports(tmp_path)


@pytest.fixture
def read() -> type[Whole]:
    return Whole


@pytest.fixture
def tid() -> Any:
    """The global thread id of a thread of a process, with the VM bits that nsys sets; `tid(pid)` is a global process
    id."""
    return lambda pid, thread=0: (1 << 48) | (pid << 24) | thread
