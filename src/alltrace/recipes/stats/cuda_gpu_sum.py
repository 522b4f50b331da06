"""The report `cuda_gpu_sum`: time of kernels, copies and fills on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import (
    CATEGORY,
    KERNEL_KEYS,
    KERNEL_OPTIONS,
    call_labels,
    column,
    copy_labels,
    kernel_labels,
    memory_rows,
)
from alltrace.recipes.stats.cuda_gpu_kern_sum import CudaGpuKernSum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

CATEGORIES = ("CUDA_API", "CUDA_KERNEL", "MEMORY_OPER")
API, KERNEL, MEMORY = range(3)


class CudaGpuSum(SumReport):
    """The time of kernels, copies and fills on GPUs, by name."""

    name = "cuda_gpu_sum"
    title = "CUDA GPU Summary (Kernels/MemOps)"
    tables: ClassVar = {**CudaGpuKernSum.tables, "copies": ("start", "end", "kind")}
    options = KERNEL_OPTIONS
    keys = ("category", *KERNEL_KEYS, "kind")
    named = (CATEGORY, Cell("Operation", "text", "Kernel, copy or fill."))
    ties = ("Operation", "Category")

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The kernels, copies and fills."""
        for kernels in CudaGpuKernSum().rows(rank, options):
            yield self.typed(KERNEL, kernels)
        yield self.typed(MEMORY, memory_rows(rank))

    def typed(self, category: int, events: Any) -> Any:
        """Events with all of `keys`: the category, and null for a key that the events do not have."""
        n = events.num_rows
        kind = column(events, "kind") if "kind" in events.column_names else pa.nulls(n, pa.dictionary(pa.int32(), pa.string()))
        known = {name: column(events, name) for name in events.column_names}
        ids = {name: known.get(name, pa.nulls(n, pa.int64())) for name in KERNEL_KEYS}
        return pa.table({"category": pa.array(np.full(n, category, np.int8)), **ids, "kind": kind, "value": known["value"]})

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The category and the operation."""
        category = column(keys, "category")
        name = kernel_labels(keys, run)
        name = pc.if_else(pc.equal(category, API), call_labels(name), name)
        return [pa.array(CATEGORIES).take(category), pc.coalesce(copy_labels(column(keys, "kind")), name)]


RECIPE = CudaGpuSum()
