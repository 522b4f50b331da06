"""A user's SQL over a run: one read-only query, with nothing within reach but the run's own files."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from alltrace.recipes.analysis.sql_engine import add_macros, no_memory, whole_numbers
from alltrace.recipes.base import Answer
from alltrace.recipes.execution.availability import notes_on_damage
from alltrace.run.overlay import ALIGNED_TABLES
from alltrace.run.sql_views import VIEWS, as_pattern, connect, view_files
from alltrace.run.store import Run, SentRun
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError, printable
from alltrace.trace.scratch import scratch_folder_if_possible

MOST_SENT_BYTES = 256 << 20
"""A worker of a cluster gives no larger answer: it is in the memory of several processes while it is sent."""

_GAP = r"(\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN = re.compile(rf"{_GAP}explain({_GAP}(analyze|\([^)]*\)))*", re.IGNORECASE | re.DOTALL)

_BARE_END = re.compile(r"""(?<!["\w])end(?!["\w])""", re.IGNORECASE)
_PRAGMA = re.compile(rf"{_GAP}pragma\b", re.IGNORECASE | re.DOTALL)  # what older versions of DuckDB take for a SELECT


@dataclass(frozen=True)
class Limits:
    seconds: float  # the time limit, after which it is stopped
    memory_bytes: int  # the most memory that DuckDB may use; it may not use disk
    rows: int  # the most rows of its answer


def query(run: Run, text: str, limits: Limits | None = None) -> Answer:
    """The answer to `text`, one SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN) in DuckDB's SQL over canonical tables.

    Every table has `rank` and `host` before its own columns; names are text, times ns from the run's start. Besides
    there are `ranks` (`rank`, `local_rank`, `host`, `rank_source`, `start_ns`, `end_ns`, `role`) and `names`. The
    schema `ids` has the same tables with ids instead of names; `text_of(id)` is the text of a name. The statements of
    recipes read these. A query that names `collectives`, `members` or `steps`, which are derived over all ranks, has
    the run aligned first. Raises `UsageError`: the text is not one reading statement, or DuckDB refuses it; the message
    is DuckDB's own. Or it took too long. Raises `InputError`: a file of the run is missing or damaged.
    """
    import duckdb

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the query has bytes that are not UTF-8; expected text") from error
    notes = (*run.manifest.notes, *align_for(run, text))
    named = _named(text)
    read = {table: () for table in VIEWS if named is None or table in named}
    notes = (*notes, *notes_on_damage(run, run.ranks, read, aligned=run.overlay is not None))
    connection = connect(run, ids=re.search(r"\bids\s*\.", text, re.IGNORECASE) is not None, read=named)
    stop = None
    scratch = None
    try:
        if limits is None:
            # DuckDB's own is .tmp in the folder where the command was started
            scratch = scratch_folder_if_possible("alltrace-sql-")
            connection.execute("SET temp_directory = ?", [scratch.name if scratch else ""])
        else:
            connection.execute(f"SET memory_limit = '{limits.memory_bytes >> 20}MiB'")
            connection.execute("SET max_temp_directory_size = '0KiB'")
            connection.execute("SET threads = 2")
            stop = threading.Timer(limits.seconds, connection.interrupt)
            stop.start()
        add_macros(connection)
        _fence(connection, run, named)
        table = _answer(connection, text, None if limits is None else limits.rows)
    except duckdb.InterruptException as error:
        seconds = limits.seconds if limits is not None else 0
        raise UsageError(
            f"the query took longer than {seconds:g} s and was stopped; request less data at once"
        ) from error
    except duckdb.OutOfMemoryException as error:
        if limits is None:
            raise no_memory(scratch.name if scratch else "", error) from error
        raise UsageError(
            f"memory ran out for the query ({_one_line(error)}); select fewer rows or columns at once"
        ) from error
    except duckdb.Error as error:
        if isinstance(error, duckdb.IOException) and scratch is not None and scratch.name in str(error):
            raise no_memory(scratch.name, error) from error
        left_out = ", ".join(run.left_out()) if isinstance(error, duckdb.CatalogException) else ""
        hint = f" (not imported: {left_out})" if left_out else ""
        if isinstance(error, duckdb.ParserException) and _BARE_END.search(text):
            hint = (
                '; `end` is a word of SQL: write "end" in double quotes, as in SELECT "end" - start, or use the column'
                " duration"
            )
        raise UsageError(f"the query cannot be answered: {_one_line(error)}{hint}") from error
    finally:
        if stop is not None:
            stop.cancel()
            stop.join()  # it must not reach for a connection that is closed
        connection.close()
        if scratch is not None:
            scratch.cleanup()
    if limits is not None and table.num_rows > limits.rows:
        table = table.slice(0, limits.rows)
        notes = (*notes, f"only the first {limits.rows} rows are shown")
    columns = tuple(col.Column(name, "any", _unit(name), "") for name in table.column_names)
    return Answer(table, columns, notes)


def query_on_engine(run: Run, text: str) -> Answer:
    """As `query`, by a worker of a cluster. Raises `UsageError`: also, the answer exceeds `MOST_SENT_BYTES`."""
    from alltrace.engine.tasks import remote, run_tasks
    from alltrace.run.store import SentRun

    if not remote():
        return query(run, text)
    align_for(run, text)  # by all workers, before one of them reads it
    sent = SentRun(run)
    (outcome,) = run_tasks(partial(_answer_there, sent), [text], needs=sent.needs)
    return outcome.get()


def _answer_there(sent: SentRun, text: str, _advance: Callable[[int], None]) -> Answer:
    answer = query(sent.run, text)
    if answer.table.nbytes > MOST_SENT_BYTES:
        raise UsageError(
            f"the answer has {answer.table.nbytes >> 20} MiB, and a cluster sends up to {MOST_SENT_BYTES >> 20} MiB; "
            "select fewer rows or columns, or leave out --dask, --slurm and --pbs"
        )
    return answer


def align_for(run: Run, text: str) -> tuple[str, ...]:
    """Align the run where the answer depends on it; what is to be said of the alignment."""
    if len(run.hosts) < 2 and not any(re.search(rf"\b{name}\b", text, re.IGNORECASE) for name in ALIGNED_TABLES):
        return ()
    from alltrace.align.store import aligned

    return tuple(aligned(run).notes)


def _named(text: str) -> list[str] | None:
    """The tables with names that occur in a query, all that it can read; None if it may reach files in other ways."""
    if re.search(r"parquet|query", text, re.IGNORECASE):  # functions that take a file, or a table, from an expression
        return None
    return [t for t in VIEWS if re.search(rf"\b{t}\b", text, re.IGNORECASE)]


def _answer(connection: Any, text: str, rows: int | None) -> Any:
    import duckdb

    statements = connection.extract_statements(text)
    reads = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
    explains = len(statements) == 1 and statements[0].type == duckdb.StatementType.EXPLAIN
    if explains:
        # what EXPLAIN ANALYZE explains is carried out, so that too has to be reading
        inner = connection.extract_statements(_EXPLAIN.sub("", statements[0].query, count=1))
        explains = len(inner) == 1 and inner[0].type == duckdb.StatementType.SELECT
    if _PRAGMA.match(text) or not (reads or explains):
        raise UsageError(
            "the query is not a single statement that only reads; expected one SELECT, DESCRIBE, SHOW, SUMMARIZE or"
            " EXPLAIN"
        )
    relation = connection.sql(text)
    if rows is not None and reads:
        relation = relation.limit(rows + 1)
    return _plain_numbers(_distinct_names(relation.to_arrow_table()))


def _one_line(error: Exception) -> str:
    return printable(" ".join(str(error).split()))


def _plain_numbers(table: Any) -> Any:
    """Whole numbers of 128 bits, as sums are in SQL, as int64 if a column's fit; decimals with a fraction as floats."""
    import pyarrow as pa

    table = whole_numbers(table)
    for n, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale:
            table = table.set_column(n, field.name, table.column(n).cast(pa.float64()))
    return table


def _distinct_names(table: Any) -> Any:
    """Column names may come twice in SQL, but not in an answer."""
    taken = set(table.column_names)
    names: list[str] = []
    for name in table.column_names:
        number, distinct = 1, name
        while distinct in names or (number > 1 and distinct in taken):
            number += 1
            distinct = f"{name}_{number}"
        names.append(distinct)
    return table.rename_columns(names)


def _fence(connection: Any, run: Run, read: list[str] | None) -> None:
    """Nothing but the files of the query's tables can be read, nothing written, and no setting changed back.

    The files are listed one by one, as versions of DuckDB differ in which paths they take to be in a folder.
    """
    files = view_files(run, read)
    connection.execute("SET allowed_paths = ?", [[*files, *map(as_pattern, files)]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")  # a SELECT may have an INSERT in its WITH


def _unit(name: str) -> str | None:
    return "ns" if name in ("start", "end", "time") or name.endswith("_ns") else "bytes" if name == "bytes" else None
