"""What ran on each GPU of a rank, with what the profiler itself took: the ground of `gpu_gaps` and `gpu_time_util`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.nvidia.nsys.base import Cell
from alltrace.recipes.analysis.lookups import look_up
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import by_track

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alltrace.recipes.base import RankTables
    from alltrace.trace.arrays import Int64

READS: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "process", "device", "context"),
    "copies": ("start", "end", "process", "device", "context"),
    "graphs": ("start", "end", "process", "device", "context"),
    "overheads": ("start", "end", "process", "name"),
}
PLACE = (
    Cell("PID", "int", "Process id."),
    Cell("Device ID", "int", "CUDA ordinal of the GPU."),
    Cell("Context ID", "int", "CUDA context."),
)
_OVERHEADS = frozenset({"CUDA profiling data flush overhead", "CUDA profiling stop overhead", "CUDA profiling overhead"})
"""Names of the overheads that keep a GPU from work, as nsys writes them."""


@dataclass(frozen=True)
class GpuWork:
    """What kept one GPU busy for one process.

    Attributes:
        pid: The process' id.
        device: The GPU's CUDA ordinal, as nsys numbers it.
        context: The context of the first operation.
        start: Starts, ascending; ns.
        end: Ends.
    """

    pid: int | None
    device: int | None
    context: int | None
    start: Int64
    end: Int64

    def rows(self, columns: Mapping[str, Any]) -> Any:
        """A table of `columns`, arrays of one length by title, and those of `PLACE`."""
        table = pa.table(dict(columns))
        for cell, value in zip(PLACE, (self.pid, self.device, self.context), strict=True):
            table = table.append_column(cell.title, pa.array([value] * table.num_rows, pa.int64()))
        return table


def gpu_work(rank: RankTables) -> Iterator[GpuWork]:
    """What ran on each GPU for each process, and the profiler's own overhead within that: kernels, copies, fills, whole graphs."""
    tables = [rank.table(name, READS[name]) for name in ("kernels", "copies", "graphs")]
    whole = pa.concat_tables(tables).combine_chunks()
    if not whole.num_rows:
        return
    process, device, start, end = (integers(whole.column(c), -1) for c in ("process", "device", "start", "end"))
    lost = _overheads(rank)
    order = np.lexsort((end, start, device, process))
    process, device, start, end = process[order], device[order], start[order], end[order]
    context = integers(whole.column("context"), -1)[order]
    processes, devices = rank.table("processes", ["process", "pid"]), rank.table("devices", ["device", "ordinal"])
    for (owner, gpu), rows in by_track(process, device):
        begin, close = start[rows], end[rows]
        mine = lost[0] == owner
        inside = mine & (lost[1] >= begin[0]) & (lost[2] <= close.max())
        begin, close = np.concatenate((begin, lost[1][inside])), np.concatenate((close, lost[2][inside]))
        by_start = np.argsort(begin, kind="stable")
        first = int(context[rows][0])
        yield GpuWork(
            look_up(processes, "pid", pa.array([owner])).to_pylist()[0],
            look_up(devices, "ordinal", pa.array([gpu])).to_pylist()[0],
            None if first < 0 else first,
            begin[by_start],
            close[by_start],
        )


def _overheads(rank: RankTables) -> tuple[Int64, Int64, Int64]:
    """Process, start and end of the profiler's overheads that count."""
    table = rank.table("overheads", READS["overheads"])
    texts = rank.texts(table.column("name").combine_chunks()).to_pylist() if table.num_rows else []
    rows = np.array([i for i, t in enumerate(texts) if t in _OVERHEADS], np.int64)
    process, start, end = (integers(table.column(c), -1)[rows] for c in ("process", "start", "end"))
    return process, start, end
