"""The recipe `cuda_gpu_mem_time_sum`: time of copies and fills on GPUs."""

from __future__ import annotations

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.stats_sum import StatsSum
from alltrace.recipes.stats.cuda_gpu_mem_time_sum import RECIPE as REPORT


class CudaGpuMemTimeSum(StatsSum):
    """The time that copies and fills took on GPUs, by direction, over all ranks and on each."""

    report = REPORT
    device = True
    chart = Chart("bars", "Operation", ("Total Time",))


RECIPE = CudaGpuMemTimeSum()
