"""The recipes of kernels, projected ranges and collectives that have shapes of their own."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.nvidia.cells import RANK_CELL, Cell, Columns, cells, ordered
from alltrace.nvidia.filters import NVTX, TIMES, given_filters
from alltrace.nvidia.kernel_names import BASE, name_column
from alltrace.nvidia.range_reports import NO_RANGES, inside_and_outside, inside_cells, outside_cells, projected_ranges
from alltrace.nvidia.range_reports import nvtx_gpu_proj_trace as _projected_report
from alltrace.nvidia.ranges import number_ranges
from alltrace.nvidia.recipe import (
    FILE,
    FILE_CELL,
    FILES,
    NsysRecipe,
    Results,
    SqlNsysRecipe,
    file_column,
    file_columns,
    files,
    with_filter_note,
)
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, summarize
from alltrace.recipes.analysis.lookups import column, look_up
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, RunFacts, alignment_of
from alltrace.recipes.row_stream import StreamedRank, spilled_parts
from alltrace.recipes.sql_recipe import Statements
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, integers
from alltrace.trace.grouping import group
from alltrace.trace.intervals import Merged, bin_edges, by_track, concurrency, merge, overlap_ns
from alltrace.trace.kernel_rules import NOT_COMPUTE

_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
_BINS = cells(
    "Range Start | ns | Shortest duration of the bin.",
    "Range End | ns | The bin's durations are shorter than this.",
    "Frequency | int | Kernels with a duration in the bin.",
    "Percentage | percent | Of all kernels listed.",
    "Cumulative | percent | Of all kernels listed, those of this bin and those before.",
)


def _durations(options: Options) -> str:
    named = f"JOIN names ON names.id = {name_column(options)} WHERE names.value = $name AND"
    return f"""
