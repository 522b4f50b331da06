"""The recipe `ucx_gpu_time_util_map`: how much of the time kernels run and calls of UCX last, as a heat map."""

from __future__ import annotations

from alltrace.recipes.nsys.host_util_map import HostUtilMap


class UcxGpuTimeUtilMap(HostUtilMap):
    """How much of the time kernels of a process run, how much it is in calls of UCX, and how much both at once, bin by bin.

    A rank that has only one of both is answered too.
    """

    name = "ucx_gpu_time_util_map"
    calls = "ucx"
    word = "UCX"


RECIPE = UcxGpuTimeUtilMap()
