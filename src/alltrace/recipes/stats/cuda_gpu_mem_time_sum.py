"""The report `cuda_gpu_mem_time_sum`: time of copies and fills on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import column, copy_labels, memory_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class CudaGpuMemTimeSum(SumReport):
    """The time of copies and fills on GPUs, by direction."""

    name = "cuda_gpu_mem_time_sum"
    title = "CUDA GPU MemOps Summary (by Time)"
    tables: ClassVar = {"copies": ("start", "end", "kind")}
    keys = ("kind",)
    counted = "Count"
    named = (Cell("Operation", "text", "Copy, with its direction, or fill."),)

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Sequence[Any]:
        """The copies and fills."""
        return [memory_rows(rank)]

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The operation."""
        return [copy_labels(column(keys, "kind"))]


RECIPE = CudaGpuMemTimeSum()