SELECT rank, kernels."end" - kernels.start AS value, count(*) AS count
FROM kernels {"WHERE" if options["name"] is None else named} kernels."end" IS NOT NULL
GROUP BY rank, kernels."end" - kernels.start
"""


class CudaGpuKernHist(SqlNsysRecipe):
    """Histogram of kernel durations: of all kernels, or of those with one name, over all ranks and per rank.

    Bins are equally wide, from the shortest duration on any rank to the longest. Percentiles are exact: the smallest
    duration that this percentage of the kernels does not exceed.
    """

    name = "cuda_gpu_kern_hist"
    tables = {"kernels": ("start", "end", "name", "short_name")}  # noqa: RUF012
    own: ClassVar[tuple[Option, ...]] = (
        Option("name", str, None, "Only kernels with this name."),
        BASE,
        Option("bins", int, 30, "Number of bins.", least=1, most=100_000),
    )
    results: ClassVar[Results] = {
        "histogram": _BINS,
        "rank_histogram": (*_BINS, RANK_CELL, FILE_CELL),
        "percentiles": cells("Percentile | int | Per cent.", "Duration | ns | Not exceeded by this many."),
    }
    chart = Chart("histogram", "Range Start", ("Frequency",))

    @property
    def statements(self) -> Statements:
        return self.select(_durations)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            wanted = () if options["name"] is None else (f"no rank has a kernel called {options['name']!r}",)
            return self.answer({}, wanted)
        whole = pa.concat_tables([part.table for part in parts])
        value, count = integers(whole.column(VALUE)), integers(whole.column(COUNT))
        low, high = int(value.min()), int(value.max())
        edges = bin_edges(low, high + 1, min(options["bins"], high + 1 - low))
        of_rank = [_histogram(edges, integers(p.table.column(VALUE)), integers(p.table.column(COUNT))) for p in parts]
        each: dict[str, Any] = {title: np.concatenate([h[title] for h in of_rank]) for title in of_rank[0]}
        ranks = np.repeat([part.rank for part in parts], len(edges) - 1)
        each |= {"Rank": ranks, FILE: file_column(run, ranks.tolist())}
        order = np.argsort(value, kind="stable")
        reach = np.cumsum(count[order])
        places = [-(-int(reach[-1]) * p // 100) - 1 for p in _PERCENTS]
        marks = value[order][np.searchsorted(reach, places, side="right")]
        percentiles = {"Percentile": list(_PERCENTS), "Duration": marks}
        return self.answer(
            {"histogram": _histogram(edges, value, count), "rank_histogram": each, "percentiles": percentiles}
        )


def _histogram(edges: Int64, value: Int64, count: Int64) -> dict[str, Any]:
    frequency = np.zeros(len(edges) - 1, np.int64)
    np.add.at(frequency, np.searchsorted(edges, value, side="right") - 1, count)
    total = int(frequency.sum())
    return {
        "Range Start": edges[:-1],
        "Range End": edges[1:],
        "Frequency": frequency,
        "Percentage": 100.0 * frequency / total,
        "Cumulative": 100.0 * np.cumsum(frequency) / total,
    }


class NvtxGpuProjTrace(NsysRecipe):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside, by rank.

    Like the report of `alltrace stats` with that name, which has all ranks in one table. A rank's first row, without a
    name, represents the work launched outside all ranges.
    """

    name = "nvtx_gpu_proj_trace"
    tables = _projected_report.tables
    requires = _projected_report.requires
    clock = "one"
    own: ClassVar[tuple[Option, ...]] = (NVTX,)
    results: ClassVar[Results] = {
        "trace": (
            *(c._replace(kind={"time": "ns", "name": "text"}.get(c.kind, c.kind)) for c in _projected_report.cells),
            FILE_CELL,
        )
    }
    chart = Chart("scatter", "Projected Start", ("Projected Duration",), FILE)

    def without(self, options: Options) -> dict[str, str]:
        return {**super().without(options), **NO_RANGES}

    def map_rank(self, rank: Rank, options: Options) -> Any:
        return projected_ranges(rank)

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer:
        parts = (Part(rank.rank, self.map(rank.whole(), options)) for rank in ranks)
        answer = self.answer({"trace": self._pieces(parts, run)})
        return with_filter_note(answer, options) if ranks else answer

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        """All ranges of each rank by number, after its work outside of ranges."""
        return self.answer({"trace": self._pieces(parts, run)})

    def _pieces(self, parts: Iterable[Part], run: RunFacts) -> Generator[Columns, None, None]:
        called = files(run)
        titles = [cell.title for cell in self.results["trace"][:-1]]
        for part in parts:
            ranged, outside = inside_and_outside(part)
            for row in outside.drop_columns(["correlations"]).to_pylist():
                values = outside_cells(part.rank, row)
                yield {**{title: pa.array([values.get(title)]) for title in titles}, FILE: [called[part.rank]]}
            if ranged.table.num_rows:
                (numbering,) = number_ranges([ranged], run)
                columns = inside_cells(ranged, numbering, run)
                yield {**{t: columns.column(t) for t in titles}, FILE: pa.repeat(called[part.rank], columns.num_rows)}


_OVERLAPS = {
    "communication": Cell(
        "Communication Overlap",
        "percent",
        "Of its time, that in which another communication kernel runs on the device.",
    ),
    "compute": Cell(
        "Compute Overlap", "percent", "Of its time, that in which another compute kernel runs on the device."
    ),
}


