"""The recipe `launch-configurations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_NAMES = ("name", "short_name")
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class LaunchConfigurations(Recipe):
    """GPU kernels by name, grid and block: how often each launch configuration ran and how long in all, over all ranks.

    What Nsight Compute measures is one launch; this is what one launch stands for.
    """

    name = "launch-configurations"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", *_NAMES, *_SIZES)}
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        AnswerColumn("name", None, "kernel"),
        AnswerColumn("short_name", None, "name without template arguments and parameters"),
        *(AnswerColumn(f"grid_{axis}", None, f"blocks in {axis}") for axis in "xyz"),
        *(AnswerColumn(f"block_{axis}", None, f"threads in {axis}") for axis in "xyz"),
        AnswerColumn("ranks", None, "ranks that ran it"),
        AnswerColumn("count", None, "launches"),
        AnswerColumn("total_ns", "ns", "summed duration"),
        AnswerColumn("time_percent", "%", "total_ns of the sum over all rows"),
        AnswerColumn("min_ns", "ns", "shortest"),
        AnswerColumn("max_ns", "ns", "longest"),
    )
    chart = Chart("bars", "name", ("total_ns",), detail="grid_x", title="Time of launch configurations")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Count, sum, least and greatest duration by name, grid and block."""
        import pyarrow as pa

        table = rank.table("kernels", self.tables["kernels"])
        keys = {n: table.column(n) for n in _NAMES} | {n: table.column(n).cast(pa.int64()) for n in _SIZES}
        length = pc.subtract(table.column("end"), table.column("start"))
        given = pa.table({**keys, "length": length}).group_by([*_NAMES, *_SIZES], use_threads=False)
        return given.aggregate([("length", "count"), ("length", "sum"), ("length", "min"), ("length", "max")])

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:  # noqa: ARG002
        """A row per configuration, the one with the largest total first."""
        import pyarrow as pa

        schema = _schema(self.columns)
        given = [p.table for p in parts if p.table.num_rows]
        if not given:
            return Answer(schema.empty_table(), self.columns, chart=self.chart)
        grouped = pa.concat_tables(given).group_by([*_NAMES, *_SIZES], use_threads=False)
        # a rank has one row of each configuration, so that rows are ranks
        how = [
            ("length_count", "count"),
            ("length_count", "sum"),
            ("length_sum", "sum"),
            ("length_min", "min"),
            ("length_max", "max"),
        ]
        whole = grouped.aggregate(how)
        total = pc.sum(whole.column("length_sum_sum")).as_py()
        share = pc.multiply(pc.divide(whole.column("length_sum_sum").cast(pa.float64()), float(total or 1)), 100.0)
        names = {n: run.texts(whole.column(n)) for n in _NAMES}
        table = pa.table(
            {
                "name": pc.coalesce(names["name"], names["short_name"]),
                "short_name": names["short_name"],
                **{n: whole.column(n) for n in _SIZES},
                "ranks": whole.column("length_count_count"),
                "count": whole.column("length_count_sum"),
                "total_ns": whole.column("length_sum_sum"),
                "time_percent": share,
                "min_ns": whole.column("length_min_min"),
                "max_ns": whole.column("length_max_max"),
            }
        )
        keys = [("total_ns", "descending"), ("name", "ascending"), *((n, "ascending") for n in _SIZES)]
        return Answer(table.sort_by(keys).cast(schema), self.columns, chart=self.chart)


def _schema(columns: Sequence[AnswerColumn]) -> Any:
    import pyarrow as pa

    kinds = {"name": pa.string(), "short_name": pa.string(), "time_percent": pa.float64()}
    return pa.schema(
        [
            pa.field(c.name, kinds.get(c.name, pa.int64()), metadata={"decimals": "2"} if c.name == "time_percent" else None)
            for c in columns
        ]
    )


RECIPE = LaunchConfigurations()
