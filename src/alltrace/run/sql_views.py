"""SQL over a run: one DuckDB view per canonical table, over all ranks, on the aligned clock, with names as text."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from alltrace.run.overlay import SHARED_TABLES, collectives_file, shared_file
from alltrace.trace.errors import AlltraceError
from alltrace.trace.kernel_rules import MEETING, UNCLASSIFIED
from alltrace.trace.schema import TABLES, Column, Table
from alltrace.trace.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import duckdb
    import pyarrow as pa

    from alltrace.run.checksums import RankFiles
    from alltrace.run.clock import ClockMap
    from alltrace.run.manifest import Manifest, RankRecord
    from alltrace.run.overlay import Overlay

_SQL_TYPES = {
    "time": "BIGINT", "name": "VARCHAR", "enum": "VARCHAR", "text": "VARCHAR", "int8": "TINYINT", "int16": "SMALLINT",
    "int32": "INTEGER", "int64": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN", "binary": "BLOB",
}  # fmt: skip


_DURATION = Column("duration", "int64", "ns", 'what "end" - start is')
VIEWS = (*(t for t in TABLES if t != "names"), *SHARED_TABLES)  # the tables that are views over the files of a run


class Run(Protocol):
    """What the views need of a run (`alltrace.run.store.Run`)."""

    path: Path
    files: RankFiles
    overlay: Overlay | None

    @property
    def manifest(self) -> Manifest:
        """The run's facts, with its clocks."""

    @property
    def ranks(self) -> tuple[RankRecord, ...]:
        """The ranks, by number."""

    def clock(self, record: RankRecord) -> ClockMap:
        """The map from the time in the files of a rank to the run's aligned clock."""

    def has(self, record: RankRecord, table: str) -> bool:
        """Whether a rank has rows of a canonical table."""

    def left_out(self) -> tuple[str, ...]:
        """The tables that were not imported."""

    def name_table(self) -> pa.Table:
        """All interned strings of the run (`id`, `value`)."""


def timed(table: Table) -> bool:
    """Whether its rows last, so that SQL has their `duration`."""
    return {"start", "end"} <= {column.name for column in table.columns}


def with_duration(table: Table) -> Sequence[Column]:
    """The columns of a canonical table in SQL after `rank` and `host`: its own, and `duration` if its rows last."""
    return (*table.columns, *([_DURATION] if timed(table) else ()))


