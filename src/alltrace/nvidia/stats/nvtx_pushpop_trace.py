"""The report `nvtx_pushpop_trace`: every push/pop range and its place among the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import RANK_CELL, Cell, StatsReport, stack, with_rank
from alltrace.nvidia.stats.nvtx import is_kind, range_labels
from alltrace.nvidia.stats.nvtx_stack import children, levels, name_tree, number_ranges, pids_and_tids, stacks
from alltrace.recipes.analysis.nvtx_projection import Line, Spans, close_ends
from alltrace.recipes.base import Chart, Part
from alltrace.recipes.row_stream import merged_spilled, spilled_parts
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alltrace.nvidia.stats.nvtx_stack import Numbering
    from alltrace.recipes.base import Answer, RankTables, RunFacts
    from alltrace.recipes.row_stream import StreamedRank
    from alltrace.trace.arrays import Int64


class NvtxPushpopTrace(StatsReport):
    """Every push/pop range: when, how long without its children, and what encloses it.

    The parent of a range is the shortest push/pop range of its thread that contains it. A range that was still open ends with the
    last push/pop range of its rank.
    """

    name = "nvtx_pushpop_trace"
    title = "NVTX Push/Pop Range Trace"
    on_one_clock = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "ranges": ("start", "end", "thread", "domain", "name", "kind", "depth", "parent", "source_row")
    }
    cells: ClassVar[tuple[Cell, ...]] = (
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
    chart: ClassVar[Chart | None] = Chart("scatter", "Start (ns)", ("Duration (ns)",), "Name")

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
            # the stored depth is limited to int16, and counts ranges outside of the selected steps
            if int(level.max(initial=0)) >= np.iinfo(np.int16).max or (level[parent < 0] > 0).any():
                level = levels(parent)
        number, length = children(parent, end - start)
        pid, tid = pids_and_tids(rank, thread)
        return pa.table({
                "Start": start, "End": end, "DurChild": length, "PID": pid, "TID": tid, "Lvl": level, "NumChild": number,
                "parent": parent, "domain": ranges.column("domain"), "name": ranges.column("name"),
                "source_row": ranges.column("source_row"),
            })  # fmt: skip

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges, in the order of their starts, one span of time after the other."""
        tables = (self._in_order(parts, options).table for parts in merged_spilled(self._made(ranks, run, options), "Start"))
        return self.as_made(tables, options)

    def _made(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        with spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks) as parts:
            for part, numbering in zip(parts, number_ranges(parts, run, "source_row"), strict=True):
                yield part.rank, _rows(part.table, numbering, run)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges, in the order of their starts."""
        numberings = number_ranges(parts, run, "source_row")
        made = [Part(part.rank, _rows(part.table, by, run)) for part, by in zip(parts, numberings, strict=True)]
        return self._in_order(made, options)

    def _in_order(self, parts: Sequence[Part], options: Mapping[str, Any]) -> Answer:
        """The answer from the rows of each rank."""
        tables = [
            with_rank(part, RANK_CELL.title) if options.get("by_rank") else part.table for part in parts if part.table.num_rows
        ]
        if not tables:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        whole = stack(tables)
        order = _order(*(integers(whole.column(c)) for c in ("Start", "End", "Lvl", "RangeId")))
        if not np.array_equal(order, np.arange(len(order))):
            whole = pc.take(whole, pa.array(order))
        return self.answer({name: whole.column(name) for name in whole.column_names}, options)


def _rows(table: Any, numbering: Numbering, run: RunFacts) -> Any:
    """The cells of a rank's ranges, by title, from what `map` gave."""
    column = {name: integers(table.column(name), -1) for name in table.column_names if name not in ("domain", "name")}
    number, parent = numbering.numbers(table.column("source_row")), column["parent"]
    codes, first = group([table.column("domain"), table.column("name")])
    distinct = pc.take(table.select(["domain", "name"]), pa.array(first)).combine_chunks()
    labels = range_labels(distinct.column("domain").combine_chunks(), distinct.column("name").combine_chunks(), run)
    name = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels)
    texts, place = stacks(column["Lvl"], parent, number)
    columns: dict[str, Any] = {k: column[k] for k in ("Start", "End", "DurChild", "PID", "TID", "Lvl", "NumChild")}
    columns["Duration"] = columns["End"] - columns["Start"]
    columns["DurNonChild"] = columns["Duration"] - columns["DurChild"]
    columns["Name"] = name
    columns["RangeId"] = number
    columns["ParentId"] = pa.array(number[np.maximum(parent, 0)] if len(number) else number, mask=parent < 0)
    columns["RangeStack"] = pc.take(texts, pa.array(place))
    columns["NameTree"] = name_tree(columns["Lvl"], name)
    return pa.table(columns)


def _order(start: Int64, end: Int64, level: Int64, number: Int64) -> Int64:
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
