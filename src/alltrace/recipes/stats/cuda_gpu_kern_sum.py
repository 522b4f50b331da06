"""The report `cuda_gpu_kern_sum`: GPU time of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.collecting import in_pieces
from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import KERNEL_KEYS, KERNEL_OPTIONS, durations, kernel_columns, kernel_keys, kernel_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class CudaGpuKernSum(SumReport):
    """The time that kernels ran on GPUs, by name."""

    name = "cuda_gpu_kern_sum"
    title = "CUDA GPU Kernel Summary"
    tables: ClassVar = {"kernels": ("start", "end", "name", "short_name", "mangled_name", "process", "correlation")}
    options = KERNEL_OPTIONS
    keys = KERNEL_KEYS
    named = (Cell("Name", "text", "Kernel."),)

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The kernels."""
        columns = list(dict.fromkeys(["start", "end", *kernel_columns(options)]))
        # ranges are found for all kernels at once
        pieces = [rank.table("kernels", columns)] if options.get("nvtx_name") else in_pieces(rank, "kernels", columns, lengths=True)
        for kernels in pieces:
            yield pa.table({**kernel_keys(rank, kernels, options), VALUE: durations(kernels)})

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The kernel."""
        return [kernel_labels(keys, run)]


RECIPE = CudaGpuKernSum()
