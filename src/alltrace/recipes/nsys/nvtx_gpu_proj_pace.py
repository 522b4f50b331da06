"""The recipe `nvtx_gpu_proj_pace`: the pace of an NVTX range on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.pace import Pace
from alltrace.recipes.nsys.ranges import PROJECTED, called, projected

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables


class NvtxGpuProjPace(Pace):
    """The pace of an NVTX range on the GPU: of the work launched inside each of its occurrences, from first start to last end.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank whose
    delta is long is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "nvtx_gpu_proj_pace"
    tables: ClassVar = PROJECTED
    projects = True
    requires = ("ranges", "api", ("kernels", "copies"))

    def events(self, rank: RankTables, name: str) -> Any:
        """The projected ranges of that text."""
        return called(rank, projected(rank), name)


RECIPE = NvtxGpuProjPace()
