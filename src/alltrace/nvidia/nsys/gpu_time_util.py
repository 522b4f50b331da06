"""The recipe `gpu_time_util`: when a GPU had little to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.nsys.base import Cell
from alltrace.nvidia.nsys.gpu_work import PLACE, READS, gpu_work
from alltrace.nvidia.nsys.rule import Rule
from alltrace.recipes.base import Chart, Option
from alltrace.trace.intervals import bin_load_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables

_MOST_CHUNKS = 1000


class GpuTimeUtil(Rule):
    """Times in which a GPU was used less than a limit, the least used first.

    The time from a process' first operation on a GPU to its last is cut into chunks of equal length, the last as short as it must
    be. A chunk's use is the time of all operations in it, added up, so it can be above 100 %; the profiler's own overhead counts as
    an operation. Neighbouring chunks below the limit become one, with their mean.
    """

    name = "gpu_time_util"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = READS
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = (("kernels", "copies", "graphs"),)
    settings: ClassVar[tuple[Option, ...]] = (
        Option("threshold", int, 50, "Report chunks with a use below this; %.", least=0),
        Option("chunks", int, 30, "Chunks of the time of a process on a GPU, at most 1000.", least=1, most=_MOST_CHUNKS),
    )
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Row#", "int", "Its place among its rank's."),
        Cell("In-Use", "percent", "Time of operations over the time.", half_up=True),
        Cell("Duration", "ns", "How long it is."),
        Cell("Start", "ns", "When it begins."),
        *PLACE,
    )
    order: ClassVar[tuple[tuple[str, str], ...]] = (("In-Use", "ascending"), ("Duration", "descending"), ("Start", "ascending"))
    chart: ClassVar[Chart | None] = Chart("scatter", "Start", ("In-Use",), "File")
    advice = "Little of the GPU's time is used here: look for what the CPU did meanwhile, and for work that could run at once."
    none = "No GPU was used less than the limit in any part of its time."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The coalesced chunks."""
        found = [_SCHEMA.empty_table()]
        for work in gpu_work(rank):
            first, last = int(work.start[0]), int(work.end.max())
            length = -(-(last - first) // options["chunks"])
            if length <= 0:  # without length, or of a kernel that ends before it starts
                continue
            edges = np.append(np.arange(first, last, length), last)
            chunk = np.diff(edges)
            used = 100.0 * bin_load_ns(work.start, work.end, edges) / chunk
            low = used < options["threshold"]
            begins = np.flatnonzero(low & ~np.concatenate(([False], low[:-1])))
            ends = np.flatnonzero(low & ~np.concatenate((low[1:], [False])))
            weights = np.concatenate(([0.0], np.cumsum(used * chunk)))
            took = edges[ends + 1] - edges[begins]
            use = (weights[ends + 1] - weights[begins]) / took
            found.append(work.rows({"In-Use": use, "Duration": took, "Start": edges[begins]}))
        return pa.concat_tables(found)


_SCHEMA = pa.schema([("In-Use", pa.float64()), *((t, pa.int64()) for t in ("Duration", "Start", "PID", "Device ID", "Context ID"))])

RECIPE = GpuTimeUtil()
