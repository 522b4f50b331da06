"""Questions of packages written for 0.2, as classes: `Recipe` and `SqlQuestion`. They answer for two releases."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Options, Part, Recipe, RunFacts
from alltrace.recipes.sql_recipe import Statements, as_declared
from alltrace.run.rank import Rank

__all__ = ["AnswerColumn", "Chart", "Option", "Recipe", "SqlQuestion"]


class SqlQuestion(Recipe):
    """A recipe of two statements: `map_sql` over the tables of a rank, `reduce_sql` over what the ranks gave."""

    map_sql: ClassVar[str]  # a SELECT over `tables`, with a column `rank` (see `Statements`)
    # a SELECT over the table `parts`, the rows of all ranks, with the names of `columns`; `text_of(id)` is the text of
    # a name
    reduce_sql: ClassVar[str]

    def parameters(self, options: Options) -> Mapping[str, object]:
        """The values of `$name` in the statements: the options by their names."""
        return options

    def words(self, options: Options) -> Mapping[str, str]:  # noqa: ARG002
        """What replaces the placeholders of `map_sql` under `options`."""
        return {}

    @property
    def statements(self) -> Statements:
        return Statements(self.reads, lambda options: self.map_sql.format_map(self.words(options)), self.reduce_sql)

    def map(self, rank: Rank, options: Options) -> pa.Table:
        return self.statements.map_rank(rank, {**options, **self.parameters(options)})

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        columns = self.answer_columns(options)
        rows = self.statements.over_parts(parts, run, {**options, **self.parameters(options)}) if parts else None
        return Answer(as_declared(self.name, columns, rows), columns)
