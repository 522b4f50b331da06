"""The report `nvtx_pushpop_trace`: every push/pop range and its place among the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import group
from alltrace.recipes.analysis.nvtx_projection import Line, Spans, close_ends
from alltrace.recipes.base import Chart
from alltrace.recipes.stats.base import RANK_CELL, Cell, StatsReport
from alltrace.recipes.stats.nvtx import is_kind, range_labels
from alltrace.recipes.stats.nvtx_stack import children, levels, name_tree, number_ranges, pids_and_tids, stacks
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

    Ints = NDArray[np.int64]


class NvtxPushpopTrace(StatsReport):
    """Every push/pop range: when, how long without its children, and what encloses it.

    The parent of a range is the shortest push/pop range of its thread that contains it. A range that was still open ends with the
    last push/pop range of its rank.
    """

    name = "nvtx_pushpop_trace"
    title = "NVTX Push/Pop Range Trace"
    on_one_clock = True
    tables: ClassVar = {"ranges": ("start", "end", "thread", "domain", "name", "kind", "depth", "parent", "source_row")}
    cells = (
        Cell("Start", "time", "Start."),
        Cell("End", "time", "End."),
        Cell("Duration", "time", "Length."),
        Cell("DurChild", "time", "Length of its children together."),
        Cell("DurNonChild", "time", "Length without its children."),
        Cell("Name", "text", "Range."),
        Cell("PID", "int", "Process id."),
        Cell("TID", "int", "Thread id."),
        Cell("Lvl", "int", "Ranges that enclose it."),
        Cell("NumChild", "int", "Its children."),
        Cell("RangeId", "int", "Its number: the row of the range among the events of its report."),
        Cell("ParentId", "int", "Number of the range that encloses it."),
        Cell("RangeStack", "text", "Numbers of the ranges around it, outermost first, and its own."),
        Cell("NameTree", "text", "Range, with two dashes in front for each range around it."),
    )
    chart = Chart("scatter", "Start (ns)", ("Duration (ns)",), "Name")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The push/pop ranges of the rank, in the order of their starts; `parent` is a row of the result."""
        ranges = rank.table("ranges", self.tables["ranges"])
        wanted = pc.and_(is_kind(ranges.column("kind"), "pushpop"), pc.is_valid(ranges.column("thread")))
        keep = pc.fill_null(wanted, False).to_numpy()
        place = None if keep.all() else np.cumsum(keep) - 1
        ranges = ranges if place is None else pc.filter(ranges, pa.array(keep))
        ends = close_ends(ranges)
        start, end, thread = integers(ranges.column("start")), integers(ends), integers(ranges.column("thread"))
        if ranges.column("end").null_count:
            line = Line(int(thread.max(initial=-1)) + 1, start, end)
            parent = Spans(line.place(thread, start), line.place(thread, end), end - start).parents()
            level = levels(parent)
        else:
            parent, level = integers(ranges.column("parent"), -1), integers(ranges.column("depth"))
            parent = parent if place is None else np.where(parent >= 0, place[np.maximum(parent, 0)], -1)
            # the stored depth goes no further than int16, and counts ranges that lie outside of the steps asked about
            if int(level.max(initial=0)) >= np.iinfo(np.int16).max or (level[parent < 0] > 0).any():
                level = levels(parent)
        number, length = children(parent, end - start)
        pid, tid = pids_and_tids(rank, thread)
        return pa.table({
                "Start": start, "End": end, "DurChild": length, "PID": pid, "TID": tid, "Lvl": level, "NumChild": number,
                "parent": parent, "domain": ranges.column("domain"), "name": ranges.column("name"),
                "source_row": ranges.column("source_row"),
            })  # fmt: skip

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges, in the order of their starts."""
        parts = [part for part in parts if part.table.num_rows]
        if not parts:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        number = np.concatenate(number_ranges(parts, run, "source_row"))
        sizes = [part.table.num_rows for part in parts]
        before = np.repeat(np.cumsum(sizes) - sizes, sizes)
        table = pa.concat_tables([part.table for part in parts]).combine_chunks()
        column = {name: integers(table.column(name), -1) for name in table.column_names if name not in ("domain", "name")}
        parent = np.where(column["parent"] >= 0, column["parent"] + before, -1)
        codes, first = group([table.column("domain"), table.column("name")])
        distinct = pc.take(table.select(["domain", "name"]), pa.array(first)).combine_chunks()
        labels = range_labels(distinct.column("domain").combine_chunks(), distinct.column("name").combine_chunks(), run)
        texts, place = stacks(column["Lvl"], parent, number)
        order: Any = _order(column["Start"], column["End"], column["Lvl"], number)
        if np.array_equal(order, np.arange(len(order))):
            order = slice(None)  # as they are: nothing is copied
        up = parent[order]
        name = pa.DictionaryArray.from_arrays(pa.array(codes[order].astype(np.int32)), labels)
        columns: dict[str, Any] = {k: column[k][order] for k in ("Start", "End", "DurChild", "PID", "TID", "Lvl", "NumChild")}
        columns["Duration"] = columns["End"] - columns["Start"]
        columns["DurNonChild"] = columns["Duration"] - columns["DurChild"]
        columns["Name"] = name
        columns["RangeId"] = number[order]
        columns["ParentId"] = pa.array(number[np.maximum(up, 0)], mask=up < 0)
        columns["RangeStack"] = pc.take(texts, pa.array(place[order]))
        columns["NameTree"] = name_tree(columns["Lvl"], name)
        if options.get("by_rank"):
            columns[RANK_CELL.title] = np.repeat([part.rank for part in parts], sizes)[order]
        return self.answer(columns, options)


def _order(start: Ints, end: Ints, level: Ints, number: Ints) -> Ints:
    """The rows by start, and where starts are equal by end, level and number."""
    order = np.argsort(start, kind="stable")
    begin = start[order]
    equal = begin[1:] == begin[:-1]
    if equal.any():
        tied = np.flatnonzero(np.concatenate((equal, [False])) | np.concatenate(([False], equal)))
        rows = order[tied]
        order[tied] = rows[np.lexsort((number[rows], level[rows], end[rows], start[rows]))]
    return order


RECIPE = NvtxPushpopTrace()
