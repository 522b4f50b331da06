"""The recipe `launches`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_MEASURES = ("call", "gpu", "delay", "short")
_KEYS = ("name", "measure")
_FIRST = {
    "rank": AnswerColumn("rank", None, "rank"),
    "kernel": AnswerColumn("name", None, "kernel, `copy` and its direction, or `fill`"),
    "call": AnswerColumn("name", None, "the API call"),
}


class Launches(Recipe):
    """How GPU work was launched: the time of the call, the delay until the work starts, and the time of the work itself.

    The delay is from the end of the call to the start of the work; work that starts while its call still runs has none. Short
    work takes less time than the call that launched it, so the host cannot keep the device busy with it alone.
    """

    name = "launches"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": ("start", "end", "device", "stream", "correlation", "process", "name", "short_name"),
        "copies": ("start", "end", "device", "stream", "correlation", "process", "kind", "bytes"),
        "api": ("start", "end", "process", "thread", "correlation", "name"),
    }
    requires = ("kernels", "api")
    options = (
        Option("by", str, "rank", "what a row is", tuple(_FIRST)),
        Option("call_cutoff_ns", int, 50_000, "a longer call counts as slow, in ns", least=0),
        Option("delay_cutoff_ns", int, 100_000, "a longer delay counts as late, in ns", least=0),
        Option("top", int, 50, "how many rows by kernel or call, those with most launches first; 0 for all", least=0),
    )
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        _FIRST["rank"],
        AnswerColumn("launches", None, "kernels, copies and fills whose call is known"),
        AnswerColumn("call_mean_ns", "ns", "mean time of the call"),
        AnswerColumn("call_median_ns", "ns", "exact median"),
        AnswerColumn("call_max_ns", "ns", "longest"),
        AnswerColumn("gpu_mean_ns", "ns", "mean time of the work"),
        AnswerColumn("gpu_median_ns", "ns", "exact median"),
        AnswerColumn("delay_mean_ns", "ns", "mean delay"),
        AnswerColumn("delay_median_ns", "ns", "exact median"),
        AnswerColumn("delay_max_ns", "ns", "longest"),
        AnswerColumn("short", None, "launches whose work takes less time than the call"),
        AnswerColumn("slow", None, "launches whose call takes more than call_cutoff_ns"),
        AnswerColumn("late", None, "launches whose delay is more than delay_cutoff_ns"),
    )
    chart = Chart("bars", "rank", ("call_median_ns", "delay_median_ns", "gpu_median_ns"))

    def answer_columns(self, options: Mapping[str, Any]) -> tuple[AnswerColumn, ...]:
        """By kernel or call, `name` comes first instead of `rank`."""
        return (_FIRST[options["by"]], *self.columns[1:])

    def answer_chart(self, options: Mapping[str, Any]) -> Chart | None:
        """With a name in place of the rank, that is on the axis."""
        return Chart("bars", self.answer_columns(options)[0].name, self.chart.y)

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distribution of each measure by name."""
        import numpy as np
        import pyarrow as pa

        from alltrace.recipes.analysis.distribution import collect
        from alltrace.recipes.analysis.launched_work import gpu_work

        work = gpu_work(rank)
        rows = np.flatnonzero(work.call >= 0)
        begin, end = work.of_calls("start", rows), work.of_calls("end", rows)
        call, gpu = np.maximum(end - begin, 0), work.end[rows] - work.start[rows]
        values = (call, gpu, np.maximum(work.start[rows] - np.maximum(end, begin), 0), (gpu < call).astype(np.int64))
        if options["by"] == "rank":
            names = pa.nulls(len(rows), pa.string())
        elif options["by"] == "call":
            kinds, places = np.unique(work.of_calls("name", rows), return_inverse=True)
            names = rank.texts(pa.array(kinds, pa.int64())).take(pa.array(places.ravel()))
        else:
            names = work.labels(rank).take(pa.array(rows))
        measures = pa.array(np.repeat(np.arange(len(_MEASURES), dtype=np.int64), len(rows)))
        keys = {"name": pa.concat_arrays([names] * len(_MEASURES)), "measure": measures}
        return collect(keys, np.concatenate(values))

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:  # noqa: ARG002
        """A row per rank, kernel or call."""
        import numpy as np
        import pyarrow as pa

        from alltrace.recipes.analysis.merged_distributions import GROUP, Pool

        columns = self.answer_columns(options)
        schema = _schema(columns)
        given = [p for p in parts if p.table.num_rows]
        if not given:
            notes = ("no call that launched GPU work is known",) if parts else ()
            return Answer(schema.empty_table(), columns, notes)
        first = columns[0].name
        found: dict[Any, dict[str, Any]] = {}
        # by rank each rank is a pool of its own
        for pool in [Pool([p], _KEYS) for p in given] if first == "rank" else [Pool(given, _KEYS)]:
            own = np.arange(pool.keys.num_rows)
            measures = [_MEASURES[m] for m in pool.keys.column("measure").to_pylist()]
            called = [pool.ranks[0]] * len(own) if first == "rank" else pool.keys.column("name").to_pylist()
            above = {
                "slow": ("call", pool.above(own, options["call_cutoff_ns"])),
                "late": ("delay", pool.above(own, options["delay_cutoff_ns"])),
            }
            for row in pool.summarize(own, "linear").to_pylist():
                name, measure = called[row[GROUP]], measures[row[GROUP]]
                mine = found.setdefault(name, {first: name, "launches": row["count"]})
                if measure == "short":
                    mine["short"] = int(row["total"])
                else:
                    mine |= {f"{measure}_{statistic}_ns": row[statistic] for statistic in ("mean", "median", "max")}
                mine |= {column: int(number[row[GROUP]]) for column, (of, number) in above.items() if of == measure}
        rows = list(found.values())
        rows.sort(key=lambda r: r["rank"] if first == "rank" else (-r["launches"], r["name"] or ""))
        kept = rows[: options["top"] or None] if first == "name" else rows
        return Answer(pa.Table.from_pylist([{f.name: r[f.name] for f in schema} for r in kept], schema), columns)


def _schema(columns: Sequence[AnswerColumn]) -> Any:
    import pyarrow as pa

    fields = []
    for column in columns:
        rough = column.name.endswith(("_mean_ns", "_median_ns"))
        kind = {"rank": pa.int32(), "name": pa.string()}.get(column.name, pa.float64() if rough else pa.int64())
        fields.append(pa.field(column.name, kind, metadata={"decimals": "1"} if rough else None))
    return pa.schema(fields)


RECIPE = Launches()
