"""The report `cuda_api_trace`: every CUDA call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.nvidia.stats.base import Cell, TraceReport
from alltrace.nvidia.stats.cuda import call_texts, durations
from alltrace.recipes.analysis.lookups import as_text, column, look_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class CudaApiTrace(TraceReport):
    """Every call of the CUDA runtime and driver, in the order of their starts."""

    name = "cuda_api_trace"
    title = "CUDA API Trace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "api": ("start", "end", "name", "return_value", "correlation", "process", "thread")
    }
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Start", "time", "Start of the call."),
        Cell("Duration", "time", "Its length."),
        Cell("Name", "text", "Function."),
        Cell("Result", "int", "Return value, a CUDA error code."),
        Cell("CorrID", "int", "Correlation id: joins a call and the GPU work it launched."),
        Cell("Pid", "int", "Process that made the call."),
        Cell("Tid", "int", "Thread that made the call."),
        Cell("T-Pri", "int", "Scheduling priority of the thread."),
        Cell("Thread Name", "text", "Name of the thread."),
    )

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The calls of one rank."""
        api = rank.table("api", self.tables["api"])
        threads = rank.table("threads")
        thread = column(api, "thread")
        return pa.table(
            {
                "Start": column(api, "start"),
                "Duration": durations(api),
                "Name": call_texts(column(api, "name"), rank),
                "Result": column(api, "return_value"),
                "CorrID": column(api, "correlation"),
                "Pid": look_up(rank.table("processes"), "pid", column(api, "process")),
                "Tid": look_up(threads, "tid", thread),
                "T-Pri": look_up(threads, "priority", thread),
                "Thread Name": as_text(look_up(threads, "name", thread), rank),
            }
        )


RECIPE = CudaApiTrace()
