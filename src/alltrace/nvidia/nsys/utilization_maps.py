"""Heat maps of use: of GPUs by kernels, alone or with calls of a library, of GPU metrics, and of other samplers' counters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.nvidia.nsys.base import Cell
from alltrace.nvidia.nsys.heatmap import (
    KERNELS_READS,
    Binning,
    HeatMap,
    binning,
    equal_bins,
    host_intervals,
    kernels_by_device,
    percent,
)
from alltrace.nvidia.nsys.sampled import bin_means
from alltrace.recipes.analysis.lookups import texts_of
from alltrace.recipes.analysis.sampled import GPU_READS, gpu_numbers, gpu_series, plain_metric, series
from alltrace.recipes.base import Option
from alltrace.trace.intervals import NOTHING, bin_coverage_ns, bin_load_ns, intersection, merge, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables, RunFacts

_CUMULATIVE = Option("cumulative", bool, False, "Add up kernels that run at once, so that a bin can have more than 100 %.")
_DEVICE_CELLS = (Cell("PID", "int", "Process id."), Cell("Device ID", "int", "CUDA ordinal of the GPU."))
_CALL_READS = ("start", "end", "process")
_GENERIC_READS = ("time", "source", "metric", "value")
_METRICS = {"SM Active": "multiprocessors with work", "SM Issue": "cycles that issue", "Tensor Active": "the tensor cores' cycles"}


class CudaGpuTimeUtilMap(HeatMap):
    """How much of the time kernels of a process run on a GPU, bin by bin."""

    name = "cuda_gpu_time_util_map"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": KERNELS_READS}
    settings: ClassVar[tuple[Option, ...]] = (_CUMULATIVE,)
    values: ClassVar[tuple[Cell, ...]] = (Cell("Kernel", "percent", "Share of the bin in which a kernel runs."),)
    labels: ClassVar[tuple[Cell, ...]] = _DEVICE_CELLS

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process and device."""
        for kernels in kernels_by_device(rank):
            share = _used(kernels.start, kernels.end, rank, options)
            yield {"PID": kernels.pid, "Device ID": kernels.ordinal, "Kernel": share}


def _used(start: NDArray[np.int64], end: NDArray[np.int64], rank: RankTables, options: Mapping[str, Any]) -> NDArray[np.float64]:
    """The share of each bin that intervals cover, or with `--cumulative` their summed time over the bin, in per cent."""
    edges = binning(options).edges
    time = bin_load_ns(start, end, edges) if options.get("cumulative") else bin_coverage_ns(merge(start, end), edges)
    return percent(time, rank, options)


class NcclGpuTimeUtilMap(HeatMap):
    """How much of the time kernels of NCCL and other kernels of a process run on a GPU, bin by bin, and both at once.

    Which kernels communicate is what the kernel rules say; no NVTX ranges are needed.
    """

    name = "nccl_gpu_time_util_map"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": KERNELS_READS}
    settings: ClassVar[tuple[Option, ...]] = (_CUMULATIVE,)
    values: ClassVar[tuple[Cell, ...]] = (
        Cell("All", "percent", "Share of the bin in which a kernel runs."),
        Cell("NCCL", "percent", "In which a communication kernel runs."),
        Cell("Compute", "percent", "In which another kernel runs."),
        Cell("Overlap", "percent", "In which both run."),
    )
    labels: ClassVar[tuple[Cell, ...]] = _DEVICE_CELLS

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process and device."""
        for kernels in kernels_by_device(rank):
            talks = kernels.communicates
            start, end = kernels.start, kernels.end
            both = intersection(merge(start[talks], end[talks]), merge(start[~talks], end[~talks]))
            yield {
                "PID": kernels.pid,
                "Device ID": kernels.ordinal,
                "All": _used(start, end, rank, options),
                "NCCL": _used(start[talks], end[talks], rank, options),
                "Compute": _used(start[~talks], end[~talks], rank, options),
                "Overlap": percent(bin_coverage_ns(both, binning(options).edges), rank, options),
            }


class HostUtilMap(HeatMap):
    """How much of the time a process has kernels on its GPUs, is in calls of a library, and both at once.

    Attributes:
        calls: The canonical table of the calls.
        word: The name of the column of the calls.
    """

    tables: ClassVar[Mapping[str, tuple[str, ...]]]
    values: ClassVar[tuple[Cell, ...]]
    labels: ClassVar[tuple[Cell, ...]]
    calls: ClassVar[str]
    word: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose the columns from the library's name."""
        if "calls" in vars(cls):
            cls.tables = {"kernels": KERNELS_READS, cls.calls: _CALL_READS}
            cls.values = (
                Cell("Kernel", "percent", "Share of the bin in which a kernel of the process runs on any GPU."),
                Cell(cls.word, "percent", f"In which a thread of the process is in a call of {cls.word}."),
                Cell("Overlap", "percent", "In which both are so."),
            )
            cls.labels = (Cell("PID", "int", "Process id."),)
        super().__init_subclass__(**kwargs)

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the columns hold without kernels or calls."""
        zero = {"kernels": "the columns Kernel and Overlap are 0", self.calls: f"the columns {self.word} and Overlap are 0"}
        return {**super().without(options), **zero}

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process that has any of both."""
        kernels = kernels_by_device(rank)
        calls = host_intervals(rank, self.calls)
        pids = dict(
            zip(*(rank.table("processes", ["process", "pid"]).column(c).to_pylist() for c in ("process", "pid")), strict=True)
        )
        edges = binning(options).edges
        for process in sorted({k.process for k in kernels} | set(calls)):
            running = union([k.merged for k in kernels if k.process == process])
            calling = calls.get(process, NOTHING)
            sets = {"Kernel": running, self.word: calling, "Overlap": intersection(running, calling)}
            yield {
                "PID": pids.get(process),
                **{title: percent(bin_coverage_ns(merged, edges), rank, options) for title, merged in sets.items()},
            }


