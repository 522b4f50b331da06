"""The report `cuda_api_gpu_sum`: time of CUDA calls, kernels, copies and fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.stats.cuda_api_sum import CudaApiSum
from alltrace.recipes.stats.cuda_gpu_sum import API, CudaGpuSum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables


class CudaApiGpuSum(CudaGpuSum):
    """The time of CUDA calls on the CPU, and of kernels, copies and fills on GPUs, by name."""

    name = "cuda_api_gpu_sum"
    title = "CUDA Summary (API/Kernels/MemOps)"
    tables: ClassVar = {**CudaGpuSum.tables, **CudaApiSum.tables}

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The calls, kernels, copies and fills."""
        for calls in CudaApiSum().rows(rank, options):
            yield self.typed(API, calls)
        yield from super().rows(rank, options)


RECIPE = CudaApiGpuSum()
