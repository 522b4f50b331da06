"""What the recipes share that describe durations by name: `files`, `all_stats` and `rank_stats`.

The statistics are those of pandas' describe: quartiles are linear between neighbours, the deviation is that of a sample and null
for one value. nsys' `all_stats` has the mean of the ranks' deviations, the smallest first quartile, the median of medians and the
largest third quartile; here all are exact, under the names that nsys gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.collecting import Collector
from alltrace.recipes.analysis.distribution import COUNT, VALUE, group, plain
from alltrace.recipes.analysis.merged_distributions import GROUP, Pool
from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.base import FILE, FILE_CELL, FILES, RANK_CELL, Cell, NsysRecipe, file_columns, files
from alltrace.recipes.nsys.ranges import KEYS, range_names
from alltrace.recipes.stats.base import RANK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

TEXT = "Text"


def statistics(label: str, doc: str, *, exact: bool) -> tuple[Cell, ...]:
    """The cells of the statistics of a name.

    Args:
        label: Title of the name.
        doc: What is named.
        exact: Whether they are one rank's, which nsys does not round.
    """
    kind: Any = "exact_ns" if exact else "mean_ns"
    note = "" if exact else " (approx)"
    of_all = "" if exact else ", exact over all ranks"
    return (
        Cell(label, "text", doc),
        Cell("Count", "int", "How many there were."),
        Cell("Mean", kind, "Mean duration."),
        Cell(f"Std{note}", kind, f"Standard deviation of a sample (n - 1){of_all}; null for one."),
        Cell("Min", "ns", "Shortest."),
        Cell(f"Q1{note}", kind, f"First quartile, linear between neighbours{of_all}."),
        Cell(f"Median{note}", kind, f"Median{of_all}."),
        Cell(f"Q3{note}", kind, f"Third quartile{of_all}."),
        Cell("Max", "ns", "Longest."),
        Cell("Sum", "ns", "Their sum."),
    )


def statistics_columns(summary: Any, *, exact: bool) -> dict[str, Any]:
    """The columns of `statistics` but the name, from what `summarize` gave."""
    note = "" if exact else " (approx)"
    several = pc.greater(summary.column(COUNT), 1)
    return {
        "Count": summary.column(COUNT),
        "Mean": summary.column("mean"),
        f"Std{note}": pc.if_else(several, summary.column("stddev"), None),
        "Min": summary.column("min"),
        f"Q1{note}": summary.column("q1"),
        f"Median{note}": summary.column("median"),
        f"Q3{note}": summary.column("q3"),
        "Max": summary.column("max"),
        "Sum": summary.column("total"),
    }


class Described(NsysRecipe):
    """The statistics of durations by name, over all ranks and for each.

    Attributes:
        keys: The columns, beside `value`, of what `rows` gives.
    """

    keys: ClassVar[tuple[str, ...]] = ("name",)
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "all_stats": statistics(TEXT, "What is named so.", exact=False),
        "rank_stats": (*statistics(TEXT, "What is named so.", exact=True), RANK_CELL, FILE_CELL),
        **FILES,
    }
    chart = Chart("box", TEXT, ("Min", "Q1 (approx)", "Median (approx)", "Q3 (approx)", "Max"))

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The events of one rank: a table with the columns `keys` and `value` (int64 ns, no nulls)."""
        raise NotImplementedError

    def pieces(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The same, some rows at a time where they are read so."""
        yield self.rows(rank, options)

    def labels(self, keys: Any, run: RunFacts) -> Any:
        """What distinct keys (a table of the columns `keys`) are called, a string array."""
        return run.texts(keys.column("name").combine_chunks())

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distribution of the rank's durations by key."""
        collector = Collector(self.keys)
        for rows in self.pieces(rank, options):
            collector.add(rows)
        found = plain(collector.table())
        if not found.num_rows:
            return pa.schema([(c, pa.int64()) for c in (*self.keys, VALUE, COUNT)]).empty_table()
        # nsys describes what took time
        return pc.filter(found, pc.greater(found.column(VALUE), 0))

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The three tables, by name."""
        if not parts:
            return self.answer({})
        pool = Pool(parts, self.keys)
        labels = pc.fill_null(self.labels(pool.keys, run), "")
        rows, first = group([labels])
        # rows are numbered in the order of their names
        names = pc.take(labels, pa.array(first))
        order = pc.sort_indices(names)
        place = pc.sort_indices(order).to_numpy()
        names = pc.take(names, order)
        groups = place[rows].astype("int64")
        of_all, of_rank = pool.summarize(groups, "linear"), pool.summarize_ranks(groups, "linear")
        called = files(run)
        every = {TEXT: pc.take(names, of_all.column(GROUP).combine_chunks()), **statistics_columns(of_all, exact=False)}
        each = {TEXT: pc.take(names, of_rank.column(GROUP).combine_chunks()), **statistics_columns(of_rank, exact=True)}
        each["Rank"] = of_rank.column(RANK)
        each[FILE] = pa.array([called[r] for r in of_rank.column(RANK).to_pylist()], pa.string())
        return self.answer({"all_stats": every, "rank_stats": each, "files": file_columns(parts, run)})


class DescribedRanges(Described):
    """The statistics of durations of ranges by their names."""

    keys = KEYS

    def labels(self, keys: Any, run: RunFacts) -> Any:
        """The text, behind the domain where it takes that to tell it apart."""
        return range_names(keys.column("domain").combine_chunks(), keys.column("name").combine_chunks(), run)
