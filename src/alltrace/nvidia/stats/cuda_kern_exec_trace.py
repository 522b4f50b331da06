"""The report `cuda_kern_exec_trace`: every kernel with its launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import Cell, TraceReport, launch_dims
from alltrace.nvidia.stats.cuda import KERNEL_OPTIONS, call_texts, kernel_keys, kernel_texts
from alltrace.nvidia.stats.cuda_exec import API_TABLE, KERNEL_TABLE, executions
from alltrace.recipes.analysis.lookups import column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import Option, RankTables

_DIMS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class CudaKernExecTrace(TraceReport):
    """Every kernel with a known launch: the call, the wait in the queue, the execution; in the order of the calls."""

    name = "cuda_kern_exec_trace"
    title = "CUDA Kernel Launch & Exec Time Trace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": (*KERNEL_TABLE, *_DIMS), "api": API_TABLE}
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("kernels", "api")
    options: ClassVar[tuple[Option, ...]] = KERNEL_OPTIONS
    by_call: ClassVar[tuple[str, ...]] = ("kernels",)
    order = "API Start"
    height = "Total Dur"
    called = "API Function"
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("API Start", "time", "Start of the call that launched the kernel."),
        Cell("API Dur", "time", "Length of the call."),
        Cell("Queue Start", "time", "End of the call; empty if the kernel started before."),
        Cell("Queue Dur", "time", "From there to the start of the kernel."),
        Cell("Kernel Start", "time", "Start of the kernel."),
        Cell("Kernel Dur", "time", "Length of the kernel."),
        Cell("Total Dur", "time", "From the start of the call to the end of call or kernel, whichever is later."),
        Cell("PID", "int", "Process that made the call."),
        Cell("TID", "int", "Thread that made the call."),
        Cell("DevId", "int", "CUDA ordinal of the GPU."),
        Cell("API Function", "text", "Function called."),
        Cell("GridXYZ", "text", "Blocks of the grid in x, y and z."),
        Cell("BlockXYZ", "text", "Threads of a block in x, y and z."),
        Cell("Kernel Name", "text", "Kernel."),
    )

    def is_event_wise(self, options: Mapping[str, Any]) -> bool:
        """A row is a call and its kernel, but for the range around the call."""
        return not options.get("nvtx_name")

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The kernels of one rank."""
        kernels, phases = executions(rank, options, _DIMS)
        dims = [column(kernels, name) for name in _DIMS]
        waited = pc.is_valid(phases.column("queue_ns"))
        called = pc.add(phases.column("api_start"), phases.column("api_ns"))
        return pa.table(
            {
                "API Start": phases.column("api_start"),
                "API Dur": phases.column("api_ns"),
                "Queue Start": pc.if_else(waited, called, None),
                "Queue Dur": phases.column("queue_ns"),
                "Kernel Start": phases.column("kernel_start"),
                "Kernel Dur": phases.column("kernel_ns"),
                "Total Dur": phases.column("total_ns"),
                "PID": phases.column("pid"),
                "TID": phases.column("tid"),
                "DevId": phases.column("device"),
                "API Function": call_texts(column(phases, "api"), rank),
                "GridXYZ": launch_dims(*dims[:3]),
                "BlockXYZ": launch_dims(*dims[3:]),
                "Kernel Name": kernel_texts(kernel_keys(rank, kernels, options), rank),
            }
        )


RECIPE = CudaKernExecTrace()
