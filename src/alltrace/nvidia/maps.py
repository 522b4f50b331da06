"""The recipes that cut the run's time into bins, equal on all ranks: heat maps of use and of sampled values.

Bins are equally long, the last as short as it must be. A cell is about the part of its bin in which the rank was
recorded, and is null if it was not. nsys begins the first bin where the capture began; here it begins with the run's
first event, or where `--start` or `--filter-time` says. The overlap of intervals with bins is exact.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.nvidia.cells import Cell, cells
from alltrace.nvidia.filters import given_filters
from alltrace.nvidia.recipe import FILE, FILE_CELL, NsysRecipe, part_files
from alltrace.nvidia.sampled_sums import ADAPTER_CELLS, PER_MS
from alltrace.recipes.analysis.lookups import column, look_up, texts_of
from alltrace.recipes.analysis.sampled import GPU_READS, gpu_numbers, gpu_series, plain_metric, series, traffic
from alltrace.recipes.analysis.sampled import READS as TRAFFIC_READS
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, RunFacts
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, integers, is_one_of
from alltrace.trace.intervals import NOTHING, Merged, bin_coverage_ns, bin_load_ns, by_track, intersection, merge, union
from alltrace.trace.kernel_rules import NOT_COMPUTE

SeriesRows = Iterable[Mapping[str, Any]]

_BINNING = "binning"
_CUMULATIVE = Option(
    "cumulative", bool, False, "Add up kernels that run at once, so that a bin can have more than 100 %."
)


@dataclass(frozen=True)
class Binning:
    """How time is cut: b + 1 ascending `edges`, when each rank was recorded, and what is taken from its times."""

    edges: Int64
    extents: Mapping[int, tuple[int, int]]
    origins: Mapping[int, int] = field(default_factory=dict)

    def covered(self, rank: int) -> Int64:
        """How much of each bin the rank was recorded in, ns."""
        if rank not in self.extents:
            return np.diff(self.edges)
        start, end = self.extents[rank]
        inside: Int64 = np.clip(self.edges, start, max(start, end))
        return np.diff(inside)


def equal_bins(start: int, end: int, bins: int) -> Int64:
    """The edges of at most `bins` bins of one length, the last as short as it must be: int64 array, ns."""
    span = max(end - start, 1)
    length = -(-span // bins)
    count = -(-span // length)
    return np.array([min(start + i * length, start + span) for i in range(count + 1)], np.int64)


class HeatMap(NsysRecipe):
    """Values of bins of time.

    `series` are the rows of a rank: for each its `labels` by title, and by title of each of `values` a number per bin,
    NaN if it is not known. `settings` are the options other than `--bins`.
    """

    clock = "one"

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        values: tuple[Cell, ...],
        labels: tuple[Cell, ...],
        series: Callable[[Rank, Options], SeriesRows],
        settings: tuple[Option, ...] = (),
        **facts: Any,
    ) -> None:
        self._values, self._labels, self._series = values, labels, series
        start = Cell("Duration", "ns", "Start of the bin.")
        super().__init__(
            name,
            doc,
            own=(Option("bins", int, 30, "Number of bins of the run's time.", least=1, most=100_000), *settings),
            results={"analysis": (start, *values, *labels, FILE_CELL)},
            chart=Chart("heatmap", start.title, tuple(c.title for c in values), FILE),
            **facts,
        )

    def prepared(self, options: Options, run: RunFacts) -> Options:
        filters = given_filters(options)
        first, last = run.span_ns
        start = first if filters.start is None else filters.start
        end = last if filters.end is None else filters.end
        extents = {}
        for record in run.ranks:
            if record.start_ns is not None and record.end_ns is not None:
                clock = run.clock(record)
                extents[record.rank] = clock.apply_one(record.start_ns), clock.apply_one(record.end_ns)
        return {**options, _BINNING: Binning(equal_bins(start, end, options["bins"]), extents)}

    def map_rank(self, rank: Rank, options: Options) -> Any:
        rows = list(self._series(rank, options))
        kinds = {c.title: c.field().type for c in self._labels} | {
            c.title: pa.list_(pa.float64()) for c in self._values
        }
        return pa.table({title: pa.array([row[title] for row in rows], kind) for title, kind in kinds.items()})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({})
        begins = options[_BINNING].edges[:-1]
        whole = pa.concat_tables([part.table for part in parts])
        rows = pa.array(np.repeat(np.arange(whole.num_rows), len(begins)))
        columns: dict[str, Any] = {"Duration": np.tile(begins, whole.num_rows), FILE: part_files(run, parts).take(rows)}
        columns |= {cell.title: column(whole, cell.title).take(rows) for cell in self._labels}
        for cell in self._values:
            value = column(whole, cell.title).flatten().to_numpy(zero_copy_only=False)
            columns[cell.title] = pa.array(value, mask=np.isnan(value))
        return self.answer({"analysis": columns}, _clock_notes(run))


def _clock_notes(run: RunFacts) -> tuple[str, ...]:
    """The clock of several hosts' times, if collectives determine it; otherwise the alignment has its own note."""
    clocks = run.manifest.clocks
    if len(clocks) < 2 or not any(c.evidence for c in clocks):
        return ()
    errors = [c.error_ns for c in clocks if c.error_ns is not None]
    error = f", to within about {max(errors) / 1000:,.1f} us" if errors else ""
    return (f"the times of {len(clocks)} hosts are on one clock, determined from shared collectives{error}",)


