"""The reports of NVTX ranges: every push/pop range, every range projected on the GPU, and projected ranges by name."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import cells, stack
from alltrace.nvidia.ranges import (
    RANGE_NAME,
    STYLE_NAME,
    Numbering,
    children,
    is_kind,
    levels,
    name_tree,
    number_ranges,
    numbered_cells,
    pids_and_tids,
    range_names,
    style_labels,
)
from alltrace.nvidia.report import RANK_CELL, Report, SqlReport, by_rank
from alltrace.recipes.analysis.distribution import COUNT
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS, Line, Projection, Spans, close_ends, projection
from alltrace.recipes.analysis.statistics_sql import statistics_statement
from alltrace.recipes.base import Answer, Chart, Options, Part, RunFacts
from alltrace.recipes.row_stream import StreamedRank, merged_spilled, spilled_parts
from alltrace.recipes.sql_recipe import Statements
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers

PROJECTION_NEEDS: tuple[str | tuple[str, ...], ...] = ("api", ("kernels", "copies"))
NO_RANGES = {"ranges": "all GPU work lies outside of ranges"}
_NUMBER_CELLS = (
    "RangeId | int | Its number: the row of the range among the events of its report.",
    "ParentId | int | Number of the range that encloses it.",
    "RangeStack | name | Numbers of the ranges around it, outermost first, and its own.",
)


class NvtxPushpopTrace(Report):
    """Every push/pop range: when, how long without its children, and what encloses it.

    The parent of a range is the shortest push/pop range of its thread that contains it. A range that was still open
    ends with the last push/pop range of its rank.
    """

    name = "nvtx_pushpop_trace"
    title = "NVTX Push/Pop Range Trace"
    clock = "one"
    tables = {"ranges": ("start", "end", "thread", "domain", "name", "kind", "depth", "parent", "source_row")}  # noqa: RUF012
    cells = cells(
        "Start | time | Start.",
        "End | time | End.",
        "Duration | time | Length.",
        "DurChild | time | Length of its children together.",
        "DurNonChild | time | Length without its children.",
        "Name | name | Range.",
        "PID | int | Process id.",
        "TID | int | Thread id.",
        "Lvl | int | Ranges that enclose it.",
        "NumChild | int | Its children.",
        *_NUMBER_CELLS,
        "NameTree | name | Range, with two dashes in front for each range around it.",
    )
    chart = Chart("scatter", "Start (ns)", ("Duration (ns)",), "Name")

    def map(self, rank: Rank, options: Options) -> Any:
        """The push/pop ranges of the rank, in the order of their starts; `parent` is a row of the result."""
        ranges = rank.table("ranges", self.tables["ranges"])
        wanted = pc.and_(is_kind(ranges.column("kind"), "pushpop"), pc.is_valid(ranges.column("thread")))
        keep = pc.fill_null(wanted, False).to_numpy()
        place = None if keep.all() else np.cumsum(keep) - 1
        ranges = ranges if place is None else pc.filter(ranges, pa.array(keep))
        start, end, thread = (
            integers(c) for c in (ranges.column("start"), close_ends(ranges), ranges.column("thread"))
        )
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
                "Start": start, "End": end, "DurChild": length, "PID": pid, "TID": tid, "Lvl": level,
                "NumChild": number, "parent": parent, **{c: ranges.column(c) for c in ("domain", "name", "source_row")},
            })  # fmt: skip

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer:
        spans = merged_spilled(self._spilled(ranks, run, options), "Start")
        return self.row_stream((self._in_order(parts, options).table for parts in spans), options)

    def _spilled(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Iterator[tuple[int, Any]]:
        with spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks) as parts:
            for part, numbering in zip(parts, number_ranges(parts, run), strict=True):
                yield part.rank, _pushpop_cells(part.table, numbering, run)

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        numbered = zip(parts, number_ranges(parts, run), strict=True)
        return self._in_order([Part(part.rank, _pushpop_cells(part.table, by, run)) for part, by in numbered], options)

    def _in_order(self, parts: Sequence[Part], options: Options) -> Answer:
        tables = self.tables_of(parts, options)
        if not tables:
            return self.empty(options)
        whole = stack(tables)
        order = _by_start(*(integers(whole.column(c)) for c in ("Start", "End", "Lvl", "RangeId")))
        if not np.array_equal(order, np.arange(len(order))):
            whole = pc.take(whole, pa.array(order))
        return self.answer({name: whole.column(name) for name in whole.column_names}, options)


def _pushpop_cells(table: Any, numbering: Numbering, run: RunFacts) -> Any:
    columns = {c: integers(table.column(c), -1) for c in ("Start", "End", "DurChild", "PID", "TID", "Lvl", "NumChild")}
    duration, names = columns["End"] - columns["Start"], range_names(table, run)
    return pa.table(
        {
            **columns,
            "Duration": duration,
            "DurNonChild": duration - columns["DurChild"],
            "Name": names,
            **numbered_cells(table, numbering),
            "NameTree": name_tree(columns["Lvl"], names),
        }
    )


def _by_start(start: Int64, end: Int64, level: Int64, number: Int64) -> Int64:
    """The rows by start, and where starts are equal by end, level and number."""
    order = np.argsort(start, kind="stable")
    begin = start[order]
    equal = begin[1:] == begin[:-1]
    if equal.any():
        tied = np.flatnonzero(np.concatenate((equal, [False])) | np.concatenate(([False], equal)))
        rows = order[tied]
        order[tied] = rows[np.lexsort((number[rows], level[rows], end[rows], start[rows]))]
    return order


def projected_ranges(rank: Rank) -> Any:
    """The projected ranges of the rank, in the order of its report; `parent` is a row of the result."""
    # a last row with a null `source_row` represents the work outside all ranges, if there is any, with its correlation
    # ids.
    of = projection(rank)
    start, end = integers(of.ranges.column("start")), integers(of.ranges.column("end"))
    pid, tid = pids_and_tids(rank, integers(of.ranges.column("thread")))
    table = pa.table({
            "first": of.first, "last": of.last, "start": start, "end": end, "operations": of.operations,
            "PID": pid, "TID": tid, "Lvl": levels(of.parent),
            "NumChild": np.bincount(of.parent[of.parent >= 0], minlength=len(start)), "parent": of.parent,
            "name": of.ranges.column("name"), "domain": of.ranges.column("domain"),
            "kind": pc.cast(of.ranges.column("kind"), pa.string()), "source_row": of.ranges.column("source_row"),
            "correlations": pa.nulls(len(start), pa.list_(pa.int64())),
        })  # fmt: skip
    return pa.concat_tables([table, _work_outside(rank, of, table.schema)]) if of.outside.num_rows else table


def _work_outside(rank: Rank, of: Projection, schema: Any) -> Any:
    """One row for the work outside all ranges; its process and thread are those that the last of it was launched by."""
    last = integers(of.outside.column("end"))
    at = int(np.argmax(last))
    pid, tid = pids_and_tids(rank, integers(of.outside.column("thread"))[at : at + 1])
    ids = np.unique(integers(of.outside.column("correlation")))
    row: dict[str, Any] = dict.fromkeys(schema.names)
    row.update(
        first=int(integers(of.outside.column("start")).min()), last=int(last[at]), PID=int(pid[0]), TID=int(tid[0])
    )
    row.update(operations=len(ids), NumChild=0, correlations=ids)
    return pa.Table.from_pylist([row], schema=schema)


def inside_and_outside(part: Part) -> tuple[Part, Any]:
    """The rows of `projected_ranges` that are ranges, and those of the work outside: one, or none."""
    table = part.table
    outside = pc.filter(table, pc.is_null(table.column("start"))) if table.num_rows else table
    return Part(part.rank, table.slice(0, table.num_rows - outside.num_rows)), outside


def outside_cells(rank: int, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Projected Start": row["first"], "Projected Duration": row["last"] - row["first"], "PID": row["PID"],
        "TID": row["TID"], "NumGPUOps": row["operations"], "NumChild": 0, RANK_CELL.title: rank,
    }  # fmt: skip


def inside_cells(part: Part, numbering: Numbering, run: RunFacts) -> Any:
    table = part.table
    column = {name: integers(table.column(name), -1) for name in ("first", "last", "start", "end", "operations")}
    return pa.table(
        {
            "Name": range_names(table, run).dictionary_decode(),
            "Projected Start": column["first"],
            "Projected Duration": column["last"] - column["first"],
            "Orig Start": column["start"],
            "Orig Duration": column["end"] - column["start"],
            "Style": style_labels(table.column("kind").combine_chunks()),
            "NumGPUOps": column["operations"],
            **{name: integers(table.column(name), -1) for name in ("PID", "TID", "Lvl", "NumChild")},
            **numbered_cells(table, numbering),
            RANK_CELL.title: np.full(table.num_rows, part.rank, np.int64),
        }
    )


class NvtxGpuProjTrace(Report):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside.

    A range and a call belong together when they are of one thread and the range contains the call; only ranges that
    ended on the thread they started on count. The first row, without a name, represents the work launched outside all
    ranges.
    """

    name = "nvtx_gpu_proj_trace"
    title = "NVTX GPU Projection Trace"
    clock = "one"
    tables = PROJECTION_READS
    requires = PROJECTION_NEEDS
    cells = cells(
        "Name | name | Range.",
        "Projected Start | time | First start of its GPU work.",
        "Projected Duration | time | To the last end of its GPU work.",
        "Orig Start | time | Start on the CPU.",
        "Orig Duration | time | Length on the CPU.",
        "Style | name | PushPop or StartEnd.",
        "PID | int | Process id.",
        "TID | int | Thread id.",
        "NumGPUOps | int | Launches inside with GPU work: distinct correlation ids.",
        "Lvl | int | Projected ranges that enclose it.",
        "NumChild | int | Its children among the projected ranges.",
        *_NUMBER_CELLS,
    )
    chart = Chart("scatter", "Projected Start (ns)", ("Projected Duration (ns)",), "Name")

    def without(self, options: Options) -> dict[str, str]:
        return NO_RANGES

    def map(self, rank: Rank, options: Options) -> Any:
        return projected_ranges(rank)

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer:
        return self.row_stream(self._spans(ranks, run, options), options)

    def _spans(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Generator[Any, None, None]:
        with spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks) as parts:
            yield self._outside_first(parts, options).table
            ranged = [part for part in parts if inside_and_outside(part)[0].table.num_rows]
            numberings = number_ranges((inside_and_outside(part)[0] for part in ranged), run)
            rows = (
                (part.rank, inside_cells(inside_and_outside(part)[0], by, run))
                for part, by in zip(ranged, numberings, strict=True)
            )
            one_by_one: Iterable[list[Part]] = ([Part(rank, table)] for rank, table in rows)
            for spans in one_by_one if _follow(ranged, numberings) else merged_spilled(rows, "RangeId"):
                if tables := [part.table for part in spans if part.table.num_rows]:
                    yield self._by_number(tables, options).table

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        first = self._outside_first(parts, options)
        ranged = [inside for inside, _ in map(inside_and_outside, parts) if inside.table.num_rows]
        if not ranged:
            return first
        rows = [inside_cells(part, by, run) for part, by in zip(ranged, number_ranges(ranged, run), strict=True)]
        answer = self._by_number(rows, options)
        return answer._replace(table=pa.concat_tables([first.table.cast(answer.table.schema), answer.table]))

    def _outside_first(self, parts: Sequence[Part], options: Options) -> Answer:
        """The work outside all ranges: one row, or by rank one each."""
        alone = [(part.rank, inside_and_outside(part)[1]) for part in parts]
        outside = [(rank, row) for rank, rows in alone for row in rows.drop_columns(["correlations"]).to_pylist()]
        if outside and not options.get("by_rank"):
            rank, last = max(outside, key=lambda o: o[1]["last"])
            number = _distinct(rows.column("correlations") for _, rows in alone if rows.num_rows)
            outside = [(rank, {**last, "first": min(row["first"] for _, row in outside), "operations": number})]
        rows = [outside_cells(rank, row) for rank, row in outside]
        titles = [cell.title for cell in self.answer_cells(options)]
        return (
            self.answer({title: [row.get(title) for row in rows] for title in titles}, options)
            if rows
            else self.empty(options)
        )

    def _by_number(self, tables: Sequence[Any], options: Options) -> Answer:
        whole = stack(tables)
        number = integers(whole.column("RangeId"))
        if (number[1:] < number[:-1]).any():
            whole = pc.take(whole, pa.array(np.argsort(number, kind="stable")))
        return self.answer({name: whole.column(name) for name in whole.column_names}, options)


