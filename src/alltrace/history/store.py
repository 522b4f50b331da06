"""The history file: a DuckDB database with a few rows for each run.

It may come from elsewhere, so nothing in it is executed: its connection has no access to files, URLs and extensions,
and a database with other tables than expected is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.trace.errors import InputError, printable

HISTORY_VERSION = 1
"""Version of the tables below."""

_TABLES = {
    "about": {"version": "BIGINT"},
    "runs": {"run_id": "VARCHAR", "path": "VARCHAR", "stamps": "VARCHAR", "digest": "VARCHAR", "code": "VARCHAR",
        "job": "VARCHAR", "revision": "VARCHAR", "tags": "VARCHAR[]", "start_utc_ns": "BIGINT", "ranks": "BIGINT",
        "hosts": "BIGINT", "span_ns": "BIGINT", "steps": "BIGINT", "step_ns": "BIGINT", "compute_percent": "DOUBLE",
        "exposed_communication_percent": "DOUBLE", "exposed_copy_percent": "DOUBLE", "idle_percent": "DOUBLE",
        "lost_percent": "DOUBLE"},
    "hosts": {"run_id": "VARCHAR", "host": "VARCHAR", "ranks": "BIGINT", "slow": "BOOLEAN", "kind": "VARCHAR",
        "lost_percent": "DOUBLE", "blame_percent": "DOUBLE"},
    "findings": {"run_id": "VARCHAR", "place": "BIGINT", "kind": "VARCHAR", "severity": "VARCHAR", "lost_ns": "BIGINT",
        "lost_percent": "DOUBLE", "hosts": "VARCHAR[]", "where": "VARCHAR"},
}  # fmt: skip
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_MAGIC = b"DUCK"  # after the checksum of the first header; DuckDB would open other files by their type
_EXPECTED = "a history file that `alltrace history` made"
_ANOTHER = "give another file, or create one from the run folders with another --history"


class Kept(NamedTuple):
    """What the history knows of a run without reading it: its id, where it was, and the state of its manifest there."""

    run_id: str
    path: str
    stamps: str
    digest: str


class RunRows(NamedTuple):
    """What the history keeps of a run: its row of `runs`, without `path`, `stamps`, `digest`; and other rows."""

    run: Mapping[str, Any]
    hosts: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]


class History:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ask(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        cursor = self._connection.execute(statement, parameters or {})
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def kept(self) -> list[Kept]:
        return [Kept(**row) for row in self.ask(f"SELECT {', '.join(Kept._fields)} FROM runs ORDER BY path")]

    def put(self, rows: RunRows, kept: Kept) -> None:
        """Add a run, or replace it, completely or not at all."""
        self._connection.begin()
        try:
            for table in ("runs", "hosts", "findings"):
                self._connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [kept.run_id])
            self._insert("runs", [{**rows.run, **kept._asdict()}])
            for table, own in (("hosts", rows.hosts), ("findings", rows.findings)):
                self._insert(table, [{**row, "run_id": kept.run_id} for row in own])
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def move(self, kept: Kept) -> None:
        """Note where a run is now and how its manifest looks there; what it holds is as before."""
        self._connection.execute(
            "UPDATE runs SET path = ?, stamps = ?, digest = ? WHERE run_id = ?",
            [kept.path, kept.stamps, kept.digest, kept.run_id],
        )

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = _TABLES[table]
        if rows:
            marks = ", ".join("?" for _ in columns)
            self._connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [[row[c] for c in columns] for row in rows]
            )


@contextmanager
def open_history(path: Path | None, *, write: bool = False) -> Iterator[History]:
    """The history in the file `path`; with `write` it is made if missing. Without a path, an empty one in memory."""
    import duckdb

    place = ":memory:" if path is None else str(path)
    if path is not None:
        _check_place(path, write=write)
    try:
        # an absolute path is never the address of a service, such as md:
        connection = duckdb.connect(
            place if path is None else str(path.absolute()), read_only=path is not None and not write, config=_CONFIG
        )
    except duckdb.Error as error:
        raise _unreadable(place, error) from None
    try:
        if path is None or write:
            _create(connection)
        _check_tables(connection, place)
        yield History(connection)
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise _unreadable(place, error) from None
    finally:
        connection.close()


def _check_place(path: Path, *, write: bool) -> None:
    try:
        size = path.stat().st_size if path.exists() else None
        if path.is_dir():
            raise InputError(path, found="a folder", expected=_EXPECTED, advice=_ANOTHER)
        if size is None and not write:
            raise InputError(path, found="there is no such file", expected=_EXPECTED, advice="check the name")
        if size is not None and _start(path)[8:] != _MAGIC:
            raise InputError(path, found="it is not a DuckDB file", expected=_EXPECTED, advice=_ANOTHER)
        if size is None and not path.absolute().parent.is_dir():
            raise InputError(
                path, found="its folder does not exist", expected="a folder to write to", advice="make it first"
            )
    except OSError as error:
        raise InputError.cannot_be("read", path, error, advice="check the permissions") from None


def is_database(path: Path) -> bool:
    """Whether a file is a DuckDB database, whatever its name."""
    return path.is_file() and _start(path)[8:] == _MAGIC


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(12)


def _unreadable(place: str, error: Exception) -> InputError:
    text = printable(str(error).partition("\n")[0])
    if "set lock" in text:
        return InputError(
            place, found="another process has it open", advice="wait until it has finished, then run this again"
        )
    return InputError(place, found=f"it cannot be read or written ({text})", expected=_EXPECTED, advice=_ANOTHER)


def _tables(connection: Any) -> dict[str, dict[str, str]]:
    """The columns and types of every relation of the database, by name; views by their name and a mark."""
    columns: dict[str, dict[str, str]] = {}
    for name, kind, column, data_type in connection.execute(
        "SELECT t.table_name, t.table_type, c.column_name, c.data_type FROM information_schema.tables t "
        "JOIN information_schema.columns c USING (table_catalog, table_schema, table_name) ORDER BY ordinal_position"
    ).fetchall():
        columns.setdefault(name if kind == "BASE TABLE" else f"{name} ({kind})", {})[column] = data_type
    return columns


def _create(connection: Any) -> None:
    """Make the tables if the database is new."""
    if _tables(connection):
        return
    connection.begin()
    for table, columns in _TABLES.items():
        columns_sql = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {table} ({columns_sql})")
    connection.execute("INSERT INTO about VALUES (?)", [HISTORY_VERSION])
    connection.commit()


def _check_tables(connection: Any, place: str) -> None:
    tables = _tables(connection)
    if tables.get("about") != _TABLES["about"]:
        raise InputError(place, found="a DuckDB file with other contents", expected=_EXPECTED, advice=_ANOTHER)
    versions = connection.execute("SELECT version FROM about").fetchall()
    if versions != [(HISTORY_VERSION,)]:
        stated = ", ".join(str(v) for (v,) in versions) or "none"
        raise InputError(
            place,
            found=f"a history of version {stated}",
            expected=f"version {HISTORY_VERSION}",
            advice="create a new one with another -o",
        )
    if tables != _TABLES:
        raise InputError(place, found="a history with changed tables", expected=_EXPECTED, advice=_ANOTHER)
