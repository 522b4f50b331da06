"""The report `cuda_gpu_kern_gb_sum`: GPU time of each kernel and launch configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport, launch_dims
from alltrace.recipes.stats.cuda import KERNEL_KEYS, KERNEL_OPTIONS, column, durations, kernel_columns, kernel_keys, kernel_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_DIMS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class CudaGpuKernGbSum(SumReport):
    """The time that kernels ran on GPUs, by name, grid and block."""

    name = "cuda_gpu_kern_gb_sum"
    title = "CUDA GPU Kernel/Grid/Block Summary"
    tables: ClassVar = {"kernels": ("start", "end", "name", "short_name", "mangled_name", "process", "correlation", *_DIMS)}
    options = KERNEL_OPTIONS
    keys = (*KERNEL_KEYS, *_DIMS)
    named = (
        Cell("GridXYZ", "text", "Blocks of the grid in x, y and z."),
        Cell("BlockXYZ", "text", "Threads of a block in x, y and z."),
        Cell("Name", "text", "Kernel."),
    )

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Sequence[Any]:
        """The kernels."""
        kernels = rank.table("kernels", list(dict.fromkeys(["start", "end", *kernel_columns(options), *_DIMS])))
        dims = {name: column(kernels, name) for name in _DIMS}
        return [pa.table({**kernel_keys(rank, kernels, options), **dims, VALUE: durations(kernels)})]

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """Grid, block and kernel."""
        dims = [column(keys, name) for name in _DIMS]
        return [launch_dims(*dims[:3]), launch_dims(*dims[3:]), kernel_labels(keys, run)]


RECIPE = CudaGpuKernGbSum()