def _percent(time: Int64, rank: Rank, options: Options) -> Floats:
    """100 * the time in each bin / the part of the bin in which the rank was recorded; NaN if it was not."""
    covered = options[_BINNING].covered(rank.rank)
    result: Floats = np.divide(100.0 * time, covered, out=np.full(len(time), np.nan), where=covered > 0)
    return result


def _covered(merged: Merged, rank: Rank, options: Options) -> Floats:
    """The share of each bin that merged intervals cover, in per cent."""
    return _percent(bin_coverage_ns(merged, options[_BINNING].edges), rank, options)


def _used(start: Int64, end: Int64, rank: Rank, options: Options) -> Floats:
    """The share of each bin that intervals cover, or with `--cumulative` their time over the bin, in per cent."""
    if not options.get("cumulative"):
        return _covered(merge(start, end), rank, options)
    return _percent(bin_load_ns(start, end, options[_BINNING].edges), rank, options)


class _Kernels(NamedTuple):
    """The kernels of a process on a device, by rows (-1 if unknown) and nsys' numbers, and which communicate."""

    process: int
    pid: int | None
    ordinal: int | None
    start: Int64
    end: Int64
    communicates: Flags


_KERNEL_READS = ("start", "end", "process", "device", "kind")


def _kernels_by_device(rank: Rank) -> list[_Kernels]:
    def make() -> list[_Kernels]:
        table = rank.table("kernels", _KERNEL_READS)
        start, end, process, device = (integers(table.column(c), -1) for c in ("start", "end", "process", "device"))
        communicates = is_one_of(table.column("kind"), NOT_COMPUTE)
        order = np.lexsort((end, start, device, process))
        process, device, start, end = (v[order] for v in (process, device, start, end))
        communicates = communicates[order]
        pids = _looked_up(rank, "processes", ("process", "pid"), process)
        ordinals = _looked_up(rank, "devices", ("device", "ordinal"), device)
        return [
            _Kernels(owner, pids[owner], ordinals[gpu], start[rows], end[rows], communicates[rows])
            for (owner, gpu), rows in by_track(process, device)
        ]

    return once(rank, "kernels by device", make)


def _looked_up(rank: Rank, table: str, columns: tuple[str, str], values: Int64) -> dict[int, int | None]:
    distinct = np.unique(values)
    numbers = look_up(rank.table(table, columns), columns[1], pa.array(distinct)).to_pylist()
    return dict(zip(distinct.tolist(), numbers, strict=True))


