"""Recipes that are SQL: a statement over one rank's tables, and a statement over the parts of all ranks.

Statements have placeholders in braces. What replaces them is an identifier or an expression of ours from a closed set
that the options choose from; what users type is a parameter (`$name`), never text of a statement.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from alltrace.recipes.analysis.sql_engine import PartRows, run_statement, with_rank
from alltrace.recipes.base import Answer, Chart, Needs, Of, Option, Options, Part, Question, Reads, RunFacts, of
from alltrace.run.rank import Rank
from alltrace.trace.columns import Columns, schema_of
from alltrace.trace.errors import AlltraceError, UsageError

PARTS = "parts"
_NAMES = re.compile(r"\b(names|text_of)\b")
_ROWS_AT_ONCE = 1 << 20
"""A statement gets parts of several ranks together up to this many rows; more in portions, if that is exact."""
_WORTH_MERGING = 1 << 16  # ranks have many rows in common, which `reduce` takes longer for than `merge`


@dataclass(frozen=True)
class Statements:
    """A question in SQL: one SELECT over a rank's tables, and one over `parts`, the rows that it returns for all ranks.

    Every table has the column `rank` before its own; columns of names hold ids. A table that the rank lacks is empty.
    What is `Of` something can be a function of the options, which are the values of `$name` in the statements.
    """

    reads: Of[Reads]  # the tables and columns that it reads
    # the statement over a rank's tables. It has `rank` among its columns, and joins of two tables name `rank`, so that
    # it holds for one rank and for all of them at once.
    map: Of[str]
    reduce: Of[str]  # the statement over `parts`; `text_of(id)` is the text of a name
    # A SELECT over `parts` of as many or fewer rows with the same columns, of which `reduce` makes the same; None if
    # there is none. It is run first where parts have many rows.
    merge: Of[str | None] = None
    # the statement over the tables of several ranks, of rows as `merge` makes of the map's; None for the map's
    together: Of[str | None] = None
    stand_alone: Of[bool] = False  # whether `reduce` makes rows of each rank from its part alone, in order of rank
    # the tables that the map reads, by name, `rank` first in each, where a loop adds columns
    rank_tables: Callable[[Rank, Options], dict[str, pa.Table]] | None = None
    # what a compiled loop adds to the tables; None if the statement reads nothing but tables
    computed: Of[str | None] = None

    def map_rank(self, rank: Rank, options: Options) -> pa.Table:
        return self.map_ranks((rank,), options)

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> pa.Table:
        """The rows of the map's statement over several ranks, or `together`: it costs less than one for each."""
        of_ranks = [self._tables_of(rank, options) for rank in ranks]
        tables = {
            t: pa.concat_tables([of_rank[t] for of_rank in of_ranks], promote_options="permissive") for t in of_ranks[0]
        }
        together = of(self.together, options) if len(ranks) > 1 else None
        statement = of(self.map, options) if together is None else together
        if _NAMES.search(statement):
            tables["names"] = ranks[0].name_table()
        return run_statement(statement, tables, options)

    def _tables_of(self, rank: Rank, options: Options) -> dict[str, pa.Table]:
        if self.rank_tables is not None:
            return self.rank_tables(rank, options)
        return {table: id_table(rank, table, columns) for table, columns in of(self.reads, options).items()}

    def over_parts(self, parts: Sequence[Part], run: RunFacts, options: Options) -> pa.Table:
        """The rows of the reduce's statement over the parts that have rows, of which there must be one."""
        with_rows = [part for part in parts if part.table.num_rows] or parts[:1]
        statement, merge, names = of(self.reduce, options), of(self.merge, options), run.name_table()
        count = sum(part.table.num_rows for part in with_rows)
        at_once = len(with_rows) == 1 or count <= _ROWS_AT_ONCE
        if not at_once and of(self.stand_alone, options):
            tables = (parts_table(few) for few in _in_portions(with_rows))
            answers = [run_statement(statement, {PARTS: table, "names": names}, options) for table in tables]
            return pa.concat_tables(answers, promote_options="permissive")
        rows: pa.Table | PartRows = parts_table(with_rows) if at_once else PartRows(with_rows)
        try:
            if merge is not None and len(with_rows) > 1 and count > min(_WORTH_MERGING, _ROWS_AT_ONCE):
                rows = run_statement(merge, {PARTS: rows}, options)
            return run_statement(statement, {PARTS: rows, "names": names}, options)
        except Exception:
            if isinstance(rows, PartRows) and rows.failure is not None:
                raise rows.failure from None
            raise

    def shown(self, name: str, options: Options) -> str:
        """One statement over the schema `ids` for the answer of a question. Raises `UsageError`: it needs a loop."""
        computed = of(self.computed, options)
        if computed is not None:
            raise not_by_sql(name, computed)
        reads = of(self.reads, options).items()
        tables = ",\n".join(
            f"{t} AS (SELECT rank, {', '.join(map(_quoted, columns))} FROM ids.{t})" for t, columns in reads
        )
        parts = f"{PARTS} AS (\n{of(self.map, options).strip()}\n)"
        statement = f"WITH {tables},\n{parts}\nFROM (\n{of(self.reduce, options).strip()}\n)"
        return re.sub(r"\$(\w+)", lambda match: _literal(options[match[1]]), statement)