def connect(
    run: Run, tables: Sequence[str] | None = None, *, ids: bool = False, read: Collection[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in memory with the table `ranks`, the table `names` and a view for each canonical table.

    `tables`: None for all, and those of the alignment. `read`: the views of `VIEWS` that will be read, whose files are
    checked, as DuckDB does not notice damage; others have no rows. `ids`: whether the schema `ids` is wanted too, the
    same views with ids of names. Raises `DamageError`: a file is missing or not as it was written.
    """
    import duckdb

    connection = duckdb.connect(
        ":memory:", config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    left_out = run.left_out()
    read = VIEWS if read is None else read
    canonical = [t for n, t in TABLES.items() if n not in left_out and n != "names" and (tables is None or n in tables)]
    _make_ranks(connection, run)
    connection.register("_names", run.name_table())
    connection.execute("CREATE TABLE names AS SELECT id, value FROM _names")
    connection.unregister("_names")
    try:
        for table in canonical:
            connection.execute(_view_sql(run, table, read=table.name in read))
        if ids:
            connection.execute("CREATE SCHEMA ids")
            for table in canonical:
                connection.execute(_view_sql(run, table, ids=True, read=table.name in read))
        for table in SHARED_TABLES.values() if tables is None else ():
            connection.execute(_shared_sql(run, table, read=table.name in read))
    except AlltraceError:
        connection.close()
        raise
    return connection


def view_files(run: Run, read: Collection[str] | None = None) -> list[str]:
    """The files that the views in `read` (None: all) read, as `connect` names them. Raises `DamageError`."""
    wanted = [t for t in VIEWS if t not in run.left_out() and (read is None or t in read)]
    return [file for table in wanted for file in _files(run, table)]


def _files(run: Run, table: str) -> list[str]:
    if table in SHARED_TABLES:
        file = shared_file(run.files, run.overlay, table)
        return [] if file is None else [f"{plain_folder(file.parent)}/{file.name}"]
    there = [r for r in run.ranks if run.has(r, table)]
    if table == "collectives" and run.overlay is not None:
        for r in there:
            run.overlay.collectives(r.rank)
        aligned = plain_folder(run.overlay.folder)
        return [f"{aligned}/{collectives_file(r.rank)}" for r in there]
    for r in there:
        run.files.of(r).path(f"{table}.parquet")
    folder = plain_folder(run.path)
    return [f"{folder}/{r.folder}/{table}.parquet" for r in there]


def _make_ranks(connection: Any, run: Run) -> None:
    connection.execute(
        "CREATE TABLE ranks (rank INTEGER, local_rank INTEGER, host VARCHAR, rank_source VARCHAR, start_ns BIGINT, "
        "end_ns BIGINT, role VARCHAR)"
    )
    connection.execute(
        "CREATE TABLE _clocks (rank INTEGER, host VARCHAR, shift_ns BIGINT, drift DOUBLE, origin_ns BIGINT)"
    )
    rows, clocks = [], []
    for r in run.ranks:
        clock = run.clock(r)
        start, end = (None if time is None else clock.apply_one(time) for time in (r.start_ns, r.end_ns))
        rows.append((r.rank, r.local_rank, r.host, r.rank_source, start, end, run.manifest.role_of(r)))
        clocks.append((r.rank, r.host, clock.shift_ns, clock.drift, clock.origin_ns))
    if rows:
        connection.executemany("INSERT INTO ranks VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO _clocks VALUES (?, ?, ?, ?, ?)", clocks)


def _view_sql(run: Run, table: Table, *, read: bool, ids: bool = False) -> str:
    view = f'{"ids." if ids else ""}"{table.name}"'
    # only folders named rank=N state their rank; the alignment has files with such names
    rank, parted = "t.rank", ", hive_partitioning = true, hive_types = {'rank': INTEGER}"
    files = _files(run, table.name) if read else []
    if table.name == "collectives" and run.overlay is not None:
        rank = r"CAST(regexp_extract(t.filename, 'rank=(\d+)\.parquet$', 1) AS INTEGER)"
        parted = ", filename = true, hive_partitioning = false"
    if not files:
        return _empty_sql(view, with_duration(table), ids=ids)
    joins = []
    selected = [f"{rank} AS rank", "c.host AS host"]
    for n, column in enumerate(table.columns):
        if column.type == "name" and not ids:
            joins.append(f'LEFT JOIN names n{n} ON n{n}.id = t."{column.name}"')
        expression = _expression(column, n, ids=ids)
        if table.name == "kernels" and column.name == "kind" and run.manifest.meeting:
            expression = _meeting_expression(expression, [m.name for m in run.manifest.meeting])
        selected.append(f'{expression} AS "{column.name}"')
    if timed(table):
        start, end = (_expression(table.column(name), 0, ids=True) for name in ("start", "end"))
        selected.append(f"({end}) - ({start}) AS duration")
    paths = ", ".join(_path_literal(f) for f in files)
    return (
        # names of tables and columns are ours, paths are quoted
        f"CREATE VIEW {view} AS SELECT {', '.join(selected)} "
        f"FROM read_parquet([{paths}]{parted}) t JOIN _clocks c ON c.rank = {rank} {' '.join(joins)}"
    )


def _empty_sql(view: str, columns: Sequence[Column], *, ids: bool = False) -> str:
    types = {**_SQL_TYPES, "name": "BIGINT"} if ids else _SQL_TYPES
    nothing = ", ".join(f'CAST(NULL AS {types[c.type]}) AS "{c.name}"' for c in columns)
    return (
        f"CREATE VIEW {view} AS SELECT CAST(NULL AS INTEGER) AS rank, CAST(NULL AS VARCHAR) AS host, {nothing} WHERE"
        " false"
    )


def _shared_sql(run: Run, table: Table, *, read: bool) -> str:
    columns = [c for c in table.columns if c.name != "rank"]
    files = _files(run, table.name) if read else []
    if not files:
        return _empty_sql(f'"{table.name}"', columns)
    path = _path_literal(files[0])
    selected = ", ".join(f'CAST({_expression(c, 0, ids=True)} AS {_SQL_TYPES[c.type]}) AS "{c.name}"' for c in columns)
    return (
        f'CREATE VIEW "{table.name}" AS SELECT t.rank AS rank, c.host AS host, {selected} '
        f"FROM read_parquet([{path}], hive_partitioning = false) t JOIN _clocks c ON c.rank = t.rank"
    )


def _expression(column: Column, n: int, *, ids: bool) -> str:
    if column.type == "time":
        shifted = f't."{column.name}" + c.shift_ns'
        return f"{shifted} - CAST(round_even(({shifted}) * c.drift, 0) AS BIGINT) - c.origin_ns"
    if column.type == "name" and not ids:
        return f"n{n}.value"
    return f't."{column.name}"'


def _meeting_expression(kind: str, names: Sequence[int]) -> str:
    """The kind of a kernel, which is `meeting` if no rule names it and ranks meet in it."""
    listed = ", ".join(str(int(n)) for n in names)
    return (
        f"CASE WHEN {kind} = '{UNCLASSIFIED}' AND coalesce(t.name, t.short_name) IN ({listed}) THEN '{MEETING}' ELSE"
        f" {kind} END"
    )


def as_pattern(path: str) -> str:
    """The pattern that matches `path` alone; DuckDB takes every path of a file for a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def plain_folder(run: Path) -> str:
    """The run's path, or one without a folder such as `device=3`, which DuckDB would take for a column and believe."""
    path = str(run.resolve())
    return path if "=" not in path else _linked(path)


@cache
def _linked(path: str) -> str:
    folder = scratch_folder("alltrace-link-")
    atexit.register(folder.cleanup)
    link = Path(folder.name, "run")
    link.symlink_to(path, target_is_directory=True)
    return str(link)


def _path_literal(path: str) -> str:
    return "'" + as_pattern(path).replace("'", "''") + "'"
