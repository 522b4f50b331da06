"""The recipe `gpu_gaps`: when a GPU had nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.nsys.base import Cell
from alltrace.nvidia.nsys.gpu_work import PLACE, READS, gpu_work
from alltrace.nvidia.nsys.rule import Rule
from alltrace.recipes.base import Chart, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables

_NS_PER_MS = 1_000_000


class GpuGaps(Rule):
    """Times in which a GPU had no work of a process for longer than a limit, the longest first.

    Covers the time from the start of the process' first kernel, copy or fill on the GPU to the end of its last. The profiler's own
    overhead within counts as work.
    """

    name = "gpu_gaps"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = READS
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = (("kernels", "copies", "graphs"),)
    settings: ClassVar[tuple[Option, ...]] = (Option("gap", int, 500, "Gaps longer than this; ms.", least=0),)
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Row#", "int", "Its place among its rank's."),
        Cell("Duration", "ns", "How long it is."),
        Cell("Start", "ns", "When it begins."),
        *PLACE,
    )
    chart: ClassVar[Chart | None] = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Before each gap, look for what the CPU did: a blocking call, input and output, or work that could overlap; "
        "`alltrace gaps` says what filled the gaps of each rank."
    )
    none = "No GPU was without work for longer than the limit between its first and its last operation."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The gaps."""
        found = []
        for work in gpu_work(rank):
            reach = np.maximum.accumulate(work.end)
            length = work.start[1:] - reach[:-1]
            at = np.flatnonzero(length > options["gap"] * _NS_PER_MS)
            found.append(work.rows({"Duration": length[at], "Start": reach[at]}))
        return pa.concat_tables([_SCHEMA.empty_table(), *found])


_SCHEMA = pa.schema([(t, pa.int64()) for t in ("Duration", "Start", "PID", "Device ID", "Context ID")])

RECIPE = GpuGaps()
