"""The report `nvtx_gpu_proj_trace`: every range that launched GPU work, and where that work ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import group
from alltrace.recipes.base import Chart, Part
from alltrace.recipes.stats.base import RANK_CELL, Cell
from alltrace.recipes.stats.nvtx import STYLE, range_labels, style_labels
from alltrace.recipes.stats.nvtx_gpu_proj import ProjectionReport
from alltrace.recipes.stats.nvtx_stack import number_ranges, stacks
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import Answer, RunFacts


class NvtxGpuProjTrace(ProjectionReport):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside.

    A range and a call belong together when they are of one thread and the range contains the call; only ranges that ended on the
    thread they started on count. The first row, without a name, stands for the work launched outside all ranges.
    """

    name = "nvtx_gpu_proj_trace"
    title = "NVTX GPU Projection Trace"
    on_one_clock = True
    cells = (
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
    chart = Chart("scatter", "Projected Start (ns)", ("Projected Duration (ns)",), "Name")

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges by number, behind the work outside of ranges."""
        by_rank = bool(options.get("by_rank"))
        alone = [(part.rank, outside_rows(part.table)) for part in parts]
        outside = [(rank, row) for rank, rows in alone for row in rows.drop_columns(["correlations"]).to_pylist()]
        parts = [Part(part.rank, pc.filter(part.table, pc.is_valid(part.table.column("start")))) for part in parts]
        parts = [part for part in parts if part.table.num_rows]
        columns: dict[str, Any] = {cell.title: [] for cell in self.answer_cells(options)}
        if parts:
            columns = trace_columns(parts, run)
        if outside and not by_rank:
            rank, last = max(outside, key=lambda o: o[1]["last"])
            number = _distinct(rows.column("correlations") for _, rows in alone if rows.num_rows)
            merged = {**last, "first": min(row["first"] for _, row in outside), "operations": number}
            outside = [(rank, merged)]
        first = [outside_row(rank, row) for rank, row in outside]
        joined = {c.title: _joined([r.get(c.title) for r in first], columns[c.title]) for c in self.answer_cells(options)}
        return self.answer(joined, options)


def outside_rows(table: Any) -> Any:
    """The rows of a part that stand for work outside all ranges: one, or none."""
    return pc.filter(table, pc.is_null(table.column("start"))) if table.num_rows else table


def _distinct(columns: Iterable[Any]) -> int:
    """How many distinct numbers the lists of all columns hold; those of one rank are looked at after the other."""
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


def trace_columns(parts: Sequence[Part], run: RunFacts) -> dict[str, Any]:
    """The cells of all ranges of some ranks, by title, in the order of their numbers."""
    number = np.concatenate(number_ranges(parts, run, "source_row"))
    sizes = [part.table.num_rows for part in parts]
    before = np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = pa.concat_tables([part.table for part in parts]).combine_chunks()
    whole = ("first", "last", "start", "end", "operations", "PID", "TID", "Lvl", "NumChild", "parent")
    column = {name: integers(table.column(name), -1) for name in whole}
    parent = np.where(column["parent"] >= 0, column["parent"] + before, -1)
    codes, some = group([table.column("domain"), table.column("name")])
    distinct = pc.take(table, pa.array(some)).combine_chunks()
    labels = range_labels(distinct.column("domain").combine_chunks(), distinct.column("name").combine_chunks(), run)
    texts, place = stacks(column["Lvl"], parent, number)
    styles = style_labels(table.column("kind").combine_chunks())
    order: Any = slice(None)  # as they are: nothing is copied
    if (number[1:] < number[:-1]).any():
        order = np.argsort(number, kind="stable")
    up = parent[order]
    column = {name: values[order] for name, values in column.items()}
    return {
        "Name": pc.take(labels, pa.array(codes[order])),
        "Projected Start": column["first"],
        "Projected Duration": column["last"] - column["first"],
        "Orig Start": column["start"],
        "Orig Duration": column["end"] - column["start"],
        "Style": styles if isinstance(order, slice) else pc.take(styles, pa.array(order)),
        "PID": column["PID"],
        "TID": column["TID"],
        "NumGPUOps": column["operations"],
        "Lvl": column["Lvl"],
        "NumChild": column["NumChild"],
        "RangeId": number[order],
        "ParentId": pa.array(number[np.maximum(up, 0)], mask=up < 0),
        "RangeStack": pc.take(texts, pa.array(place[order])),
        RANK_CELL.title: np.repeat([part.rank for part in parts], sizes)[order],
    }


RECIPE = NvtxGpuProjTrace()
