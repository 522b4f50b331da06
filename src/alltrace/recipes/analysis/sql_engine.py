"""Runs the SQL statements of recipes: DuckDB over Arrow tables in memory, spilling to a temporary folder.

The tables of a statement are the rank's canonical tables, or the parts of all ranks, under their own names. Columns of
names hold ids; the relation `names` (`id`, `value`) has their texts, and the macro `text_of(id)` looks one up. Nothing
else is within reach of a statement: no file, no extension, no variable of this program.
"""

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.part import Part
from alltrace.trace.errors import AlltraceError, printable
from alltrace.trace.name_stems import stem_sql
from alltrace.trace.scratch import scratch_folder_if_possible

# The rows of the parts of all ranks as one relation of a statement, which is read from files on demand.

_RANK = "rank"


class PartRows:
    """The rows of all parts, with `rank` as a column, one batch after the other; statements may scan them often.

    `schema`: The types of the rows: for each column the one that holds the types of all parts; words are plain text.
    `failure`: Why the rows cannot be read, once that was tried: a statement itself fails with an error of DuckDB.
    `parts`: Parts whose `table`s have the same columns, besides `rank`, which is added if missing; at least one part.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.failure: AlltraceError | None = None
        schemas = [_plain(with_rank(part.table.schema.empty_table(), part.rank).schema) for part in parts]
        self.schema: pa.Schema = pa.unify_schemas(schemas, promote_options="permissive")

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows from the first one on, as Arrow's C stream interface has them."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[Any]:
        """The rows as `pyarrow.RecordBatch`es."""
        try:
            for part in self._parts:
                for batch in part.batches():
                    rows = with_rank(pa.Table.from_batches([batch]), part.rank)
                    yield from rows.select(self.schema.names).cast(self.schema).to_batches()
        except AlltraceError as error:
            self.failure = error
            raise


def with_rank(table: Any, rank: int) -> Any:
    """The table with the column `rank`, in front if it had none."""
    if _RANK in table.column_names:
        return table
    return table.add_column(0, _RANK, pa.array(np.full(table.num_rows, rank, np.int32)))


def _plain(schema: Any) -> Any:
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


_LIMITS = ("SET memory_limit = '256MiB'", "SET memory_limit = '1GiB'", "RESET memory_limit")
"""What DuckDB may hold in memory, tried in this order: what a sort or a join needs beyond it goes to disk, but some
aggregates cannot. Four times as much makes nothing faster. The last is DuckDB's own limit, four fifths of the machine's
memory."""

_MANY_ROWS = 1 << 20
"""Of fewer rows in each table one thread makes as much in the same time as several, and takes two thirds of the CPU."""

MACROS = (
    # the text of a name's id; null if the id is null
    "text_of(i) AS (SELECT any_value(value) FROM names WHERE id = i)",
    # of rows sorted by value, `reach` being the running sum of their counts: the k-th smallest value, k from 0
    "kth(value, reach, k) AS min(value) FILTER (reach > k)",
    "square(x) AS x * x",
    # the mean of the two middle values of whole numbers, which `median` makes of floating point numbers
    "exact_median(value) AS (quantile_disc(value, 0.5) - quantile_disc(-value, 0.5)) / 2",
    # the quartile of n values that has `quarters` of 4 below it; see `statistics_sql.Quantile`
    """quartile_type_2(value, reach, n, quarters) AS kth(value, reach, (n * quarters + 3) // 4 - 1) + (
        kth(value, reach, least(n * quarters // 4, n - 1))::HUGEINT
        - kth(value, reach, (n * quarters + 3) // 4 - 1)) / 2""",
    """quartile_type_7(value, reach, n, quarters) AS kth(value, reach, (n - 1) * quarters // 4) + (
        kth(value, reach, least((n - 1) * quarters // 4 + 1, n - 1))::HUGEINT
        - kth(value, reach, (n - 1) * quarters // 4)
        ) * (any_value((n - 1) * quarters % 4) / 4)""",
    # a range's name without counters
    f"stem_of(name) AS {stem_sql('name')}",
    # a call's name without the version `_vNNNN` that the profiler adds
    "call_name(name) AS regexp_replace(name, '_v[0-9]{4}$', '')",
)


class _Engine:
    """One database in memory; each statement has its own connection to it."""

    def __init__(self, **settings: Any) -> None:
        import duckdb

        scratch = scratch_folder_if_possible("alltrace-sql-")
        self.folder = scratch.name if scratch else ""
        if scratch:
            self.remove = weakref.finalize(self, scratch.cleanup)
        self.database = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "temp_directory": self.folder,
                **settings,
            },
        )
        self.database.execute("CREATE TABLE names (id BIGINT, value VARCHAR)")
        add_macros(self.database)


def add_macros(connection: Any) -> None:
    """Create the macros that statements of recipes use; the connection must have the relation `names`."""
    connection.execute(";".join(f"CREATE MACRO {macro}" for macro in MACROS))


@cache
def _engine(several_threads: bool) -> _Engine:
    return _Engine() if several_threads else _Engine(threads=1)


def run_statement(statement: str, tables: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> Any:
    """The rows of one SELECT.

    `statement`: The statement; `$name` is a parameter. `parameters`: Values by name; those that the statement does not
    mention are left out. Returns a `pyarrow.Table`. Integers beyond 64 bits are decimals; a column is int64 if all its
    values fit. Raises `AlltraceError`: memory and disk do not suffice, or a sum does not fit into 128 bits.
    """
    import duckdb

    engine = _engine(max((getattr(t, "num_rows", _MANY_ROWS) for t in tables.values()), default=0) >= _MANY_ROWS)
    mentioned = set(re.findall(r"\$(\w+)", statement))
    values = {name: value for name, value in (parameters or {}).items() if name in mentioned}
    failure: Any = None
    for limit in _LIMITS:
        try:
            engine.database.execute(limit)
            return _rows(engine, statement, tables, values)
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            failure = error
        except duckdb.OutOfRangeException as error:
            raise AlltraceError(
                f"the numbers are too large to be summed exactly ({_first_line(error)}); the reports contain"
                " implausible times or sizes"
            ) from error
    raise no_memory(engine.folder, failure) from failure


def _rows(engine: _Engine, statement: str, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    connection = engine.database.cursor()
    try:
        for name, table in tables.items():
            connection.register(name, table)
        return whole_numbers(connection.sql(statement, params=parameters or None).to_arrow_table())
    finally:
        connection.close()


def whole_numbers(table: Any) -> Any:
    """The table with whole numbers of 128 bits as int64 if all values of a column fit; others stay decimals."""
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            try:
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table


def no_memory(folder: str, error: Exception) -> AlltraceError:
    """What to say where memory and disk do not suffice; `folder`: for temporary files, empty if there is none."""
    lacking = f"memory and the temporary folder {folder} do" if folder else "memory, without a temporary folder, does"
    larger = "a larger disk" if folder else "a writable disk"
    return AlltraceError(
        f"{lacking} not suffice for this query ({_first_line(error)}); "
        f"select fewer ranks, steps or rows at once, or set TMPDIR to a folder on {larger}"
    )


def _first_line(error: Exception) -> str:
    """DuckDB's error message, without its advice on configuration."""
    return printable(str(error).partition("\n")[0].strip())
