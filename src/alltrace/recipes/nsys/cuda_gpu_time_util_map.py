"""The recipe `cuda_gpu_time_util_map`: how much of the time kernels run, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.base import Option
from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.heatmap import KERNELS_READS, HeatMap, binning, kernels_by_device, percent
from alltrace.trace.intervals import bin_coverage_ns, bin_load_ns, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables

CUMULATIVE = Option("cumulative", bool, False, "Add up kernels that run at once, so that a bin can have more than 100 %.")
DEVICE_CELLS = (Cell("PID", "int", "Process id."), Cell("Device ID", "int", "CUDA ordinal of the GPU."))


class CudaGpuTimeUtilMap(HeatMap):
    """How much of the time kernels of a process run on a GPU, bin by bin."""

    name = "cuda_gpu_time_util_map"
    tables: ClassVar = {"kernels": KERNELS_READS}
    settings = (CUMULATIVE,)
    values = (Cell("Kernel", "percent", "Share of the bin in which a kernel runs."),)
    labels = DEVICE_CELLS

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process and device."""
        for kernels in kernels_by_device(rank):
            share = used(kernels.start, kernels.end, rank, options)
            yield {"PID": kernels.pid, "Device ID": kernels.ordinal, "Kernel": share}


def used(start: NDArray[np.int64], end: NDArray[np.int64], rank: RankTables, options: Mapping[str, Any]) -> NDArray[np.float64]:
    """The share of each bin that intervals cover, or with `--cumulative` their summed time over the bin, in per cent."""
    edges = binning(options).edges
    time = bin_load_ns(start, end, edges) if options.get("cumulative") else bin_coverage_ns(merge(start, end), edges)
    return percent(time, rank, options)


RECIPE = CudaGpuTimeUtilMap()
