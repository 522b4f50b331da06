"""The recipe `cuda_api_sum`: time in each CUDA call."""

from __future__ import annotations

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.stats_sum import StatsSum
from alltrace.recipes.stats.cuda_api_sum import RECIPE as REPORT


class CudaApiSum(StatsSum):
    """The time that CUDA calls took on the CPU, by function, over all ranks and on each."""

    report = REPORT
    device = False
    chart = Chart("bars", "Name", ("Total Time",))


RECIPE = CudaApiSum()
