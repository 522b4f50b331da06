"""The recipe `launch-configurations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.base import Answer, Chart, Part
from alltrace.recipes.sql_recipe import SqlRecipe, answer_table
from alltrace.trace import columns as col

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RunFacts

_NAMES = ("name", "short_name")
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_KEYS = ", ".join((*_NAMES, *_SIZES))


class LaunchConfigurations(SqlRecipe):
    """GPU kernels by name, grid and block: how often each launch configuration ran and how long in all, over all ranks.

    Nsight Compute measures one launch; this recipe shows how many launches one of them represents.
    """

    name = "launch-configurations"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", *_NAMES, *_SIZES)}
    columns: ClassVar[col.Columns] = (
        col.text("name", "kernel"),
        col.text("short_name", "name without template arguments and parameters"),
        *(col.whole(f"grid_{axis}", f"blocks in {axis}") for axis in "xyz"),
        *(col.whole(f"block_{axis}", f"threads in {axis}") for axis in "xyz"),
        col.whole("ranks", "ranks that ran it"),
        col.whole("count", "launches"),
        col.ns("total_ns", "summed duration"),
        col.percent("time_percent", "total_ns as a share of the sum over all rows", 2),
        col.ns("min_ns", "shortest"),
        col.ns("max_ns", "longest"),
    )
    chart: ClassVar[Chart | None] = Chart("bars", "name", ("total_ns",), detail="grid_x", title="Time of launch configurations")

    map_sql = f"""
SELECT rank, {_KEYS}, count(length) AS launches, sum(length) AS total, min(length) AS least, max(length) AS most
FROM (SELECT *, "end" - start AS length FROM kernels) GROUP BY ALL
"""

    def reduce_statement(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002
        """A row per configuration, the one with the largest total first; a rank has one row of each."""
        return _OVER_RANKS

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The rows of the statement."""
        table = (
            answer_table(self.over_parts(parts, run, options), self.columns) if parts else col.schema_of(self.columns).empty_table()
        )
        return Answer(table, self.columns, chart=self.chart)


_OVER_RANKS = f"""
WITH configurations AS (
  SELECT {_KEYS}, count(*) AS ranks, sum(launches) AS count, sum(total) AS total_ns, min(least) AS min_ns, max(most) AS max_ns
  FROM parts GROUP BY ALL
)
SELECT coalesce(text_of(name), text_of(short_name)) AS name, text_of(short_name) AS short_name, {", ".join(_SIZES)}, ranks, count,
  total_ns, total_ns / coalesce(nullif(sum(total_ns) OVER (), 0), 1) * 100 AS time_percent, min_ns, max_ns
FROM configurations ORDER BY total_ns DESC, 1, {", ".join(_SIZES)}
"""

RECIPE = LaunchConfigurations()
