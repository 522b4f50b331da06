"""The report `nvtx_kern_sum`: GPU time of kernels by the NVTX ranges they were launched in."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import cells
from alltrace.nvidia.kernel_names import BASE, MANGLED, name_column
from alltrace.nvidia.ranges import RANGE_NAME, STYLE_NAME, pids_and_tids
from alltrace.nvidia.report import BY_RANK, SqlReport, by_rank
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, Spans, calls_within, launch_spans, on_one_line
from alltrace.recipes.analysis.statistics_sql import statistics_statement
from alltrace.recipes.base import Chart, Options
from alltrace.recipes.sql_recipe import Statements
from alltrace.run.collecting import in_pieces
from alltrace.run.launch_matching import CALLS, Launches, match_launches
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.grouping import group

_PAIRS_AT_ONCE = 1 << 23
_OWNER = {"domain": pa.int64(), "name": pa.int64(), "kind": pa.string(), "thread": pa.int64()}
_KEYS = ("domain", "name", "kind", "pid", "tid", "kernel")
_INSTANCES = ("ranges", "kernels")


class NvtxKernSum(SqlReport):
    """The time that kernels ran, by range and kernel: a kernel counts for every range that contains its launch.

    Where ranges with the same name are nested, a kernel adds to the times once for each, but is one kernel. Rows
    without a range hold the kernels launched in none.
    """

    name = "nvtx_kern_sum"
    title = "NVTX Range Kernel Summary"
    options = (BASE, MANGLED, BY_RANK)
    tables = {  # noqa: RUF012
        "ranges": SPAN_COLUMNS,
        "kernels": ("start", "end", "process", "correlation", "name", "short_name", "mangled_name"),
        "api": CALLS,
    }
    requires = ("kernels",)
    cells = cells(
        "NVTX Range | name | Range.",
        "Style | name | PushPop or StartEnd.",
        "PID | int | Process id.",
        "TID | int | Thread id.",
        "NVTX Inst | int | Ranges of that name with the kernel.",
        "Kern Inst | int | Kernels.",
        "Total Time | time | Time of the kernels together.",
        "Avg | mean_time | Mean.",
        "Med | mean_time | Median.",
        "Min | time | Smallest.",
        "Max | time | Largest.",
        "StdDev | mean_time | Standard deviation of a sample (n - 1); 0 for one kernel.",
        "Kernel Name | name | Kernel.",
    )
    chart = Chart("stacked_bars", "Kernel Name", ("Total Time (ns)",), "NVTX Range")

    def without(self, options: Options) -> dict[str, str]:
        return dict.fromkeys(("ranges", "api"), "all kernels lie outside of ranges")

    @property
    def statements(self) -> Statements:
        return self.select("", self._reduce_statement, stand_alone=by_rank, computed="the kernels in each NVTX range")

    def map(self, rank: Rank, options: Options) -> Any:
        """A row per range and kernel: their numbers, and the distribution of the times as two lists."""
        named = name_column(options)
        kernels = rank.table("kernels", list(dict.fromkeys(("start", "end", "process", "correlation", "name", named))))
        kernel = pc.coalesce(kernels.column(named), kernels.column("name"))
        length = integers(kernels.column("end")) - integers(kernels.column("start"))
        ranges = launch_spans(rank)
        # a range without a text has no name in any domain, so that a kernel in two of them is one kernel
        domain = pc.if_else(pc.is_valid(ranges.column("name")), ranges.column("domain"), pa.scalar(None, pa.int64()))
        ranges = ranges.set_column(ranges.column_names.index("domain"), "domain", domain)
        calls = match_launches(
            in_pieces(rank, "api", CALLS),
            integers(kernels.column("process"), -1),
            integers(kernels.column("correlation"), -1),
        )
        spans, start, end = on_one_line(ranges, calls.thread, calls.start, calls.end)
        range_of, first = group([ranges.column(c) for c in _OWNER])
        names = ranges.take(pa.array(first)).select(list(_OWNER)).cast(pa.schema(_OWNER))
        parts = [
            _part(rank, names, range_of[range_rows], range_rows, kernel, kernel_rows, length)
            for range_rows, kernel_rows in _pairs(spans, calls, start, end, range_of)
        ]
        call = calls.call_of_pair()
        alone = np.flatnonzero((spans.innermost(start, end) < 0)[call])
        launched = np.zeros(len(length), bool)
        launched[calls.op] = True
        unknown = np.flatnonzero(~launched)
        # those outside of ranges, by the thread of the call; the last is not known
        threads = [*range(int(calls.thread.max(initial=-1)) + 1), None]
        outside = pa.Table.from_pylist([{"thread": thread} for thread in threads], pa.schema(_OWNER))
        owner = np.concatenate((calls.thread[call[alone]], np.full(len(unknown), len(threads) - 1)))
        parts.append(_part(rank, outside, owner, None, kernel, np.concatenate((calls.op[alone], unknown)), length))
        return _narrow(pa.concat_tables(parts).combine_chunks())

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> None:
        """Nothing: a loop finds the ranges of each rank's kernels."""

    def _reduce_statement(self, options: Options) -> str:
        """The statistics by range, thread and kernel; what has no range or thread comes first."""
        words = self.words(options)
        labels = {
            "NVTX Range": RANGE_NAME,
            "Style": STYLE_NAME,
            "PID": "pid",
            "TID": "tid",
            "Kernel Name": "text_of(kernel)",
        }
        once = ", ".join(f"if(generate_subscripts(value, 1) = 1, {name}, 0) AS {name}" for name in _INSTANCES)
        statistics = statistics_statement(
            labels,
            _KEYS,
            quartiles=False,
            by_rank=by_rank(options),
            further={f"{name}_sum": f"sum({name})" for name in _INSTANCES},
            carried=_INSTANCES,
            source=(
                f"(SELECT rank, {', '.join(_KEYS)}, unnest(value) AS value, unnest(count) AS count, {once} FROM parts)"
            ),
        )
        return f"""
SELECT {words["rank_cell"]}"NVTX Range", "Style", "PID", "TID", ranges_sum AS "NVTX Inst", kernels_sum AS "Kern Inst",
  total AS "Total Time", mean AS "Avg", median AS "Med", min AS "Min", max AS "Max", stddev AS "StdDev", "Kernel Name"
FROM ({statistics})
ORDER BY {words["by_rank"]}"NVTX Range" NULLS FIRST, "PID" NULLS FIRST, "TID" NULLS FIRST, total DESC,
  "Style" NULLS FIRST, "Kernel Name" NULLS FIRST"""


