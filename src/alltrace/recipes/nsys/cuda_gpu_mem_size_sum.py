"""The recipe `cuda_gpu_mem_size_sum`: bytes of copies and fills on GPUs."""

from __future__ import annotations

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.stats_sum import StatsSum
from alltrace.recipes.stats.cuda_gpu_mem_size_sum import RECIPE as REPORT


class CudaGpuMemSizeSum(StatsSum):
    """The bytes of copies and fills on GPUs, by direction, over all ranks and on each."""

    report = REPORT
    device = True
    chart = Chart("bars", "Operation", ("Total",))


RECIPE = CudaGpuMemSizeSum()
