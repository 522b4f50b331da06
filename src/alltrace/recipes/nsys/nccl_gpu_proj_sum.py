"""The recipe `nccl_gpu_proj_sum`: GPU time of calls of NCCL by function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.described import DescribedRanges
from alltrace.recipes.nsys.ranges import PROJECTED, of_nccl, projected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class NcclGpuProjSum(DescribedRanges):
    """How long the GPU work of calls of NCCL took, by function, over all ranks and on each: from its first start to its last end.

    A kernel that several grouped calls share counts for each of them.
    """

    name = "nccl_gpu_proj_sum"
    tables: ClassVar = PROJECTED
    projects = True
    requires = ("ranges", "api", ("kernels", "copies"))

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The ranges."""
        return of_nccl(rank, projected(rank))


RECIPE = NcclGpuProjSum()
