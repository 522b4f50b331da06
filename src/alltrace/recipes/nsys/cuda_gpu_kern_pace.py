"""The recipe `cuda_gpu_kern_pace`: the pace of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.pace import Pace
from alltrace.recipes.nsys.ranges import called

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables


class CudaGpuKernPace(Pace):
    """The pace of a kernel, by its short name: how long each of its runs took on each rank, and how long after the last it came.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank whose
    delta is long is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "cuda_gpu_kern_pace"
    tables: ClassVar = {"kernels": ("start", "end", "short_name")}
    label = "Shortname"

    def events(self, rank: RankTables, name: str) -> Any:
        """The kernels of that short name."""
        return called(rank, rank.table("kernels", self.tables["kernels"]), name, "short_name")


RECIPE = CudaGpuKernPace()
