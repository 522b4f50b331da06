"""The report `cuda_gpu_trace`: every kernel, copy and fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import Cell, TraceReport, stack
from alltrace.nvidia.stats.cuda import (
    KERNEL_OPTIONS,
    MEMORY_LABELS,
    copy_labels,
    durations,
    kernel_columns,
    kernel_keys,
    kernel_texts,
    relabel,
)
from alltrace.recipes.analysis.lookups import column, look_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import Option, RankTables

_PLACE = ("start", "end", "correlation", "device", "context", "green_context", "stream")
_DIMS = {"GrdX": "grid_x", "GrdY": "grid_y", "GrdZ": "grid_z", "BlkX": "block_x", "BlkY": "block_y", "BlkZ": "block_z"}
_KERNEL = {**_DIMS, "Reg/Trd": "registers", "StcSMem": "static_shared_memory", "DymSMem": "dynamic_shared_memory"}
_COPY = ("kind", "bytes", "src_kind", "dst_kind")


class CudaGpuTrace(TraceReport):
    """Every kernel, copy and fill on GPUs, in the order of their starts."""

    name = "cuda_gpu_trace"
    title = "CUDA GPU Trace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": (*_PLACE, "process", "name", "short_name", "mangled_name", *_KERNEL.values()),
        "copies": (*_PLACE, *_COPY),
    }
    options: ClassVar[tuple[Option, ...]] = KERNEL_OPTIONS
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Start", "time", "Start."),
        Cell("Duration", "time", "Length."),
        Cell("CorrId", "int", "Correlation id: joins the work and the call that launched it."),
        Cell("GrdX", "int", "Blocks of the grid in x."),
        Cell("GrdY", "int", "Blocks of the grid in y."),
        Cell("GrdZ", "int", "Blocks of the grid in z."),
        Cell("BlkX", "int", "Threads of a block in x."),
        Cell("BlkY", "int", "Threads of a block in y."),
        Cell("BlkZ", "int", "Threads of a block in z."),
        Cell("Reg/Trd", "int", "Registers per thread."),
        Cell("StcSMem", "size", "Static shared memory per block."),
        Cell("DymSMem", "size", "Dynamic shared memory per block."),
        Cell("Bytes", "size", "Size of a copy or fill."),
        Cell("Throughput", "throughput", "Bytes times the whole number of such operations that fit in a second."),
        Cell("SrcMemKd", "text", "Kind of memory copied from, or filled."),
        Cell("DstMemKd", "text", "Kind of memory copied to."),
        Cell("Device", "text", "Name of the GPU and its CUDA ordinal."),
        Cell("Ctx", "int", "CUDA context id."),
        Cell("GreenCtx", "int", "CUDA green context id."),
        Cell("Strm", "int", "CUDA stream id."),
        Cell("Name", "text", "Kernel, copy or fill."),
    )

    def is_event_wise(self, options: Mapping[str, Any]) -> bool:
        """A kernel is its own row; only the range around its launch comes from the call."""
        return not options.get("nvtx_name")

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The kernels of one rank, then its copies, then its fills."""
        names = list(dict.fromkeys([*_PLACE, *kernel_columns(options), *_KERNEL.values()]))
        kernels = rank.table("kernels", names)
        copies = rank.table("copies", [*_PLACE, *_COPY])
        fill = pc.fill_null(pc.equal(column(copies, "kind").cast(pa.string()), "memset"), fill_value=False)
        copies = copies.take(pa.array(np.argsort(fill.to_numpy(zero_copy_only=False), kind="stable")))
        devices = _devices(rank)
        tables = [self._kernels(rank, kernels, devices, options), self._copies(copies, devices)]
        titles = [cell.title for cell in self.cells]
        return stack([t.select(titles) for t in tables if t.num_rows] or [tables[0].select(titles)])

    def _kernels(self, rank: RankTables, kernels: Any, devices: Any, options: Mapping[str, Any]) -> Any:
        n = kernels.num_rows
        nothing = pa.nulls(n, pa.int64())
        no_text = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int32()), pa.array([], pa.string()))
        return pa.table(
            {
                **_place(kernels, devices),
                **{title: column(kernels, name).cast(pa.int64()) for title, name in _KERNEL.items()},
                "Bytes": nothing,
                "Throughput": pa.nulls(n, pa.float64()),
                "SrcMemKd": no_text,
                "DstMemKd": no_text,
                "Name": kernel_texts(kernel_keys(rank, kernels, options), rank),
            }
        )

    def _copies(self, copies: Any, devices: Any) -> Any:
        n = copies.num_rows
        kind = column(copies, "kind")
        fill = pc.fill_null(pc.equal(kind.cast(pa.string()), "memset"), fill_value=False)
        source, target = (column(copies, c).cast(pa.string()) for c in ("src_kind", "dst_kind"))
        size = column(copies, "bytes")
        return pa.table(
            {
                **_place(copies, devices),
                **dict.fromkeys(_KERNEL, pa.nulls(n, pa.int64())),
                "Bytes": size,
                "Throughput": _throughput(size, durations(copies)),
                "SrcMemKd": relabel(pc.if_else(fill, target, source), MEMORY_LABELS),
                "DstMemKd": relabel(pc.if_else(fill, None, target), MEMORY_LABELS),
                "Name": _operations(kind),
            }
        )


def _place(events: Any, devices: Any) -> dict[str, Any]:
    green = column(events, "green_context").cast(pa.int64())
    return {
        "Start": column(events, "start"),
        "Duration": durations(events),
        "CorrId": column(events, "correlation"),
        "Device": look_up(devices, "label", column(events, "device")).dictionary_encode(),
        "Ctx": column(events, "context").cast(pa.int64()),
        "GreenCtx": pc.if_else(pc.equal(green, 0), None, green),  # 0 is the whole context
        "Strm": column(events, "stream"),
    }


def _devices(rank: RankTables) -> Any:
    """The rank's devices with what nsys calls them: `NVIDIA A100-SXM4-40GB (0)`, or ` (0)` without a name."""
    devices = rank.table("devices", ["device", "ordinal", "name"])
    names = pc.fill_null(rank.texts(column(devices, "name")), "")
    ordinals = column(devices, "ordinal").cast(pa.string())
    labels = pc.binary_join_element_wise(names, pc.binary_join_element_wise("(", ordinals, ")", ""), " ")
    return pa.table({"device": column(devices, "device"), "label": labels})


def _operations(kinds: Any) -> Any:
    """The names of copies and fills, a dictionary array."""
    encoded = kinds if pa.types.is_dictionary(kinds.type) else kinds.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int32()), copy_labels(encoded.dictionary))


def _throughput(size: Any, duration: Any) -> Any:
    """Bytes per second as nsys computes it: bytes * floor(1e9 / ns); null for an operation that took no time."""
    took = pc.if_else(pc.greater(duration, 0), duration, None)
    return pc.multiply(
        size.cast(pa.float64(), safe=False), pc.divide(pa.scalar(1_000_000_000, pa.int64()), took).cast(pa.float64())
    )


RECIPE = CudaGpuTrace()
