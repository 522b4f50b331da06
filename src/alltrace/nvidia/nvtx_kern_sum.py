"""The report `nvtx_kern_sum`: GPU time of kernels by the NVTX ranges they were launched in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import cells
from alltrace.nvidia.kernel_names import BASE, KERNEL_KEYS, MANGLED, kernel_columns, kernel_keys, kernel_labels
from alltrace.nvidia.ranges import pids_and_tids, range_labels, style_labels
from alltrace.nvidia.report import BY_RANK, RANK, RANK_CELL, Options, Report
from alltrace.recipes.analysis.collecting import in_pieces
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, statistics
from alltrace.recipes.analysis.launch_matching import CALLS, Launches, match_launches
from alltrace.recipes.analysis.lookups import column
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, Spans, calls_within, launch_spans, on_one_line
from alltrace.recipes.analysis.part_rows import with_rank
from alltrace.recipes.base import Answer, Chart, Part, RankTables, RunFacts
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from alltrace.trace.arrays import Int64

_PAIRS_AT_ONCE = 1 << 23
_VALUES_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 1 << 20
_KERNEL = tuple(f"kernel_{key}" for key in KERNEL_KEYS)
_KEYS = ("domain", "name", "kind", "PID", "TID", *_KERNEL)
_INSTANCES = ("ranges", "kernels")


class NvtxKernSum(Report):
    """The time that kernels ran, by range and kernel: a kernel counts for every range that contains its launch.

    Where ranges with the same name are nested, a kernel adds to the times once for each, but is one kernel. Rows without a range
    hold the kernels launched in none.
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

    def map(self, rank: RankTables, options: Options) -> Any:
        """A row per range and kernel: the numbers of ranges and kernels, and the distribution of the times as two lists."""
        columns = dict.fromkeys(("start", "end", "process", "correlation", *kernel_columns(options)))
        kernels = rank.table("kernels", list(columns))
        names = kernel_keys(rank, kernels, options)
        kernel_of, some_kernel = group(list(names.values()))
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
        range_of, some_range = group([ranges.column(c) for c in ("domain", "name", "kind", "thread")])
        made = []
        for range_rows, kernel_rows in _pairs(spans, calls, start, end, range_of):
            keys, rows = group([pa.array(range_of[range_rows]), pa.array(kernel_of[kernel_rows])])
            ranged = ranges.take(pa.array(some_range[range_of[range_rows[rows]]]))
            pid, tid = pids_and_tids(rank, integers(ranged.column("thread")))
            labels = {
                "domain": ranged.column("domain"), "name": ranged.column("name"),
                "kind": ranged.column("kind").cast(pa.string()), "PID": pid, "TID": tid,
            }  # fmt: skip
            made.append(_part(labels, names, some_kernel[kernel_of[kernel_rows[rows]]], keys, range_rows, kernel_rows, length))
        call = calls.call_of_pair()
        alone = np.flatnonzero((spans.innermost(start, end) < 0)[call])
        made.append(_outside(rank, names, calls.op[alone], calls.thread[call[alone]], kernel_of, length))
        launched = np.zeros(len(length), bool)
        launched[calls.op] = True
        made.append(_outside(rank, names, np.flatnonzero(~launched), None, kernel_of, length))
        return _narrow(pa.concat_tables(made).combine_chunks())

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        some_rows = [part for part in parts if part.table.num_rows]
        if not some_rows:
            return self.empty(options)
        described, id_of = _numbered(some_rows, (*([RANK] if options.get("by_rank") else []), *_KEYS))
        keys = {
            "NVTX Range": range_labels(column(described, "domain"), column(described, "name"), run),
            "PID": column(described, "PID"),
            "TID": column(described, "TID"),
            "Kernel Name": kernel_labels(described.select(list(_KERNEL)).rename_columns(list(KERNEL_KEYS)), run),
            "Style": style_labels(column(described, "kind")),
        }
        if RANK in described.column_names:
            keys = {RANK: column(described, RANK), **keys}
        of_id, some = group(list(keys.values()))  # ids that differ may be called the same
        group_of = [of_id[of] for of in id_of]
        stats = _statistics(some_rows, group_of, len(some))
        inside = {instances: np.zeros(len(some), np.int64) for instances in _INSTANCES}
        for part, of in zip(some_rows, group_of, strict=True):
            for instances in _INSTANCES:
                np.add.at(inside[instances], of, integers(part.table.column(instances)))
        table = pa.table(
            {
                **{title: key.take(pa.array(some)) for title, key in keys.items()},
                "NVTX Inst": inside["ranges"], "Kern Inst": inside["kernels"], "Total Time": stats.column("total"),
                "Avg": stats.column("mean"), "Med": stats.column("median"), "Min": stats.column("min"),
                "Max": stats.column("max"), "StdDev": stats.column("stddev"),
            }
        )  # fmt: skip
        ordered = table
        order = []
        for title in keys:  # nulls first: whether there is a value is a separate key
            ordered = ordered.append_column(f"has {title}", pc.is_valid(table.column(title)))
            order += [(f"has {title}", "ascending"), (title, "ascending")]
        order[-4:-4] = [("Total Time", "descending")]
        table = table.take(pc.sort_indices(ordered, order))
        columns = {title: table.column(title) for title in table.column_names}
        if RANK in keys:
            columns[RANK_CELL.title] = columns[RANK]
        return self.answer(columns, options)


def _pairs(spans: Spans, calls: Launches, start: Int64, end: Int64, range_of: Int64) -> Iterator[tuple[Int64, Int64]]:
    """The pairs of a range and a kernel launched in it, in portions that hold all pairs of a range's name and thread."""
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
        found = [_spread(rows, p.of(every), p.first[rows], p.stop[rows]) for p in pieces]
        ranges, inside = (np.concatenate(side) for side in zip(*found, strict=True))
        if len(ranges):
            yield _spread(ranges, calls.op, first[inside], stop[inside])


