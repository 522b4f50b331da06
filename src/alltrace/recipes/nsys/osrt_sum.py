"""The recipe `osrt_sum`: time in each call of the operating system's runtime."""

from __future__ import annotations

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.stats_sum import StatsSum
from alltrace.recipes.stats.osrt_sum import RECIPE as REPORT


class OsrtSum(StatsSum):
    """The time that calls of the operating system's runtime took, by function, over all ranks and on each."""

    report = REPORT
    device = False
    chart = Chart("bars", "Name", ("Total Time",))


RECIPE = OsrtSum()
