"""Recipes that are SQL: a statement over one rank's tables, and a statement over the parts of all ranks.

Statements have placeholders in braces. What replaces them is an identifier or an expression of ours from a closed set that the
options choose from; what users type is a parameter (`$name`), never text of a statement.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.part_rows import PartRows, with_rank
from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.base import Part, RankTables, Recipe, RunFacts
from alltrace.trace.columns import schema_of
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alltrace.trace.columns import Columns

PARTS = "parts"
_NAMES = re.compile(r"\b(names|text_of)\b")
_ROWS_AT_ONCE = 1 << 20
"""A statement gets the parts of several ranks together up to this many rows; more come in portions, if that is exact."""


class SqlRecipe(Recipe):
    """A recipe with a `map` that is one SELECT over a rank's tables.

    Every table has the column `rank` before its own; columns of names hold ids. A table that the rank lacks is empty.

    Attributes:
        map_sql: The statement over a rank's tables. It has `rank` among its columns, and joins of two tables name
            `rank`, so that it holds for one rank and for all of them at once.
    """

    map_sql: ClassVar[str]

    def words(self, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """What replaces the placeholders of the statements under `options`."""
        return {}

    def parameters(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of `$name` in the statements: the options by their names."""
        return options

    def rank_tables(self, rank: RankTables, options: Mapping[str, Any]) -> dict[str, pa.Table]:
        """The tables that the map reads, by name, `rank` first in each; overridden where a loop adds columns."""
        return {table: id_table(rank, table, columns) for table, columns in self.reads(options).items()}

    def map_statement(self, options: Mapping[str, Any]) -> str:
        """The statement that `map` runs over one rank's tables."""
        return self.map_sql.format_map(self.words(options))

    def reduce_statement(self, options: Mapping[str, Any]) -> str:
        """The statement over `parts`, the rows of `map_statement` of each rank."""
        raise NotImplementedError

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> pa.Table:
        """The rows of the map's statement."""
        statement, tables = self.map_statement(options), self.rank_tables(rank, options)
        if _NAMES.search(statement):
            tables["names"] = rank.name_table()
        return run_statement(statement, tables, self.parameters(options))

    def merge_statement(self, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """A SELECT over `parts` of as many or fewer rows with the same columns, of which `reduce_statement` makes the same.

        None if there is none. It is run first where parts have many rows.
        """
        return None

    def ranks_stand_alone(self, options: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether `reduce_statement` makes rows of each rank from its part alone, in order of rank."""
        return False

    def over_parts(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> pa.Table:
        """The rows of the reduce's statement over the parts that have rows, of which there must be one."""
        with_rows = [part for part in parts if part.table.num_rows] or parts[:1]
        statement, merge, names = self.reduce_statement(options), self.merge_statement(options), run.name_table()
        given = self.parameters(options)
        if len(with_rows) == 1 or sum(part.table.num_rows for part in with_rows) <= _ROWS_AT_ONCE:
            return run_statement(statement, {PARTS: parts_table(with_rows), "names": names}, given)
        if self.ranks_stand_alone(options):
            tables = (parts_table(few) for few in _in_portions(with_rows))
            found = [run_statement(statement, {PARTS: table, "names": names}, given) for table in tables]
            return pa.concat_tables(found, promote_options="permissive")
        rows = PartRows(with_rows)
        try:
            merged: pa.Table | PartRows = rows if merge is None else run_statement(merge, {PARTS: rows}, given)
            return run_statement(statement, {PARTS: merged, "names": names}, given)
        except Exception:
            if rows.failure is not None:
                raise rows.failure from None
            raise

    def computed_input(self, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """What a compiled loop adds to the tables under `options`; None if the statement reads nothing but tables."""
        return None

    def shown_statement(self, options: Mapping[str, Any]) -> str:
        """One statement over all ranks that computes the recipe's answer, for `alltrace sql`: the schema `ids` has the tables.

        Raises:
            UsageError: It reads what a compiled loop computes.
        """
        computed = self.computed_input(options)
        if computed is not None:
            raise not_by_sql(self.name, computed)
        reads = self.reads(options).items()
        tables = ",\n".join(f"{t} AS (SELECT rank, {', '.join(map(_quoted, columns))} FROM ids.{t})" for t, columns in reads)
        parts = f"{PARTS} AS (\n{self.map_statement(options).strip()}\n)"
        statement = f"WITH {tables},\n{parts}\nFROM (\n{self.reduce_statement(options).strip()}\n)"
        given = self.parameters(options)
        return re.sub(r"\$(\w+)", lambda found: _literal(given[found[1]]), statement)


def not_by_sql(name: str, computed: str) -> UsageError:
    """Why there is no statement: the recipe called `name` has to know what is computed otherwise."""
    return UsageError(f"{name} needs {computed}, which SQL does not compute; leave out --show-sql")


def id_table(rank: RankTables, table: str, columns: Sequence[str]) -> pa.Table:
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