class NcclGpuOverlapTrace(NsysRecipe):
    """The part of each kernel's time in which other kernels of its process run on its device: communication, others.

    The kernel rules decide which kernels communicate. A kernel does not overlap itself; with several others at once,
    each moment counts once.
    """

    name = "nccl_gpu_overlap_trace"
    clock = "one"
    tables = {"kernels": ("start", "end", "process", "device", "name", "kind")}  # noqa: RUF012
    own: ClassVar[tuple[Option, ...]] = (
        Option("divisor", int, 100, "The number of parts in which nsys works; no effect here.", least=1),
    )
    results: ClassVar[Results] = {
        "grouped_trace": (
            *cells("Name | text | Kernel.", "Count | int | How many ran."),
            *(c._replace(doc=f"{c.doc[:-1]}, weighted by their durations.") for c in _OVERLAPS.values()),
        ),
        "rank_trace": (
            *cells(
                "Name | word | Kernel.",
                "Start | ns | When it began.",
                "End | ns | When it ended.",
                "PID | int | Process id.",
                "DeviceID | int | CUDA ordinal of the GPU.",
            ),
            *_OVERLAPS.values(),
            RANK_CELL,
        ),
        **FILES,
    }
    chart = Chart("bars", "Name", ("Communication Overlap", "Compute Overlap"))

    def map_rank(self, rank: Rank, options: Options) -> Any:
        """The kernels by their starts, with both overlaps in ns."""
        kernels = rank.table("kernels", self.tables["kernels"])
        start, end, process, device, name = (
            integers(kernels.column(c), -1) for c in ("start", "end", "process", "device", "name")
        )
        words = column(kernels, "kind").cast(pa.string())
        talks = pc.is_in(words, value_set=pa.array(sorted(NOT_COMPUTE))).to_numpy(zero_copy_only=False)
        # a key that is the same for all only costs time
        order = np.lexsort((name, end, start, *(of for of in (device, process) if len(of) and (of != of[0]).any())))
        start, end, process, device, talks = start[order], end[order], process[order], device[order], talks[order]
        beside = {"communication": np.zeros(len(order), np.int64), "compute": np.zeros(len(order), np.int64)}
        for _, rows in by_track(process, device):
            at = np.arange(len(order))[rows]
            for key, result in beside.items():
                result[at] = _beside(start[at], end[at], talks[at] == (key == "communication"))
        table = pa.table(
            {
                "name": column(kernels, "name").take(pa.array(order)), "Start": start, "End": end,
                "PID": look_up(rank.table("processes", ["process", "pid"]), "pid", pa.array(process)),
                "DeviceID": look_up(rank.table("devices", ["device", "ordinal"]), "ordinal", pa.array(device)),
                **beside,
            }
        )  # fmt: skip
        return table.take(pc.sort_indices(table, [("Start", "ascending"), ("End", "ascending")]))

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Options) -> Answer:
        """The same; the kernels of each rank wait in a file until the sums over all are made."""
        with ExitStack() as spilled:
            parts = spilled.enter_context(spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks))
            answer = self._answered([part for part in parts if part.table.num_rows], run, spilled)
            return with_filter_note(answer, options) if ranks else answer

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        return self._answered(parts, run, ExitStack())

    def _answered(self, parts: Sequence[Part], run: RunFacts, spilled: ExitStack) -> Answer:
        """The kernels by name over all ranks, and each; the stream takes over `spilled`, which has the parts."""
        if not parts:
            return self.answer({})
        # part by part, because there is a row for each kernel of all ranks
        numbers: dict[str, int] = {}  # each name by its number
        own: list[NDArray[np.int32]] = []  # of each part the numbers of its names
        sums: dict[str, Int64] = {}
        for part in parts:
            codes, columns, called = _named(part, run)
            own.append(np.array([numbers.setdefault(text, len(numbers)) for text in called], np.int32))
            for title, values in {**columns, "Count": np.ones(len(codes), np.int64)}.items():
                total = np.zeros(len(numbers), np.int64)
                total[: len(sums.get(title, ()))] = sums.get(title, ())
                np.add.at(total, own[-1][codes], values)
                sums[title] = total
        names = pa.array(list(numbers), pa.string())
        shares = {c.title: _percent(sums[c.title], sums["took"]) for c in _OVERLAPS.values()}
        grouped = ordered({"Name": names, "Count": sums["Count"], **shares}, "Name")

        def each(open_files: ExitStack) -> Generator[Mapping[str, Any], None, None]:
            with open_files:
                for part, number in zip(parts, own, strict=True):
                    codes, columns, _ = _named(part, run)
                    yield {
                        "Name": pa.DictionaryArray.from_arrays(pa.array(number[codes]), names),
                        **{c: part.table.column(c) for c in ("Start", "End", "PID", "DeviceID")},
                        **{c.title: _percent(columns[c.title], columns["took"]) for c in _OVERLAPS.values()},
                        "Rank": np.full(len(codes), part.rank, np.int64),
                    }

        rows = each(spilled.pop_all())
        return self.answer({"grouped_trace": grouped, "rank_trace": rows, "files": file_columns(parts, run)})


