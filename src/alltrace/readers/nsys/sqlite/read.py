"""An SQLite export, opened: tables, counts and rows, by whichever way can read them."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from alltrace.readers.nsys.source import rows_per_batch
from alltrace.readers.nsys.sqlite.database import Access, changed, plan_access
from alltrace.readers.nsys.sqlite.detect import Header, check_export, open_file, read_header
from alltrace.readers.nsys.sqlite.schema import Table, read_schema
from alltrace.trace.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from tempfile import TemporaryDirectory

    from alltrace.readers.nsys.sqlite.pages import TreePages

_ENGINES = ("auto", "fast", "sqlite3")
_LEAF = 0x0D
_TABLE_KINDS = (0x05, _LEAF)  # first byte of a tree of rows by number
_INDEX_KINDS = (0x02, 0x0A)  # of a tree by key: a table WITHOUT ROWID
_NOT_ALL_CHECKED = (
    "has a value that is not of its column's type, or is left to a default; from there on SQLite read it, which does "
    "not notice all damage"
)


class SqliteSource:
    """A `RawSource` over an SQLite export, safe for several threads at once; see `open_sqlite`."""

    def __init__(self, path: str | PathLike[str], engine: str = "auto") -> None:
        if engine not in _ENGINES:
            raise UsageError.unknown("engine", engine, _ENGINES)
        self.path: Path = Path(path)
        self._engine = engine
        self._lock = threading.Lock()
        self._counted_about: dict[str, int] = {}  # opening calls this three times
        self._warnings: dict[str, str] = {}
        self._descriptor = -1
        self._release: weakref.finalize[..., SqliteSource] | None = None
        self._header, self._access = self._open()
        try:
            self._stamp = self._file_stamp(self._descriptor)
            self._schema = read_schema(self._access)
            check_export(self.path, self._schema)
        except BaseException:
            self.close()
            raise
        self._tables = MappingProxyType(
            {
                name: MappingProxyType({column.name: column.type for column in table.columns.values()})
                for name, table in self._schema.items()
            }
        )

    @property
    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """Column name to type name, for each table and view, in the order of the file."""
        return self._tables

    def count_about(self, table: str) -> int:
        """About the number of rows, by a sample of pages; 0 only if none. Raises `InputError`: corrupt or cut short."""
        if table not in self._counted_about:
            self._counted_about[table] = self._count_about(self._table(table))
        return self._counted_about[table]

    def _count_about(self, table: Table) -> int:
        from alltrace.readers.nsys.sqlite.fallback import fallback_count

        with self._handle() as descriptor:
            tree = self._tree(table, descriptor)
            if tree is None or self._why_not_fast(table) is not None:
                return fallback_count(self._access, table)
            return tree.count_about()

    def batches(self, table: str, columns: Mapping[str, Any], batch_rows: int | None = None) -> Iterator[Any]:
        """The rows of `table`; see `RawSource.batches`. A batch has fewer if its text is long.

        Raises `InputError` also if the file changes meanwhile, `UsageError`: the table or column does not exist.
        """
        declared = self._table(table)
        if batch_rows is not None and batch_rows < 1:
            raise UsageError(f"a batch has at least one row, not {batch_rows}")
        if not columns:
            raise UsageError(f"no column of table {table!r} is asked for")
        for name, wanted in columns.items():
            self._check_column(declared, name, wanted)
        return self._rows(declared, dict(columns), batch_rows or rows_per_batch(columns))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a small `table` as Python values; see `RawSource.rows`."""
        declared = self._table(table)
        rows = self._rows_of_one_page(declared, columns)
        if rows is not None:
            return iter(rows)
        from alltrace.readers.nsys.small import rows_of_batches

        return rows_of_batches(self, table, columns)

    def _rows_of_one_page(self, table: Table, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        if self._engine == "sqlite3":
            return None
        with self._handle() as descriptor:
            tree = self._tree(table, descriptor)
            if tree is None or tree.root_kind() != _LEAF or self._why_not_fast(table) is not None:
                return None
            from alltrace.readers.nsys.sqlite.one_page import rows_of_page

            rows = rows_of_page(tree, table, columns)
            self._check_unchanged(descriptor)
            return rows

    def warnings(self) -> Mapping[str, str]:
        """What a user should know of the rows that were read, by table."""
        return self._warnings

    def close(self) -> None:
        """Release the file; batches handed out stay valid, and those still being read are finished."""
        with self._lock:
            if self._release is not None:
                self._release()
            self._descriptor = -1

    def _open(self) -> tuple[Header, Access]:
        descriptor = open_file(self.path)
        try:
            header = read_header(self.path, descriptor)
            access = plan_access(self.path, header)
        except BaseException:
            os.close(descriptor)
            raise
        if access.scratch is not None:
            os.close(descriptor)
            try:
                descriptor = open_file(access.file)
                header = read_header(self.path, descriptor)
            except BaseException:
                access.scratch.cleanup()
                raise
        self._descriptor = descriptor
        self._release = weakref.finalize(self, _release, descriptor, access.scratch)
        return header, access

    def _table(self, name: str) -> Table:
        if name not in self._schema:
            raise UsageError.unknown("table", name, self._schema)
        return self._schema[name]

    def _check_column(self, table: Table, name: str, wanted: Any) -> None:
        import pyarrow as pa

        if name not in table.columns:
            raise UsageError.unknown(f"column of table {table.name!r}", name, table.columns)
        own = table.columns[name].type
        # a column declared as text can still hold bytes
        more = {"int64": [pa.int32(), pa.int16(), pa.int8()], "string": [pa.binary()]}
        allowed = [getattr(pa, own)(), *more.get(own, [])]
        if wanted not in allowed:
            raise InputError(
                self.path,
                found=f"table {table.name!r}, column {name!r} is declared as {own}",
                expected=str(wanted),
                advice="leave this column out",
            )

    def _rows(self, table: Table, columns: dict[str, Any], batch_rows: int) -> Iterator[Any]:
        with self._handle() as descriptor:
            tree = self._tree(table, descriptor)
            reason = "it is not a table of rows" if tree is None else self._why_not_fast(table)
            after: int | None = None
            if reason is None and tree is not None and self._engine != "sqlite3":
                from alltrace.readers.nsys.sqlite.fast import Scan

                scan = Scan(tree, table, columns, batch_rows)
                yield from scan.batches()
                self._check_unchanged(descriptor)
                if not scan.stopped:
                    return
                reason, after = "a value is not of the declared type, or is left to a default", scan.last_rowid
                self._warnings[table.name] = f"Table {printable(table.name)} {_NOT_ALL_CHECKED}."
            if self._engine == "fast":
                raise InputError(
                    self.path, found=f"table {table.name!r} needs sqlite3: {reason}", advice="use engine 'auto'"
                )
            from alltrace.readers.nsys.sqlite.fallback import fallback_batches

            yield from fallback_batches(self._access, self._header, table, columns, batch_rows, after)
            self._check_unchanged(descriptor)

    def _tree(self, table: Table, descriptor: int) -> TreePages | None:
        if not table.root:
            return None
        from alltrace.readers.nsys.sqlite.pages import TreePages

        tree = TreePages(self.path, descriptor, self._header, table.name, table.root)
        if tree.root_kind() not in (_TABLE_KINDS if table.rowid else _TABLE_KINDS + _INDEX_KINDS):
            raise tree.corrupt(f"page {table.root} is not the first page of a table")
        return tree

    def _why_not_fast(self, table: Table) -> str | None:
        """What about a table only SQLite can read, or None."""
        if self._access.journal:
            return "a journal is next to the file"
        if not self._header.utf8:
            return "its text is not UTF-8"
        if not table.plain:
            return "it has generated columns"
        if table.rowid is None:
            return "it is WITHOUT ROWID, or its columns hide the numbers of the rows"
        return None

    @contextmanager
    def _handle(self) -> Iterator[int]:
        """A file descriptor for one pass, so that closing the source does not pull it away."""
        with self._lock:
            if self._descriptor < 0:
                raise UsageError(f"{self.path} is closed already")
            descriptor = os.dup(self._descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _check_unchanged(self, descriptor: int) -> None:
        if self._file_stamp(descriptor) != self._stamp:
            raise changed(self.path)

    @staticmethod
    def _file_stamp(descriptor: int) -> tuple[int, int]:
        status = os.fstat(descriptor)
        return status.st_size, status.st_mtime_ns


def _release(descriptor: int, scratch: TemporaryDirectory[str] | None) -> None:
    os.close(descriptor)
    if scratch is not None:
        scratch.cleanup()