def sql_question(
    name: str,
    doc: str | None,
    columns: Columns,
    statements: Statements,
    options: tuple[Option, ...] = (),
    chart: Chart | None = None,
    requires: Needs = (),
    important: tuple[str, ...] = (),
) -> Question:
    """The question that two statements answer; for the other arguments see `Question`."""
    merge, reads = partial(_merged, name, columns, statements), of(statements.reads, {})
    question = partial(Question, name, doc, columns, statements.map_rank, merge, reads, None, requires, options, chart)
    return question(sql=statements, map_ranks=statements.map_ranks, important=important)


def _merged(
    name: str, columns: Columns, statements: Statements, parts: Sequence[Part], run: RunFacts, options: Options
) -> Answer:
    return Answer(as_declared(name, columns, statements.over_parts(parts, run, options) if parts else None), columns)


def as_declared(name: str, columns: Columns, rows: pa.Table | None) -> pa.Table:
    """The rows of a statement in the order of declared columns; none for None. Raises `AlltraceError`: they differ."""
    names = [column.name for column in columns]
    if rows is None:
        return schema_of(columns).empty_table()
    if set(rows.column_names) != set(names):
        returned = ", ".join(rows.column_names)
        raise AlltraceError(
            f"recipe {name}: the last statement gives the columns {returned}; expected {', '.join(names)}"
        )
    return rows.select(names)


def not_by_sql(name: str, computed: str) -> UsageError:
    """Why there is no statement: the recipe called `name` has to know what is computed otherwise."""
    return UsageError(f"{name} needs {computed}, which SQL does not compute; leave out --show-sql")


def id_table(rank: Rank, table: str, columns: Sequence[str]) -> pa.Table:
    """A canonical table of a rank with its number as the column `rank` in front; empty if the rank has none."""
    return with_rank(rank.table(table, columns), rank.rank)


def parts_table(parts: Sequence[Part]) -> pa.Table:
    """The rows of all parts that have any, with `rank` as a column."""
    tables = [with_rank(part.table, part.rank) for part in parts]
    return pa.concat_tables([t for t in tables if t.num_rows] or tables[:1], promote_options="permissive")


def _in_portions(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts that have together not more than `_ROWS_AT_ONCE` rows, or one that has more alone."""
    few: list[Part] = []
    rows = 0
    for part in parts:
        number = part.table.num_rows
        if few and rows + number > _ROWS_AT_ONCE:
            yield few
            few, rows = [], 0
        few.append(part)
        rows += number
    yield few


def _quoted(column: str) -> str:
    return f'"{column}"'


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value)


def answer_table(rows: pa.Table, columns: Columns) -> pa.Table:
    """The rows of a statement with the types of an answer; whole numbers beyond 64 bits stay decimals."""
    typed = zip(schema_of(columns), rows.schema, strict=True)
    return rows.cast(pa.schema([real if pa.types.is_decimal(real.type) else field for field, real in typed]))