def _named(part: Part, run: RunFacts) -> tuple[Int64, dict[str, Int64], list[str]]:
    """A rank's kernels: the numbers of their names, how long each took and both overlaps, ns; and the names."""
    table = part.table.combine_chunks()
    codes, first = group([table.column("name")])
    texts = pc.fill_null(run.texts(table.column("name").combine_chunks().take(pa.array(first))), "")
    columns = {cell.title: integers(table.column(key)) for key, cell in _OVERLAPS.items()}
    columns["took"] = integers(table.column("End")) - integers(table.column("Start"))
    return codes, columns, texts.to_pylist()


def _beside(start: Int64, end: Int64, of: Flags) -> Int64:
    """How much of each interval at least one other of the chosen ones covers, ns."""
    once = merge(start[of], end[of])
    depth = concurrency(start[of], end[of])
    twice = depth.counts[:-1] >= 2 if len(depth.counts) else np.zeros(0, bool)
    rows = np.flatnonzero(twice)
    several = merge(depth.times[rows], depth.times[rows + 1]) if len(rows) else Merged(start[:0], end[:0])
    # a chosen one covers itself, so another covers it if two do
    return np.where(of, overlap_ns(start, end, several), overlap_ns(start, end, once)).astype(np.int64)


def _percent(part: Int64, whole: Int64) -> Floats:
    """100 * part / whole; 0 of nothing."""
    share: Floats = np.divide(100.0 * part, whole, out=np.zeros(len(part)), where=whole > 0)
    return share


