"""The recipe `gpu_metric_util_sum`: every sampled GPU metric in numbers, over the run or in kernels or ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.nvidia.filters import pattern_of
from alltrace.nvidia.nsys.base import FILE_CELL, Cell
from alltrace.nvidia.nsys.ranges import projected
from alltrace.nvidia.nsys.sampled import RankRows, statistics, statistics_cells
from alltrace.recipes.analysis.lookups import texts_of
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.analysis.sampled import GPU_READS, gpu_numbers, gpu_series, gpu_series_of_host
from alltrace.recipes.base import Chart, Option
from alltrace.trace.arrays import integers
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import Merged, by_track, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables, RunFacts
    from alltrace.trace.arrays import Int64

_KERNELS = ("start", "end", "device", "name")


class GpuMetricUtilSum(RankRows):
    """What the sampled metrics of each GPU were: over the whole run, or while kernels or the work of NVTX ranges ran.

    A sample belongs to a kernel or range if its time is inside. Without a sample there is no row: at 10 kHz most kernels are too
    short. Kernels and ranges are those of the rank with the sampled GPU, in any report of its host; samples
    of the whole run are listed with their report. `metric-attribution` weighs samples by the part of their time inside,
    which reaches shorter ones.
    """

    name = "gpu_metric_util_sum"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"gpu_metrics": GPU_READS}
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("gpu_metrics",)
    host_samples = True
    on_one_clock = True
    own: ClassVar[tuple[Option, ...]] = (
        Option("per_kernel", bool, False, "A row for each kernel by name."),
        Option("per_projected_nvtx", bool, False, "A row for each NVTX range by name, while the work that it launched ran."),
        Option("match_ranges", str, None, "Only kernels or ranges with a name that this regular expression matches."),
        Option("longest_n", int, 100, "The number of kernels or ranges per rank, the longest first; -1 for all.", least=-1),
    )
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "analysis": (
            Cell("Name", "text", "Kernel or range; null for the whole run."),
            Cell("GPU", "int", "Number of the GPU in nsys."),
            Cell("Metric", "text", "Metric."),
            *statistics_cells("its values"),
            FILE_CELL,
        )
    }
    chart: ClassVar[Chart | None] = Chart("box", "Metric", ("Min", "Q1", "Median", "Q3", "Max"))

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options.

        Raises:
            UsageError: Both kernels and ranges were selected, or the expression to match names is invalid.
        """
        if options["per_kernel"] and options["per_projected_nvtx"]:
            raise UsageError("gpu_metric_util_sum takes --per-kernel or --per-projected-nvtx, but both were given; leave one out")
        pattern_of("--match-ranges", options["match_ranges"])
        return super().prepared(options, run)

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The samples, and the kernels or ranges that they are about."""
        wanted = super().reads(options)
        more: dict[str, tuple[str, ...]] = {}
        if options["per_kernel"]:
            more = {"kernels": _KERNELS}
        elif options["per_projected_nvtx"]:
            more = {**PROJECTION_READS, "kernels": (*PROJECTION_READS["kernels"], "device")}
        for table, columns in more.items():
            wanted[table] = tuple(dict.fromkeys((*wanted.get(table, ()), *columns)))
        return wanted

    def needs(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
        """The samples, and what they are detected by."""
        by = ("kernels",) if options["per_kernel"] else ("ranges", "api", "kernels") if options["per_projected_nvtx"] else ()
        return (*super().needs(options), *((t,) for t in by))

    def rank_rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A row per name, GPU and metric."""
        whole = not options["per_kernel"] and not options["per_projected_nvtx"]
        found = gpu_series(rank) if whole else gpu_series_of_host(rank)
        numbers = gpu_numbers(rank, sorted({s.key[0] for s in found}))
        if whole:
            for samples in found:
                row = {"Name": None, "GPU": numbers[samples.key[0]], "Metric": samples.metric}
                yield row | statistics(samples.values)
            return
        for name, device, spans in _spans(rank, options):
            for samples in found:
                if samples.key[0] != device:
                    continue
                inside = samples.values[_inside(samples.times, spans)]
                if len(inside):
                    yield {"Name": name, "GPU": numbers[device], "Metric": samples.metric} | statistics(inside)


def _spans(rank: RankTables, options: Mapping[str, Any]) -> Iterator[tuple[str, int, Merged]]:
    """Name, device and times of the chosen kernels or ranges, by name and device."""
    kernels = rank.table("kernels", _KERNELS if options["per_kernel"] else ["device"])
    device = integers(kernels.column("device"), -1)
    devices = np.unique(device)
    if options["per_kernel"]:
        start, end, ids = (integers(kernels.column(c), -1) for c in ("start", "end", "name"))
    else:
        ranges = projected(rank)
        start, end, ids = (integers(ranges.column(c), -1) for c in ("start", "end", "name"))
        device = np.zeros(ranges.num_rows, np.int64)
    pattern = pattern_of("--match-ranges", options["match_ranges"])
    texts = texts_of(rank, ids)
    if pattern is not None:
        right = np.array([i for i, t in texts.items() if pattern.search(t)], np.int64)
        chosen = np.isin(ids, right)
        start, end, ids, device = start[chosen], end[chosen], ids[chosen], device[chosen]
    if options["longest_n"] >= 0:
        longest = np.lexsort((ids, device, start, start - end))[: options["longest_n"]]
        start, end, ids, device = start[longest], end[longest], ids[longest], device[longest]
    if not options["per_kernel"]:  # a range's work is on one of the rank's devices; which one is not known of each
        device = np.repeat(devices, len(ids))
        start, end, ids = (np.tile(v, len(devices)) for v in (start, end, ids))
    order = np.lexsort((start, device, ids))
    start, end, ids, device = start[order], end[order], ids[order], device[order]
    found = [(texts[name], gpu, merge(start[rows], end[rows])) for (name, gpu), rows in by_track(ids, device)]
    yield from sorted(found, key=lambda f: f[:2])


def _inside(times: Int64, spans: Merged) -> NDArray[np.bool_]:
    """Which times are in one of the spans, their ends included."""
    inside: NDArray[np.bool_] = np.searchsorted(spans.starts, times, "right") > np.searchsorted(spans.ends, times, "left")
    return inside


RECIPE = GpuMetricUtilSum()
