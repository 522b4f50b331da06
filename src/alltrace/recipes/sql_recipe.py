"""Recipes that are SQL: a statement over one rank's tables, and a statement over the parts of all ranks.

Statements have placeholders in braces. What replaces them is an identifier or an expression of ours from a closed set that the
options choose from; what users type is a parameter (`$name`), never text of a statement.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.base import Part, RankTables, Recipe, RunFacts
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PARTS = "parts"
_NAMES = re.compile(r"\b(names|text_of)\b")


class SqlRecipe(Recipe):
    """A recipe whose `map` is one SELECT over a rank's tables.

    Every table has the column `rank` before its own; columns of names hold ids. A table that the rank lacks is empty.

    Attributes:
        map_sql: The statement over a rank's tables. It gives `rank` among its columns, and joins of two tables name
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
        """The statement over `parts`, which has the rows that `map_statement` gives of each rank."""
        raise NotImplementedError

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> pa.Table:
        """The rows of the map's statement."""
        statement, tables = self.map_statement(options), self.rank_tables(rank, options)
        if _NAMES.search(statement):
            tables["names"] = rank.name_table()
        return run_statement(statement, tables, self.parameters(options))

    def over_parts(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> pa.Table:
        """The rows of the reduce's statement over the parts that have rows, of which there must be one."""
        tables = {PARTS: parts_table(parts), "names": run.name_table()}
        return run_statement(self.reduce_statement(options), tables, self.parameters(options))

    def computed_input(self, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """What a compiled loop adds to the tables under `options`; None where the statement reads nothing but tables."""
        return None

    def shown_statement(self, options: Mapping[str, Any]) -> str:
        """One statement over all ranks that gives what the recipe computes, for `alltrace sql`: the schema `ids` has the tables.

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
    return UsageError(f"{name} has to know {computed}, which is not found by SQL; ask it without --show-sql")


def id_table(rank: RankTables, table: str, columns: Sequence[str]) -> pa.Table:
    """A canonical table of a rank with its number as the column `rank` in front; empty where the rank has none."""
    return _with_rank(rank.table(table, columns), rank.rank)


def parts_table(parts: Sequence[Part]) -> pa.Table:
    """The rows of all parts that have any, with `rank` as a column."""
    tables = [part.table if "rank" in part.table.column_names else _with_rank(part.table, part.rank) for part in parts]
    return pa.concat_tables([t for t in tables if t.num_rows] or tables[:1], promote_options="permissive")


def _with_rank(table: pa.Table, rank: int) -> pa.Table:
    return table.add_column(0, "rank", pa.array(np.full(table.num_rows, rank, np.int32)))


def _quoted(column: str) -> str:
    return f'"{column}"'


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value)


def answer_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of a statement with the types of an answer; whole numbers beyond 64 bits stay decimals."""
    fields = [found if pa.types.is_decimal(found.type) else field for field, found in zip(schema, rows.schema, strict=True)]
    return rows.cast(pa.schema(fields))
