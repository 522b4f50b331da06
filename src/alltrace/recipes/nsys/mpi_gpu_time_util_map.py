"""The recipe `mpi_gpu_time_util_map`: how much of the time kernels run and calls of MPI last, as a heat map."""

from __future__ import annotations

from alltrace.recipes.nsys.host_util_map import HostUtilMap


class MpiGpuTimeUtilMap(HostUtilMap):
    """How much of the time kernels of a process run, how much it is in calls of MPI, and how much both at once, bin by bin.

    A rank that has only one of both is answered too.
    """

    name = "mpi_gpu_time_util_map"
    calls = "mpi"
    word = "MPI"


RECIPE = MpiGpuTimeUtilMap()
