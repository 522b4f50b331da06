"""The recipe `cuda_api_sync`: calls that wait for the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.cuda_copies import like
from alltrace.recipes.nsys.rule import Rule
from alltrace.recipes.stats.cuda import as_text, column, durations
from alltrace.recipes.stats.nvtx_stack import pids_and_tids
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class CudaApiSync(Rule):
    """Calls that wait for a whole device or a stream, the longest first: cudaDeviceSynchronize and cudaStreamSynchronize."""

    name = "cuda_api_sync"
    device = False
    tables: ClassVar = {"api": ("start", "end", "thread", "name")}
    cells = (
        Cell("Duration", "ns", "How long the thread waited."),
        Cell("Start", "ns", "When it began to."),
        Cell("PID", "int", "Process id."),
        Cell("TID", "int", "Thread id."),
        Cell("API Name", "text", "Call."),
    )
    chart = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Wait for less, and later: for an event (cudaEventSynchronize, cudaStreamWaitEvent) in place of a stream, and for a stream "
        "in place of a device."
    )
    none = "No call waited for a whole device or stream."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The calls."""
        api = rank.table("api", self.tables["api"])
        api = api.filter(pc.and_(api.column("thread").is_valid(), api.column("end").is_valid()))
        names = as_text(column(api, "name"), rank)
        waits = pc.or_(*(like(names.dictionary, start) for start in ("cudaDeviceSynchronize", "cudaStreamSynchronize")))
        api = api.filter(pc.fill_null(waits.take(names.indices), fill_value=False))
        pid, tid = pids_and_tids(rank, integers(api.column("thread")))
        return pa.table(
            {
                "Duration": durations(api),
                "Start": api.column("start"),
                "PID": pid,
                "TID": tid,
                "API Name": rank.texts(column(api, "name")),
            }
        )


RECIPE = CudaApiSync()
