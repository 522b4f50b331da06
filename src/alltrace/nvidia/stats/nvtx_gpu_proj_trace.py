"""The report `nvtx_gpu_proj_trace`: every range that launched GPU work, and where that work ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import RANK_CELL, Cell, stack
from alltrace.nvidia.stats.nvtx import STYLE, range_labels, style_labels
from alltrace.nvidia.stats.nvtx_gpu_proj import ProjectionReport
from alltrace.nvidia.stats.nvtx_stack import number_ranges, stacks
from alltrace.recipes.base import Chart, Part
from alltrace.recipes.row_stream import merged_spilled, spilled_parts
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from alltrace.nvidia.stats.nvtx_stack import Numbering
    from alltrace.recipes.base import Answer, RunFacts
    from alltrace.recipes.row_stream import StreamedRank


class NvtxGpuProjTrace(ProjectionReport):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside.

    A range and a call belong together when they are of one thread and the range contains the call; only ranges that ended on the
    thread they started on count. The first row, without a name, represents the work launched outside all ranges.
    """

    name = "nvtx_gpu_proj_trace"
    title = "NVTX GPU Projection Trace"
    on_one_clock = True
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Name", "text", "Range."),
        Cell("Projected Start", "time", "First start of its GPU work."),
        Cell("Projected Duration", "time", "To the last end of its GPU work."),
        Cell("Orig Start", "time", "Start on the CPU."),
        Cell("Orig Duration", "time", "Length on the CPU."),
        STYLE,
        Cell("PID", "int", "Process id."),
        Cell("TID", "int", "Thread id."),
        Cell("NumGPUOps", "int", "Launches inside with GPU work: distinct correlation ids."),
        Cell("Lvl", "int", "Projected ranges that enclose it."),
        Cell("NumChild", "int", "Its children among the projected ranges."),
        Cell("RangeId", "int", "Its number: the row of the range among the events of its report."),
        Cell("ParentId", "int", "Number of the range that encloses it."),
        Cell("RangeStack", "text", "Numbers of the ranges around it, outermost first, and its own."),
    )
    chart: ClassVar[Chart | None] = Chart("scatter", "Projected Start (ns)", ("Projected Duration (ns)",), "Name")

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges by number, after the work outside of ranges, a span of numbers at a time."""
        return self.as_made(self._spans(ranks, run, options), options)

    def _spans(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Generator[Any, None, None]:
        with spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks) as parts:
            first = _outside([(part.rank, outside_rows(part.table)) for part in parts], options)
            yield self.answer(
                {cell.title: [row.get(cell.title) for row in first] for cell in self.answer_cells(options)}, options
            ).table
            inside = [part for part in parts if _inside(part.table).num_rows]
            numberings = number_ranges((Part(part.rank, _inside(part.table)) for part in inside), run, "source_row")
            rows = ((part.rank, _rows(part, by, run)) for part, by in zip(inside, numberings, strict=True))
            if _follow(inside, numberings):
                in_order: Iterable[list[Part]] = ([Part(rank, table)] for rank, table in rows)
            else:
                in_order = merged_spilled(rows, "RangeId")
            for spans in in_order:
                if columns := _in_order([part.table for part in spans]):
                    yield self.answer(columns, options).table

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges by number, after the work outside of ranges."""
        first = _outside([(part.rank, outside_rows(part.table)) for part in parts], options)
        inside = [part for part in (Part(part.rank, _inside(part.table)) for part in parts) if part.table.num_rows]
        numberings = number_ranges(inside, run, "source_row")
        columns = _in_order([_rows(part, by, run) for part, by in zip(inside, numberings, strict=True)])
        titles = [cell.title for cell in self.answer_cells(options)]
        return self.answer({t: _joined([row.get(t) for row in first], columns.get(t, [])) for t in titles}, options)


