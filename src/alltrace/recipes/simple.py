"""The base of a recipe in two SQL statements; for other packages, see docs/write-a-recipe.md."""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.base import Answer, Chart, Option
from alltrace.recipes.sql_recipe import SqlRecipe
from alltrace.trace.columns import Column
from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Part, RunFacts

__all__ = ["AnswerColumn", "Chart", "Option", "SqlQuestion"]


def AnswerColumn(name: str, unit: str | None, doc: str) -> Column:  # noqa: N802  packages call it so
    """A column of an answer: its name, its unit (`ns`, `bytes`, `%`, ...) or None, and what it means."""
    return Column(name, "any", unit, doc)


class SqlQuestion(SqlRecipe, metaclass=ABCMeta):
    """A recipe of two statements: `map_sql` over the tables of a rank, `reduce_sql` over what the ranks gave.

    Attributes:
        map_sql: A SELECT over `tables`, with a column `rank` (see `SqlRecipe`).
        reduce_sql: A SELECT over the table `parts`, the rows of all ranks, with the names of `columns`; `text_of(id)` is the text
            of a name.
    """

    map_sql: ClassVar[str]
    reduce_sql: ClassVar[str]

    def reduce_statement(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002
        """The statement over the rows of all ranks."""
        return self.reduce_sql

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The rows of the statement.

        Raises:
            AlltraceError: They do not have the columns that the recipe declares.
        """
        names = [column.name for column in self.columns]
        if not parts:
            return Answer(pa.table({name: pa.nulls(0) for name in names}), self.columns)
        found = self.over_parts(parts, run, options)
        if set(found.column_names) != set(names):
            raise AlltraceError(
                f"recipe {self.name}: reduce_sql gives the columns {', '.join(found.column_names)}; expected {', '.join(names)}"
            )
        return Answer(found.select(names), self.columns)
