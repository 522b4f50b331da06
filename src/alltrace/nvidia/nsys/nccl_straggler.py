"""The recipe `nccl_straggler`: which rank of a communicator keeps the others waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.filters import TIMES, given_filters
from alltrace.nvidia.nsys.base import RANK_CELL, Cell, NsysRecipe
from alltrace.recipes.analysis.distribution import COUNT, collect, summarize
from alltrace.recipes.base import Chart, Option, alignment_of
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import bin_edges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts


class NcclStraggler(NsysRecipe):
    """Which ranks arrive late at the operations of their communicators, how often and how much, and when.

    One operation on all its ranks is one instance, by the profiler's ids if it has them and by order otherwise. A rank's
    lateness is the time from the first arrival at an instance to its own, on the aligned clock; what the others wait for the last
    rank is counted as caused by it. `alltrace stragglers` says why a rank is late.
    """

    name = "nccl_straggler"
    aligned = True
    windowed = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"collectives": ("start", "end")}
    filters: ClassVar[tuple[Option, ...]] = TIMES
    own: ClassVar[tuple[Option, ...]] = (
        Option("bins", int, 30, "Number of time bins of the table `heatmap`.", least=1, most=100_000),
    )
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "stragglers": (
            Cell("Communicator", "text", "Communicator."),
            RANK_CELL,
            Cell("Operations", "int", "Instances of the communicator that the rank took part in."),
            Cell("Times Last", "int", "Those at which it was the last to arrive."),
            Cell("Last", "percent", "Their share."),
            Cell("Caused Wait", "ns", "Time that the other ranks waited for it then, added up."),
            Cell("Late Avg", "mean_ns", "Mean lateness."),
            Cell("Late Med", "mean_ns", "Median lateness."),
            Cell("Late Max", "ns", "Largest lateness."),
        ),
        "heatmap": (
            Cell("Duration", "ns", "Start of the bin."),
            RANK_CELL,
            Cell("Operations", "int", "Instances with the first arrival in the bin."),
            Cell("Times Last", "int", "Those at which the rank was the last to arrive."),
            Cell("Late Avg", "mean_ns", "Mean lateness; null without operations."),
        ),
    }
    chart: ClassVar[Chart | None] = Chart("bars", "Rank", ("Caused Wait",), "Communicator")

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """Marks the rank as selected; the values are derived over all ranks."""
        return pa.table({"asked": pa.array([True])})

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The same: times are filtered instance by instance."""
        return self.map_rank(rank, options)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """Both tables, who caused most waiting first."""
        members = alignment_of(run).members
        asked = [part.rank for part in parts]
        members = members.filter(pc.is_in(members.column("rank"), value_set=pa.array(asked, members.schema.field("rank").type)))
        filters = given_filters(options)
        if filters.start is not None:
            members = members.filter(pc.greater_equal(members.column("last_end_ns"), filters.start))
        if filters.end is not None:
            members = members.filter(pc.less_equal(members.column("first_arrival_ns"), filters.end))
        if not members.num_rows:
            return self.answer({}, ("no operation was matched on several ranks",) if parts else ())
        names = ("rank", "communicator", "arrival_ns", "first_arrival_ns", "last_rank", "wait_ns")
        rank, group, arrival, first, last, wait = (integers(members.column(n)) for n in names)
        late = arrival - first
        called = {g.number: g.name for g in alignment_of(run).groups}
        summary = summarize(collect({"group": pa.array(group), "rank": pa.array(rank)}, late))
        own = {"group": integers(summary.column("group")), "rank": integers(summary.column("rank"))}
        place = {key: i for i, key in enumerate(zip(own["group"].tolist(), own["rank"].tolist(), strict=True))}
        times, caused = np.zeros(len(place), np.int64), np.zeros(len(place), np.int64)
        at = np.array([place.get(key, -1) for key in zip(group.tolist(), last.tolist(), strict=True)], np.int64)
        np.add.at(caused, at[at >= 0], wait[at >= 0])
        np.add.at(times, at[(at >= 0) & (rank == last)], 1)
        count = integers(summary.column(COUNT))
        table = pa.table(
            {
                "Communicator": pa.array([called.get(g, str(g)) for g in own["group"].tolist()], pa.string()),
                "Rank": own["rank"], "Operations": count, "Times Last": times, "Last": 100.0 * times / count, "Caused Wait": caused,
                "Late Avg": summary.column("mean"), "Late Med": summary.column("median"), "Late Max": summary.column("max"),
            }
        )  # fmt: skip
        order = [("Caused Wait", "descending"), ("Rank", "ascending"), ("Communicator", "ascending")]
        table = table.take(pc.sort_indices(table, order))
        heat = _heatmap(run.span_ns, options["bins"], rank, first, late, rank == last)
        return self.answer({"stragglers": {n: table.column(n) for n in table.column_names}, "heatmap": heat})


def _heatmap(span: tuple[int, int], bins: int, rank: Any, first: Any, late: Any, was_last: Any) -> dict[str, Any]:
    """A row per bin and rank."""
    start, end = min(span[0], int(first.min())), max(span[1], int(first.max()) + 1)
    edges = bin_edges(start, end, min(bins, end - start))
    ranks, number = np.unique(rank, return_inverse=True)
    cell = (np.searchsorted(edges, first, side="right") - 1) * len(ranks) + number
    size = (len(edges) - 1) * len(ranks)
    count, times, total = (np.zeros(size, np.int64) for _ in range(3))
    for into, values in ((count, 1), (times, was_last.astype(np.int64)), (total, late)):
        np.add.at(into, cell, values)
    return {
        "Duration": np.repeat(edges[:-1], len(ranks)),
        "Rank": np.tile(ranks, len(edges) - 1),
        "Operations": count,
        "Times Last": times,
        "Late Avg": pa.array(total / np.maximum(count, 1), mask=count == 0),
    }


RECIPE = NcclStraggler()
