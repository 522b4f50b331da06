"""The recipe `kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_RANK = AnswerColumn("rank", None, "rank")


class Kernels(Recipe):
    """GPU kernels by name: how often, how long in all, and the exact distribution of their durations, over all ranks.

    Median and quartiles are of all durations together (linear interpolation, Hyndman and Fan type 7), not medians of the ranks'
    medians; `--by-rank` gives each rank's own.
    """

    name = "kernels"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", "name", "short_name", "kind")}
    options = (
        Option("by_rank", bool, False, "a row per rank and kernel"),
        Option("names", str, "full", "names with template arguments and parameters, or without", ("full", "short")),
        Option("kind", str, None, "only kernels of this class, such as compute or collective"),
    )
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        AnswerColumn("name", None, "kernel"),
        AnswerColumn("kind", None, "class by the kernel rules"),
        AnswerColumn("ranks", None, "ranks that ran it"),
        AnswerColumn("count", None, "launches"),
        AnswerColumn("total_ns", "ns", "summed duration"),
        AnswerColumn("time_percent", "%", "total_ns of the sum over all rows"),
        AnswerColumn("mean_ns", "ns", "mean duration"),
        AnswerColumn("q1_ns", "ns", "exact first quartile"),
        AnswerColumn("median_ns", "ns", "exact median"),
        AnswerColumn("q3_ns", "ns", "exact third quartile"),
        AnswerColumn("min_ns", "ns", "shortest"),
        AnswerColumn("max_ns", "ns", "longest"),
        AnswerColumn("stddev_ns", "ns", "standard deviation of the sample"),
    )
    chart = Chart("box", "name", ("min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns"), title="Durations of kernels", log_y=True)

    def answer_columns(self, options: Mapping[str, Any]) -> tuple[AnswerColumn, ...]:
        """With `by_rank`, `rank` comes first and `ranks` goes."""
        if not options["by_rank"]:
            return self.columns
        return (_RANK, *(c for c in self.columns if c.name != "ranks"))

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:
        """Boxes by kernel; or by rank, how the kernels' time adds up."""
        if not options["by_rank"]:
            return self.chart
        return Chart("stacked_bars", "rank", ("total_ns",), "name", title="Time in kernels on each rank")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distribution of durations by name and class: one row per distinct duration."""
        import pyarrow as pa

        from alltrace.recipes.analysis.distribution import collect

        table = rank.table("kernels", self.tables["kernels"])
        if options["kind"] is not None:
            table = table.filter(pc.equal(table.column("kind").cast(pa.string()), options["kind"]))
        if table.column("end").null_count:  # of a damaged report
            table = table.filter(table.column("end").is_valid())
        full, short = table.column("name"), table.column("short_name")
        first, second = (short, full) if options["names"] == "short" else (full, short)
        name = pc.coalesce(first, second) if first.null_count else first
        return collect({"name": name, "kind": table.column("kind")}, pc.subtract(table.column("end"), table.column("start")))

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """A row per kernel (and rank), the one with the largest total first."""
        import numpy as np
        import pyarrow as pa

        from alltrace.recipes.analysis.merged_distributions import GROUP, Pool

        columns = self.answer_columns(options)
        schema = _schema(columns)
        notes: tuple[str, ...] = ()
        given = [p for p in parts if p.table.num_rows]
        if not given:
            if parts and options["kind"] is not None:
                notes = (f"no kernel is of class {options['kind']!r}",)
            return Answer(schema.empty_table(), columns, notes)
        pool = Pool(given, ("name", "kind"))
        own = np.arange(pool.keys.num_rows)
        if options["by_rank"]:
            summary = pool.summarize_ranks(own, "linear")
        else:
            summary = pool.summarize(own, "linear").append_column("ranks", pa.array(pool.ranks_of(own)))
        at = summary.column(GROUP)
        total = pc.sum(summary.column("total")).as_py()
        totals = summary.column("total").cast(pa.int64())
        share = pc.multiply(pc.divide(totals.cast(pa.float64()), float(total or 1)), 100.0)
        table = pa.table(
            {
                **{n: summary.column(n) for n in ("rank",) if options["by_rank"]},
                "name": run.texts(pool.keys.column("name").combine_chunks()).take(at),
                "kind": pool.keys.column("kind").take(at),
                **{n: summary.column(n) for n in ("ranks",) if not options["by_rank"]},
                "count": summary.column("count"),
                "total_ns": totals,
                "time_percent": share,
                "mean_ns": summary.column("mean"),
                "q1_ns": summary.column("q1"),
                "median_ns": summary.column("median"),
                "q3_ns": summary.column("q3"),
                "min_ns": summary.column("min"),
                "max_ns": summary.column("max"),
                "stddev_ns": summary.column("stddev"),
            }
        )
        by_rank = [("rank", "ascending")] if options["by_rank"] else []
        keys = [("total_ns", "descending"), ("name", "ascending"), ("kind", "ascending"), *by_rank]
        return Answer(table.sort_by(keys).cast(schema), columns, notes)


def _schema(columns: Sequence[AnswerColumn]) -> Any:
    import pyarrow as pa

    whole = {"rank": pa.int32(), "ranks": pa.int64(), "count": pa.int64()}
    exact = {"total_ns", "min_ns", "max_ns"}
    fields = []
    for c in columns:
        kind = pa.int64() if c.name in exact else whole.get(c.name, pa.float64() if c.unit else pa.string())
        fields.append(pa.field(c.name, kind, metadata={"decimals": "1"} if pa.types.is_floating(kind) else None))
    return pa.schema(fields)


RECIPE = Kernels()