class MpiGpuTimeUtilMap(HostUtilMap):
    """How much of the time kernels of a process run, how much it is in calls of MPI, and how much both at once, bin by bin.

    A rank that has only one of both is answered too.
    """

    name = "mpi_gpu_time_util_map"
    calls = "mpi"
    word = "MPI"


class UcxGpuTimeUtilMap(HostUtilMap):
    """How much of the time kernels of a process run, how much it is in calls of UCX, and how much both at once, bin by bin.

    A rank that has only one of both is answered too.
    """

    name = "ucx_gpu_time_util_map"
    calls = "ucx"
    word = "UCX"


class GpuMetricUtilMap(HeatMap):
    """How much of each GPU's multiprocessors was used, bin by bin: the means of SM Active, SM Issue and Tensor Active.

    A sample describes the time before it. A bin without samples is not known, and not 0.
    """

    name = "gpu_metric_util_map"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"gpu_metrics": GPU_READS}
    values: ClassVar[tuple[Cell, ...]] = tuple(Cell(title, "percent", f"Mean share of {what}.") for title, what in _METRICS.items())
    labels: ClassVar[tuple[Cell, ...]] = (Cell("GPU", "int", "Number of the GPU in nsys."),)

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per GPU."""
        edges = binning(options).edges
        found: dict[int, dict[str, Any]] = {}
        for samples in gpu_series(rank):
            title = next((t for t in _METRICS if t.lower() == plain_metric(samples.metric)), None)
            if title is not None:
                found.setdefault(samples.key[0], {})[title] = bin_means(samples.times, samples.values, edges)
        numbers = gpu_numbers(rank, list(found))
        nothing = np.full(len(edges) - 1, np.nan)
        for device, values in found.items():
            yield {"GPU": numbers[device], **dict.fromkeys(_METRICS, nothing), **values}


class SamplerMap(HeatMap):
    """Counters of a sampler, bin by bin: the mean of the samples of each.

    Attributes:
        wanted: What the name of the sampler or of the counter must hold.
    """

    wanted: ClassVar[re.Pattern[str]]
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"generic_metrics": _GENERIC_READS}
    values: ClassVar[tuple[Cell, ...]] = (Cell("Value", "real", "Mean of the samples, in the counter's own unit."),)
    labels: ClassVar[tuple[Cell, ...]] = (
        Cell("Source", "text", "The sampler."),
        Cell("Metric", "text", "The counter, with its device where it has one."),
    )

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per counter."""
        cut = binning(options)
        found = series(rank, rank.table("generic_metrics", _GENERIC_READS), "source", "metric", time="time")
        names = texts_of(rank, np.array([s.key[0] for s in found], np.int64))
        for samples in sorted(found, key=lambda s: (names[s.key[0]], s.metric)):
            source = names[samples.key[0]]
            if self.wanted.search(source) or self.wanted.search(samples.metric):
                times = samples.times - cut.origins.get(rank.rank, 0)
                yield {"Source": source, "Metric": samples.metric, "Value": bin_means(times, samples.values, cut.edges)}


class StorageUtilMap(SamplerMap):
    """The counters of storage, bin by bin: NFS and Lustre volumes, S3, and local and remote disks.

    A counter belongs to storage when its own name or its sampler's has one of these words.
    """

    name = "storage_util_map"
    wanted: ClassVar[re.Pattern[str]] = re.compile(r"(?<![a-z])(storage|nfs|lustre|nvme|nvmeof|s3|disk)(?![a-z])", re.IGNORECASE)


class NetworkMapAws(SamplerMap):
    """The counters of Amazon's Elastic Fabric Adapters, bin by bin, as the EFA plugin of Nsight Systems samples them."""

    name = "network_map_aws"
    wanted: ClassVar[re.Pattern[str]] = re.compile(r"(?<![a-z])efa(?![a-z])", re.IGNORECASE)
    settings: ClassVar[tuple[Option, ...]] = (
        Option("disable_alignment", bool, False, "Count each rank's time from its own first event."),
    )

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options with the bins: of the run's time, or of the time since each rank's first event."""
        told = super().prepared(options, run)
        if not options["disable_alignment"]:
            return told
        return {name: _unaligned(v, options["bins"]) if isinstance(v, Binning) else v for name, v in told.items()}


def _unaligned(cut: Binning, bins: int) -> Binning:
    extents = {rank: (0, end - start) for rank, (start, end) in cut.extents.items()}
    longest = max((end for _, end in extents.values()), default=0)
    return replace(
        cut, edges=equal_bins(0, longest, bins), extents=extents, origins={rank: start for rank, (start, _) in cut.extents.items()}
    )