def _host_intervals(rank: Rank, table: str) -> dict[int, Merged]:
    """When each process of a rank is in a call of `mpi` or `ucx`, by the process' row."""

    def make() -> dict[int, Merged]:
        calls = rank.table(table, ["start", "end", "process"])
        calls = calls.filter(calls.column("end").is_valid()) if calls.column("end").null_count else calls
        start, end, process = (integers(calls.column(c), -1) for c in ("start", "end", "process"))
        return {int(p): merge(start[process == p], end[process == p]) for p in np.unique(process)}

    return once(rank, ("host intervals", table), make)


_PID = cells("PID | int | Process id.")
_DEVICE_CELLS = (*_PID, *cells("Device ID | int | CUDA ordinal of the GPU."))


def _use(rank: Rank, options: Options) -> SeriesRows:
    for kernels in _kernels_by_device(rank):
        share = _used(kernels.start, kernels.end, rank, options)
        yield {"PID": kernels.pid, "Device ID": kernels.ordinal, "Kernel": share}


cuda_gpu_time_util_map = HeatMap(
    "cuda_gpu_time_util_map",
    "How much of the time kernels of a process run on a GPU, bin by bin.",
    tables={"kernels": _KERNEL_READS},
    settings=(_CUMULATIVE,),
    values=cells("Kernel | percent | Share of the bin in which a kernel runs."),
    labels=_DEVICE_CELLS,
    series=_use,
)


def _nccl_use(rank: Rank, options: Options) -> SeriesRows:
    for kernels in _kernels_by_device(rank):
        talks, start, end = kernels.communicates, kernels.start, kernels.end
        both = intersection(merge(start[talks], end[talks]), merge(start[~talks], end[~talks]))
        yield {
            "PID": kernels.pid,
            "Device ID": kernels.ordinal,
            "All": _used(start, end, rank, options),
            "NCCL": _used(start[talks], end[talks], rank, options),
            "Compute": _used(start[~talks], end[~talks], rank, options),
            "Overlap": _covered(both, rank, options),
        }


nccl_gpu_time_util_map = HeatMap(
    "nccl_gpu_time_util_map",
    """How much of the time kernels of NCCL and other kernels of a process run on a GPU, bin by bin, and both at once.

    Which kernels communicate is what the kernel rules say; no NVTX ranges are needed.
    """,
    tables={"kernels": _KERNEL_READS},
    settings=(_CUMULATIVE,),
    values=cells(
        "All | percent | Share of the bin in which a kernel runs.",
        "NCCL | percent | In which a communication kernel runs.",
        "Compute | percent | In which another kernel runs.",
        "Overlap | percent | In which both run.",
    ),
    labels=_DEVICE_CELLS,
    series=_nccl_use,
)


class HostUtilMap(HeatMap):
    """How much of the time a process has kernels on its GPUs, is in calls of the table `calls`, and both at once."""

    def __init__(self, name: str, calls: str) -> None:
        self._calls, self._library = calls, calls.upper()
        super().__init__(
            name,
            f"How much of the time kernels of a process run, how much it is in calls of {self._library}, and how much "
            "both at once, bin by bin.\n\nA rank that has only one of both is answered too.",
            tables={"kernels": _KERNEL_READS, calls: ("start", "end", "process")},
            values=cells(
                "Kernel | percent | Share of the bin in which a kernel of the process runs on any GPU.",
                f"{self._library} | percent | In which a thread of the process is in a call of {self._library}.",
                "Overlap | percent | In which both are so.",
            ),
            labels=_PID,
            series=self._of_processes,
        )

    def without(self, options: Options) -> dict[str, str]:
        zero = {
            "kernels": "the columns Kernel and Overlap are 0",
            self._calls: f"the columns {self._library} and Overlap are 0",
        }
        return {**super().without(options), **zero}

    def _of_processes(self, rank: Rank, options: Options) -> SeriesRows:
        kernels = _kernels_by_device(rank)
        calls = _host_intervals(rank, self._calls)
        processes = rank.table("processes", ["process", "pid"])
        pids = dict(zip(*(processes.column(c).to_pylist() for c in ("process", "pid")), strict=True))
        for process in sorted({k.process for k in kernels} | set(calls)):
            running = union([merge(k.start, k.end) for k in kernels if k.process == process])
            calling = calls.get(process, NOTHING)
            merged = {"Kernel": running, self._library: calling, "Overlap": intersection(running, calling)}
            yield {"PID": pids.get(process), **{title: _covered(of, rank, options) for title, of in merged.items()}}