def _follow(parts: Iterable[Part], numberings: Iterable[Numbering]) -> bool:
    """Whether each rank's range numbers follow those of the previous rank: no two ranks are of one report."""
    last = None
    for part, numbering in zip(parts, numberings, strict=True):
        number = numbering.numbers(inside_and_outside(part)[0].table.column("source_row"))
        if last is not None and int(number.min()) < last:
            return False
        last = int(number.max())
    return True


def _distinct(columns: Iterable[Any]) -> int:
    """How many distinct numbers the lists of all columns hold; reads one rank after the other."""
    ids = np.empty(0, np.int64)
    for column in columns:
        ids = np.unique(np.concatenate((ids, pc.list_flatten(column).to_numpy())))
    return len(ids)


_MAP_PROJECTED = """
SELECT rank, domain, name, kind, "last" - "first" AS value, "end" - start AS length, operations, "Lvl" AS level,
  "NumChild" AS children, count(*) AS count FROM projected WHERE name IS NOT NULL GROUP BY ALL"""


def _projected(rank: Rank, _options: Options) -> dict[str, Any]:
    ranges = projected_ranges(rank).drop_columns(["correlations"])
    return {"projected": ranges.add_column(0, "rank", pa.array(np.full(ranges.num_rows, rank.rank, np.int32)))}


