"""The recipe `nccl_gpu_time_util_map`: how much of the time communication and compute kernels run, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.cuda_gpu_time_util_map import CUMULATIVE, DEVICE_CELLS, used
from alltrace.recipes.nsys.heatmap import KERNELS_READS, HeatMap, binning, kernels_by_device, percent
from alltrace.trace.intervals import bin_coverage_ns, intersection, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables


class NcclGpuTimeUtilMap(HeatMap):
    """How much of the time kernels of NCCL and other kernels of a process run on a GPU, bin by bin, and both at once.

    Which kernels communicate is what the kernel rules say; no NVTX ranges are needed.
    """

    name = "nccl_gpu_time_util_map"
    tables: ClassVar = {"kernels": KERNELS_READS}
    settings = (CUMULATIVE,)
    values = (
        Cell("All", "percent", "Share of the bin in which a kernel runs."),
        Cell("NCCL", "percent", "In which a communication kernel runs."),
        Cell("Compute", "percent", "In which another kernel runs."),
        Cell("Overlap", "percent", "In which both run."),
    )
    labels = DEVICE_CELLS

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process and device."""
        for kernels in kernels_by_device(rank):
            talks = kernels.communicates
            start, end = kernels.start, kernels.end
            both = intersection(merge(start[talks], end[talks]), merge(start[~talks], end[~talks]))
            yield {
                "PID": kernels.pid,
                "Device ID": kernels.ordinal,
                "All": used(start, end, rank, options),
                "NCCL": used(start[talks], end[talks], rank, options),
                "Compute": used(start[~talks], end[~talks], rank, options),
                "Overlap": percent(bin_coverage_ns(both, binning(options).edges), rank, options),
            }


RECIPE = NcclGpuTimeUtilMap()