mpi_gpu_time_util_map = HostUtilMap("mpi_gpu_time_util_map", "mpi")
ucx_gpu_time_util_map = HostUtilMap("ucx_gpu_time_util_map", "ucx")

_METRICS = {
    "SM Active": "multiprocessors with work",
    "SM Issue": "cycles that issue",
    "Tensor Active": "the tensor cores' cycles",
}


def _metric_means(rank: Rank, options: Options) -> SeriesRows:
    edges = options[_BINNING].edges
    means: dict[int, dict[str, Any]] = {}
    for samples in gpu_series(rank):
        title = next((t for t in _METRICS if t.lower() == plain_metric(samples.metric)), None)
        if title is not None:
            means.setdefault(samples.key[0], {})[title] = bin_means(samples.times, samples.values, edges)
    numbers = gpu_numbers(rank, list(means))
    nothing = np.full(len(edges) - 1, np.nan)
    for device, values in means.items():
        yield {"GPU": numbers[device], **dict.fromkeys(_METRICS, nothing), **values}


gpu_metric_util_map = HeatMap(
    "gpu_metric_util_map",
    """How much of each GPU's multiprocessors was used, bin by bin: the means of SM Active, SM Issue and Tensor Active.

    A sample describes the time before it. A bin without samples is not known, and not 0.
    """,
    tables={"gpu_metrics": GPU_READS},
    values=cells(*(f"{title} | percent | Mean share of {what}." for title, what in _METRICS.items())),
    labels=cells("GPU | int | Number of the GPU in nsys."),
    series=_metric_means,
)

_MIB = float(1 << 20)
_SCALES = {"Bytes Sent": PER_MS / _MIB, "Bytes Recv": PER_MS / _MIB, "Congestion": PER_MS}


def _traffic_rates(rank: Rank, options: Options) -> SeriesRows:
    edges = options[_BINNING].edges
    adapters: dict[tuple[str, str, str], dict[str, Any]] = {}
    for of in traffic(rank):
        if of.word in _SCALES:
            rates = bin_rates(of.starts, of.ends, of.values * _SCALES[of.word], edges)
            adapter = adapters.setdefault((of.device, of.name, of.guid), {})
            before = adapter.get(of.word, np.full(len(rates), np.nan))
            adapter[of.word] = np.where(np.isnan(before) | np.isnan(rates), np.fmax(before, rates), before + rates)
    nothing = np.full(len(edges) - 1, np.nan)
    for (device, name, guid), values in adapters.items():
        yield {"Device": device, "Name": name, "GUID": guid, **dict.fromkeys(_SCALES, nothing), **values}