class NcclStraggler(NsysRecipe):
    """Which ranks arrive late at the operations of their communicators, how often and how much, and when.

    One operation on all its ranks is one instance, by the profiler's ids if it has them and by order otherwise. A
    rank's lateness is the time from the first arrival at an instance to its own, on the aligned clock; what the others
    wait for the last rank is counted as caused by it. `alltrace stragglers` says why a rank is late.
    """

    name = "nccl_straggler"
    clock = "aligned"
    tables = {"collectives": ("start", "end")}  # noqa: RUF012
    filters: ClassVar[tuple[Option, ...]] = TIMES
    own: ClassVar[tuple[Option, ...]] = (
        Option("bins", int, 30, "Number of time bins of the table `heatmap`.", least=1, most=100_000),
    )
    results: ClassVar[Results] = {
        "stragglers": (
            Cell("Communicator", "text", "Communicator."),
            RANK_CELL,
            *cells(
                "Operations | int | Instances of the communicator that the rank took part in.",
                "Times Last | int | Those at which it was the last to arrive.",
                "Last | percent | Their share.",
                "Caused Wait | ns | Time that the other ranks waited for it then, added up.",
                "Late Avg | mean_ns | Mean lateness.",
                "Late Med | mean_ns | Median lateness.",
                "Late Max | ns | Largest lateness.",
            ),
        ),
        "heatmap": (
            Cell("Duration", "ns", "Start of the bin."),
            RANK_CELL,
            *cells(
                "Operations | int | Instances with the first arrival in the bin.",
                "Times Last | int | Those at which the rank was the last to arrive.",
                "Late Avg | mean_ns | Mean lateness; null without operations.",
            ),
        ),
    }
    chart = Chart("bars", "Rank", ("Caused Wait",), "Communicator")

    def map_rank(self, rank: Rank, options: Options) -> Any:
        """Marks the rank as selected; the values are derived over all ranks."""
        return pa.table({"asked": pa.array([True])})

    def map(self, rank: Rank, options: Options) -> Any:
        """The same: times are filtered instance by instance."""
        return self.map_rank(rank, options)

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        members = alignment_of(run).members
        ranks = pa.array([part.rank for part in parts], members.schema.field("rank").type)
        members = members.filter(pc.is_in(members.column("rank"), value_set=ranks))
        filters = given_filters(options)
        if filters.start is not None:
            members = members.filter(pc.greater_equal(members.column("last_end_ns"), filters.start))
        if filters.end is not None:
            members = members.filter(pc.less_equal(members.column("first_arrival_ns"), filters.end))
        if not members.num_rows:
            return self.answer({}, ("no operation was matched on several ranks",) if parts else ())
        names = ("rank", "communicator", "arrival_ns", "first_arrival_ns", "last_rank", "awaited_rank", "wait_ns")
        rank, communicator, arrival, first, last, awaited, wait = (integers(members.column(n)) for n in names)
        late = arrival - first
        summary = summarize(collect({"group": pa.array(communicator), "rank": pa.array(rank)}, late))
        group_of, rank_of = (summary.column(key).to_pylist() for key in ("group", "rank"))
        place = {key: i for i, key in enumerate(zip(group_of, rank_of, strict=True))}
        times, caused = np.zeros(len(place), np.int64), np.zeros(len(place), np.int64)
        for into, whose, amount in ((caused, awaited, wait), (times, last, (rank == last).astype(np.int64))):
            at = np.array(
                [place.get(key, -1) for key in zip(communicator.tolist(), whose.tolist(), strict=True)], np.int64
            )
            np.add.at(into, at[at >= 0], amount[at >= 0])
        count = integers(summary.column(COUNT))
        called = {g.number: g.name for g in alignment_of(run).groups}
        stragglers = {
            "Communicator": pa.array([called.get(g, str(g)) for g in group_of], pa.string()),
            "Rank": rank_of, "Operations": count, "Times Last": times, "Last": 100.0 * times / count,
            "Caused Wait": caused, "Late Avg": summary.column("mean"), "Late Med": summary.column("median"),
            "Late Max": summary.column("max"),
        }  # fmt: skip
        heat = _heatmap(run.span_ns, options["bins"], rank, first, late, rank == last)
        return self.answer({"stragglers": ordered(stragglers, "-Caused Wait", "Rank", "Communicator"), "heatmap": heat})


def _heatmap(span: tuple[int, int], bins: int, rank: Int64, first: Int64, late: Int64, was_last: Flags) -> Columns:
    start, end = min(span[0], int(first.min())), max(span[1], int(first.max()) + 1)
    edges = bin_edges(start, end, min(bins, end - start))
    ranks, number = np.unique(rank, return_inverse=True)
    cell = (np.searchsorted(edges, first, side="right") - 1) * len(ranks) + number
    size = (len(edges) - 1) * len(ranks)
    count, times, total = (np.zeros(size, np.int64) for _ in range(3))
    for into, values in ((count, np.int64(1)), (times, was_last.astype(np.int64)), (total, late)):
        np.add.at(into, cell, values)
    return {
        "Duration": np.repeat(edges[:-1], len(ranks)),
        "Rank": np.tile(ranks, len(edges) - 1),
        "Operations": count,
        "Times Last": times,
        "Late Avg": pa.array(total / np.maximum(count, 1), mask=count == 0),
    }


cuda_gpu_kern_hist = CudaGpuKernHist()
nvtx_gpu_proj_trace = NvtxGpuProjTrace()
nccl_gpu_overlap_trace = NcclGpuOverlapTrace()
nccl_straggler = NcclStraggler()