def _pairs(spans: Spans, calls: Launches, start: Int64, end: Int64, range_of: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Pairs of a range and a kernel launched in it, in portions with all pairs of a range's name and thread."""
    pieces = list(calls_within(spans, start, end))
    order = np.argsort(range_of, kind="stable")
    weight = sum((p.stop - p.first for p in pieces), np.zeros(len(order), np.int64))[order]
    reach = np.cumsum(weight)
    ends = np.flatnonzero(np.diff(range_of[order], append=-1)) + 1  # one past the last range of each name and thread
    low = 0
    every, first = np.arange(len(start), dtype=np.int64), calls.first_op()
    stop = np.append(first[1:], len(calls.op))
    while low < len(order) and len(calls.op):
        limit = (reach[low - 1] if low else 0) + _PAIRS_AT_ONCE
        fits = ends[(ends > low) & (reach[ends - 1] <= limit)]
        high = int(fits[-1]) if len(fits) else int(ends[np.searchsorted(ends, low, side="right")])
        rows = order[low:high]
        low = high
        spread = [_spread(rows, p.of(every), p.first[rows], p.stop[rows]) for p in pieces]
        ranges, inside = (np.concatenate(side) for side in zip(*spread, strict=True))
        if len(ranges):
            yield _spread(ranges, calls.op, first[inside], stop[inside])


def _spread(rows: Int64, values: Int64, first: Int64, stop: Int64) -> tuple[Int64, Int64]:
    """Each row combined with each of `values[first:stop]`."""
    many = stop - first
    reach = np.cumsum(many)
    at = np.arange(int(reach[-1]) if len(reach) else 0) + np.repeat(first - (reach - many), many)
    return np.repeat(rows, many), values[at]


def _part(
    rank: Rank, owners: Any, owner: Int64, range_rows: Int64 | None, kernel: Any, kernel_rows: Int64, length: Int64
) -> Any:
    """A row for each owner and kernel, of pairs of an owner's row and a kernel's."""
    kernel_of, first = group([kernel])
    keys, rows = group([pa.array(owner), pa.array(kernel_of[kernel_rows])])
    table = collect({"group": pa.array(keys)}, length[kernel_rows])
    of = integers(table.column("group"))
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    number, in_order = len(rows), of[begins]
    described = owners.take(pa.array(owner[rows[in_order]]))
    has_thread = described.column("thread").is_valid().to_numpy()
    ids = np.zeros((2, number), np.int64)
    ids[:, has_thread] = pids_and_tids(rank, integers(described.column("thread"))[has_thread])
    stops = pa.array(np.append(begins, len(of)).astype(np.int32))
    counts = [
        np.zeros(number, np.int64) if r is None else _distinct(keys, r, number) for r in (range_rows, kernel_rows)
    ]
    columns = {name: described.column(name) for name in ("domain", "name", "kind")}
    columns |= {name: pa.array(values, mask=~has_thread) for name, values in zip(("pid", "tid"), ids, strict=True)}
    columns["kernel"] = kernel.take(pa.array(first[kernel_of[kernel_rows[rows[in_order]]]])).cast(pa.int64())
    columns |= {name: count[in_order] for name, count in zip(_INSTANCES, counts, strict=True)}
    return pa.table(
        columns | {n: pa.ListArray.from_arrays(stops, table.column(n).combine_chunks()) for n in (VALUE, COUNT)}
    )


def _narrow(table: Any) -> Any:
    """The table with its lists of numbers in the smallest type that holds them."""
    for name in (VALUE, COUNT):
        flat = pc.list_flatten(table.column(name))
        types = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
        extent = pc.min_max(flat)
        fits = next(t for t in types if _holds(t, extent["min"].as_py() or 0) and _holds(t, extent["max"].as_py() or 0))
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.list_(fits)))
    return table


def _holds(kind: Any, number: int) -> bool:
    fits: bool = number.bit_length() < kind.bit_width
    return fits


def _distinct(keys: Int64, rows: Int64, number: int) -> Int64:
    """How many distinct rows each group of `keys` has."""
    width = int(rows.max(initial=0)) + 1
    pairs = np.sort(keys * width + rows)
    new = np.concatenate((np.ones(min(1, len(pairs)), bool), pairs[1:] != pairs[:-1]))
    return np.bincount(pairs[new] // width, minlength=number)


nvtx_kern_sum = NvtxKernSum()