class NvtxGpuProjSum(SqlReport):
    """The GPU time of ranges, from the first start to the last end of the work launched inside, by name and style.

    Nothing is taken off a range for the ranges inside it. Ranges without a text are left out.
    """

    name = "nvtx_gpu_proj_sum"
    title = "NVTX GPU Projection Summary"
    tables = PROJECTION_READS
    requires = PROJECTION_NEEDS
    cells = cells(
        "Range | name | Range.",
        "Style | name | PushPop or StartEnd.",
        "Total Proj Time | time | Projected lengths together.",
        "Total Range Time | time | Lengths on the CPU together.",
        "Range Instances | int | Ranges of that name.",
        "Proj Avg | mean_time | Mean projected length.",
        "Proj Med | mean_time | Median projected length.",
        "Proj Min | time | Smallest projected length.",
        "Proj Max | time | Largest projected length.",
        "Proj StdDev | mean_time | Standard deviation of a sample (n - 1); 0 for one range.",
        "Total GPU Ops | int | Launches inside.",
        "Avg GPU Ops | mean | Launches inside per range.",
        "Avg Range Lvl | mean | Mean number of projected ranges around.",
        "Avg Num Child | mean | Mean number of children.",
    )
    chart = Chart("bars", "Range", ("Total Proj Time (ns)", "Total Range Time (ns)"), detail="Style")

    def without(self, options: Options) -> dict[str, str]:
        return NO_RANGES

    @property
    def statements(self) -> Statements:
        work = "the GPU work of each NVTX range"
        return self.select(
            _MAP_PROJECTED, self._reduce_statement, stand_alone=by_rank, rank_tables=_projected, computed=work
        )

    def _reduce_statement(self, options: Options) -> str:
        carried = ("length", "operations", "level", "children")
        sums = {f"{name}_sum": f"sum({name}::HUGEINT * count)" for name in carried}
        statistics = statistics_statement(
            {"Range": RANGE_NAME, "Style": STYLE_NAME},
            ("domain", "name", "kind"),
            quartiles=False,
            by_rank=by_rank(options),
            further=sums,
            carried=carried,
        )
        words = self.words(options)
        return f"""
SELECT {words["rank_cell"]}"Range", "Style", total AS "Total Proj Time", length_sum AS "Total Range Time",
  {COUNT} AS "Range Instances", mean AS "Proj Avg", median AS "Proj Med", min AS "Proj Min", max AS "Proj Max",
  stddev AS "Proj StdDev", operations_sum AS "Total GPU Ops", operations_sum / {COUNT} AS "Avg GPU Ops",
  level_sum / {COUNT} AS "Avg Range Lvl",
  children_sum / {COUNT} AS "Avg Num Child"
FROM ({statistics}) ORDER BY {words["by_rank"]}total DESC, "Range", "Style\""""


nvtx_gpu_proj_sum = NvtxGpuProjSum()
nvtx_gpu_proj_trace = NvtxGpuProjTrace()
nvtx_pushpop_trace = NvtxPushpopTrace()
