"""The report `cuda_gpu_mem_size_sum`: bytes of copies and fills on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import column, copy_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class CudaGpuMemSizeSum(SumReport):
    """The bytes of copies and fills on GPUs, by direction."""

    name = "cuda_gpu_mem_size_sum"
    title = "CUDA GPU MemOps Summary (by Size)"
    tables: ClassVar = {"copies": ("kind", "bytes")}
    keys = ("kind",)
    counted = "Count"
    named = (Cell("Operation", "text", "Copy, with its direction, or fill."),)
    sizes = True

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Sequence[Any]:
        """The copies and fills whose size is known."""
        copies = rank.table("copies", self.tables["copies"])
        copies = copies.filter(pc.is_valid(copies.column("bytes")))
        return [pa.table({"kind": column(copies, "kind"), VALUE: column(copies, "bytes")})]

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The operation."""
        return [copy_labels(column(keys, "kind"))]


RECIPE = CudaGpuMemSizeSum()
