"""The recipe `nvtx_gpu_proj_sum`: GPU time of NVTX ranges by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.described import DescribedRanges
from alltrace.recipes.nsys.ranges import PROJECTED, projected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class NvtxGpuProjSum(DescribedRanges):
    """How long the GPU work launched inside NVTX ranges took, by name, over all ranks and on each.

    It takes from its first start to its last end.

    A launch belongs to every range of its thread that contains the call. Ranges without such work, those that another thread ended
    and those still open at the end of the capture are left out.
    """

    name = "nvtx_gpu_proj_sum"
    tables: ClassVar = PROJECTED
    projects = True
    requires = ("ranges", "api", ("kernels", "copies"))

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The ranges."""
        return projected(rank)


RECIPE = NvtxGpuProjSum()