network_traffic_map = HeatMap(
    "network_traffic_map",
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send, bin by bin.

    A sample counts in a bin by its time in it; what no sample describes is not known, and not 0. Of an adapter that
    counts Ethernet and InfiniBand apart both are added.
    """,
    tables=TRAFFIC_READS,
    values=cells(
        "Bytes Sent | mib_per_s | Mean rate of what was sent.",
        "Bytes Recv | mib_per_s | Mean rate of what was received.",
        "Congestion | ticks_per_s | Mean rate of the waits to send.",
    ),
    labels=ADAPTER_CELLS,
    series=_traffic_rates,
)


class SamplerMap(HeatMap):
    """A sampler's counters, bin by bin: means of those with one of `words` in their names, or their sampler's."""

    def __init__(self, name: str, doc: str, words: str, settings: tuple[Option, ...] = ()) -> None:
        self._words = re.compile(rf"(?<![a-z])({words})(?![a-z])", re.IGNORECASE)
        super().__init__(
            name,
            doc,
            tables={"generic_metrics": ("time", "source", "metric", "value")},
            values=cells("Value | real | Mean of the samples, in the counter's own unit."),
            labels=cells(
                "Source | text | The sampler.", "Metric | text | The counter, with its device where it has one."
            ),
            series=self._of_counters,
            settings=settings,
        )

    def _of_counters(self, rank: Rank, options: Options) -> Iterator[Mapping[str, Any]]:
        cut: Binning = options[_BINNING]
        counters = series(
            rank, rank.table("generic_metrics", self.tables["generic_metrics"]), "source", "metric", time="time"
        )
        names = texts_of(rank, np.array([s.key[0] for s in counters], np.int64))
        for samples in sorted(counters, key=lambda s: (names[s.key[0]], s.metric)):
            source = names[samples.key[0]]
            if self._words.search(source) or self._words.search(samples.metric):
                times = samples.times - cut.origins.get(rank.rank, 0)
                yield {"Source": source, "Metric": samples.metric, "Value": bin_means(times, samples.values, cut.edges)}

    def prepared(self, options: Options, run: RunFacts) -> Options:
        """The options with the bins: of the run's time, or of the time since each rank's first event."""
        prepared = super().prepared(options, run)
        if not options.get("disable_alignment"):
            return prepared
        cut: Binning = prepared[_BINNING]
        extents = {rank: (0, end - start) for rank, (start, end) in cut.extents.items()}
        longest = max((end for _, end in extents.values()), default=0)
        origins = {rank: start for rank, (start, _) in cut.extents.items()}
        return {
            **prepared,
            _BINNING: replace(cut, edges=equal_bins(0, longest, options["bins"]), extents=extents, origins=origins),
        }


storage_util_map = SamplerMap(
    "storage_util_map",
    """The counters of storage, bin by bin: NFS and Lustre volumes, S3, and local and remote disks.

    A counter belongs to storage when its own name or its sampler's has one of these words.
    """,
    "storage|nfs|lustre|nvme|nvmeof|s3|disk",
)
network_map_aws = SamplerMap(
    "network_map_aws",
    "The counters of Amazon's Elastic Fabric Adapters, bin by bin, as the EFA plugin of Nsight Systems samples them.",
    "efa",
    (Option("disable_alignment", bool, False, "Count each rank's time from its own first event."),),
)


def bin_means(times: Int64, values: Floats, edges: Int64) -> Floats:
    """The mean of the samples of each bin, NaN if there is none."""
    # a sample describes the time before it, so that one at the end of a bin belongs to it, and one at its start to the
    # bin before.
    at = np.searchsorted(edges, times, side="left") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    count = np.bincount(at[inside], minlength=len(edges) - 1)
    total = np.bincount(at[inside], weights=values[inside], minlength=len(edges) - 1)
    means: Floats = np.divide(total, count, out=np.full(len(edges) - 1, np.nan), where=count > 0)
    return means


def bin_rates(starts: Int64, ends: Int64, values: Floats, edges: Int64) -> Floats:
    """The mean in each bin of values that hold over intervals, weighted by their time in it; NaN if none does."""
    long = ends > starts
    starts, ends, values = starts[long], ends[long], values[long]
    zero = int(edges[0])
    total = np.diff(_integral(starts - zero, values, edges - zero) - _integral(ends - zero, values, edges - zero))
    covered_ns = bin_load_ns(starts, ends, edges)
    means: Floats = np.divide(total, covered_ns, out=np.full(len(edges) - 1, np.nan), where=covered_ns > 0)
    return means


def _integral(points: Int64, values: Floats, at: Int64) -> Floats:
    """The sum of value * (x - point) over the points before x, for each x of `at`."""
    order = np.argsort(points, kind="stable")
    points, values = points[order], values[order]
    sums: Floats = np.concatenate((np.zeros(1), np.cumsum(values)))
    weighted: Floats = np.concatenate((np.zeros(1), np.cumsum(values * points)))
    n = np.searchsorted(points, at, side="left")
    result: Floats = sums[n] * at - weighted[n]
    return result
