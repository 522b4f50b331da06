"""The recipe `cuda_gpu_kern_sum`: GPU time of each kernel."""

from __future__ import annotations

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.stats_sum import StatsSum
from alltrace.recipes.stats.cuda import BASE, MANGLED
from alltrace.recipes.stats.cuda_gpu_kern_sum import RECIPE as REPORT


class CudaGpuKernSum(StatsSum):
    """The time that kernels ran on GPUs, by name, over all ranks and on each."""

    report = REPORT
    own = (BASE, MANGLED)
    chart = Chart("bars", "Name", ("Total Time",))


RECIPE = CudaGpuKernSum()