def _spread(rows: Int64, values: Int64, first: Int64, stop: Int64) -> tuple[Int64, Int64]:
    """Each row combined with each of `values[first:stop]`."""
    many = stop - first
    reach = np.cumsum(many)
    at = np.arange(int(reach[-1]) if len(reach) else 0) + np.repeat(first - (reach - many), many)
    return np.repeat(rows, many), values[at]


def _part(
    labels: Mapping[str, Any],
    names: Mapping[str, Any],
    kernels: Int64,
    keys: Int64,
    range_rows: Int64 | None,
    kernel_rows: Int64,
    length: Int64,
) -> Any:
    """A row for each of some groups of pairs. `labels` and `kernels` say what each group of `keys` is."""
    table = collect({"group": pa.array(keys)}, length[kernel_rows])
    of = integers(table.column("group"))
    first = np.flatnonzero(np.diff(of, prepend=-1))
    owner, stops = of[first], pa.array(np.append(first, len(of)).astype(np.int32))
    number = len(kernels)
    counts = [np.zeros(number, np.int64) if rows is None else _distinct(keys, rows, number) for rows in (range_rows, kernel_rows)]
    taken = pa.array(kernels)
    described = pa.table({**labels, **{f"kernel_{k}": pc.cast(c, pa.int64()).take(taken) for k, c in names.items()}})
    described = described.cast(pa.schema([(k, pa.string() if k == "kind" else pa.int64()) for k in _KEYS])).take(pa.array(owner))
    for instances, count in zip(_INSTANCES, counts, strict=True):
        described = described.append_column(instances, pa.array(count[owner]))
    for name in (VALUE, COUNT):
        described = described.append_column(name, pa.ListArray.from_arrays(stops, table.column(name).combine_chunks()))
    return described


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


def _numbered(parts: Sequence[Part], keys: Sequence[str]) -> tuple[Any, list[Int64]]:
    """The distinct rows of `keys` of all parts, and for each part the number of the one that each of its rows has."""
    known: Any = None
    numbers: list[Int64] = []
    for few in _in_portions(parts):
        tables = [with_rank(part.table, part.rank).select(keys) for part in few]
        whole = pa.concat_tables([*([] if known is None else [known]), *tables]).combine_chunks()
        number, first = group([whole.column(key) for key in keys])
        before = 0 if known is None else known.num_rows
        numbers = [number[of] for of in numbers]
        numbers += np.split(number[before:], np.cumsum([table.num_rows for table in tables])[:-1])
        known = whole.take(pa.array(first)).combine_chunks()
    return known, numbers


def _in_portions(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts that have together about `_ROWS_AT_ONCE` rows."""
    few: list[Part] = []
    rows = 0
    for part in parts:
        few.append(part)
        rows += part.table.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield few
            few, rows = [], 0
    if few:
        yield few


def _statistics(parts: Sequence[Part], groups: Sequence[Int64], number: int) -> Any:
    """The statistics of each group, in their order; `groups` has the group of each row of each part.

    Each part is released after use, since parts in files take memory while in use.
    """
    orders = [np.argsort(of, kind="stable") for of in groups]
    ordered = [of[order] for of, order in zip(groups, orders, strict=True)]
    size = np.zeros(number, np.int64)
    for part, of in zip(parts, groups, strict=True):
        np.add.at(size, of, integers(pc.list_value_length(part.table.column(VALUE))))
    reach = np.cumsum(size)
    found = []
    low = 0
    while low < number:
        high = max(int(np.searchsorted(reach, reach[low] - size[low] + _VALUES_AT_ONCE, "right")), low + 1)
        codes, values, counts = [], [], []
        for part, order, of in zip(parts, orders, ordered, strict=True):
            begin, end = np.searchsorted(of, (low, high))
            rows = part.table.select([VALUE, COUNT]).take(pa.array(order[begin:end]))
            codes.append(np.repeat(of[begin:end] - low, integers(pc.list_value_length(rows.column(VALUE)))))
            values.append(integers(pc.list_flatten(rows.column(VALUE))))
            counts.append(integers(pc.list_flatten(rows.column(COUNT))))
        found.append(pa.table(statistics(np.concatenate(codes), np.concatenate(values), np.concatenate(counts))))
        low = high
    return pa.concat_tables(found, promote_options="permissive")  # a sum beyond 64 bits is a decimal


def _distinct(keys: Int64, rows: Int64, number: int) -> Int64:
    """How many distinct rows each group of `keys` has."""
    width = int(rows.max(initial=0)) + 1
    pairs = np.sort(keys * width + rows)
    new = np.concatenate((np.ones(min(1, len(pairs)), bool), pairs[1:] != pairs[:-1]))
    return np.bincount(pairs[new] // width, minlength=number)


def _outside(
    rank: RankTables, names: Mapping[str, Any], kernels: Int64, thread: Int64 | None, kernel_of: Int64, length: Int64
) -> Any:
    """The distribution of kernels that no range contains; of unknown thread where the launch is not known."""
    owner = np.zeros(len(kernels), np.int64) if thread is None else thread
    keys, some = group([pa.array(owner), pa.array(kernel_of[kernels])])
    nothing = pa.nulls(len(some), pa.int64())
    pid, tid = (nothing, nothing) if thread is None else pids_and_tids(rank, owner[some])
    labels = {"domain": nothing, "name": nothing, "kind": pa.nulls(len(some), pa.string()), "PID": pid, "TID": tid}
    return _part(labels, names, kernels[some], keys, None, kernels, length)


nvtx_kern_sum = NvtxKernSum()