def _outside(alone: Sequence[tuple[int, Any]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of work outside all ranges: one row, or by rank one each, from each rank's `outside_rows`."""
    outside = [(rank, row) for rank, rows in alone for row in rows.drop_columns(["correlations"]).to_pylist()]
    if outside and not options.get("by_rank"):
        rank, last = max(outside, key=lambda o: o[1]["last"])
        number = _distinct(rows.column("correlations") for _, rows in alone if rows.num_rows)
        outside = [(rank, {**last, "first": min(row["first"] for _, row in outside), "operations": number})]
    return [outside_row(rank, row) for rank, row in outside]


def _inside(table: Any) -> Any:
    """The rows of a part that are ranges; its last row is the work outside."""
    return table.slice(0, table.num_rows - outside_rows(table).num_rows)


def _follow(parts: Iterable[Part], numberings: Iterable[Numbering]) -> bool:
    """Whether each rank's range numbers follow those of the previous rank: no two ranks are of one report."""
    last = None
    for part, numbering in zip(parts, numberings, strict=True):
        number = numbering.numbers(_inside(part.table).column("source_row"))
        if last is not None and int(number.min()) < last:
            return False
        last = int(number.max())
    return True


def _rows(part: Part, numbering: Numbering, run: RunFacts) -> Any:
    return pa.table(trace_columns(part.rank, _inside(part.table), numbering, run))


def _in_order(tables: Sequence[Any]) -> dict[str, Any]:
    """The columns of all ranges in the order of their numbers; none if there is no range."""
    some = [table for table in tables if table.num_rows]
    if not some:
        return {}
    whole = stack(some)
    number = integers(whole.column("RangeId"))
    if (number[1:] < number[:-1]).any():
        whole = pc.take(whole, pa.array(np.argsort(number, kind="stable")))
    return {name: whole.column(name) for name in whole.column_names}


def outside_rows(table: Any) -> Any:
    """The rows of a part for work outside all ranges: one, or none."""
    return pc.filter(table, pc.is_null(table.column("start"))) if table.num_rows else table


def _distinct(columns: Iterable[Any]) -> int:
    """How many distinct numbers the lists of all columns hold; reads one rank after the other."""
    ids = np.empty(0, np.int64)
    for column in columns:
        ids = np.sort(np.concatenate((ids, pc.list_flatten(column).to_numpy())), kind="stable")
        ids = ids[np.concatenate(([True], ids[1:] != ids[:-1]))]
    return len(ids)


def outside_row(rank: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of work outside all ranges, from a row of `outside_rows`."""
    return {
        "Projected Start": row["first"], "Projected Duration": row["last"] - row["first"], "PID": row["PID"], "TID": row["TID"],
        "NumGPUOps": row["operations"], "NumChild": 0, RANK_CELL.title: rank,
    }  # fmt: skip


def _joined(first: list[Any], rest: Any) -> Any:
    if not first:
        return rest
    rest = pa.array(rest) if isinstance(rest, np.ndarray) else rest
    array = rest if isinstance(rest, pa.Array | pa.ChunkedArray) else pa.array(rest)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    if pa.types.is_null(array.type) or not len(array):
        return pa.array(first)
    return pa.chunked_array([pa.array(first, array.type), *chunks])


def trace_columns(rank: int, table: Any, numbering: Numbering, run: RunFacts) -> dict[str, Any]:
    """The cells of all ranges of one rank, by title, from what `map` gave of them."""
    whole = ("first", "last", "start", "end", "operations", "PID", "TID", "Lvl", "NumChild", "parent")
    column = {name: integers(table.column(name), -1) for name in whole}
    number, parent = numbering.numbers(table.column("source_row")), column["parent"]
    codes, some = group([table.column("domain"), table.column("name")])
    distinct = pc.take(table, pa.array(some)).combine_chunks()
    labels = range_labels(distinct.column("domain").combine_chunks(), distinct.column("name").combine_chunks(), run)
    texts, place = stacks(column["Lvl"], parent, number)
    return {
        "Name": pc.take(labels, pa.array(codes)),
        "Projected Start": column["first"],
        "Projected Duration": column["last"] - column["first"],
        "Orig Start": column["start"],
        "Orig Duration": column["end"] - column["start"],
        "Style": style_labels(table.column("kind").combine_chunks()),
        "PID": column["PID"],
        "TID": column["TID"],
        "NumGPUOps": column["operations"],
        "Lvl": column["Lvl"],
        "NumChild": column["NumChild"],
        "RangeId": number,
        "ParentId": pa.array(number[np.maximum(parent, 0)] if len(number) else number, mask=parent < 0),
        "RangeStack": pc.take(texts, pa.array(place)),
        RANK_CELL.title: np.full(len(number), rank, np.int64),
    }


RECIPE = NvtxGpuProjTrace()
