"""The report `mpi_event_trace`: every MPI event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import Cell, TraceReport
from alltrace.nvidia.stats.host import timed
from alltrace.nvidia.stats.nvtx_stack import pids_and_tids
from alltrace.recipes.analysis.lookups import as_text, column
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import Option, RankTables


class MpiEventTrace(TraceReport):
    """Every MPI event as recorded: a wait for n requests is n rows, a send-receive is two, of which the sending has no length."""

    name = "mpi_event_trace"
    title = "MPI Event Trace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mpi": ("start", "end", "thread", "name", "kind", "tag", "peer", "root", "bytes", "recv_bytes")
    }
    options: ClassVar[tuple[Option, ...]] = ()
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Start", "time", "Start."),
        Cell("End", "time", "End."),
        Cell("Duration", "time", "Length."),
        Cell("Event", "text", "Function."),
        Cell("Pid", "int", "Process id."),
        Cell("Tid", "int", "Thread id."),
        Cell("Tag", "int", "Message tag."),
        Cell("Rank", "int", "Rank."),
        Cell("PeerRank", "int", "Other rank of a point-to-point call, in the communicator's numbering."),
        Cell("RootRank", "int", "Root of a collective, in the communicator's numbering."),
        Cell("Size", "size", "Bytes of a point-to-point message."),
        Cell("CollSendSize", "size", "Bytes sent by a collective."),
        Cell("CollRecvSize", "size", "Bytes received by a collective."),
    )
    called = "Event"

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's events."""
        events = timed(rank.table("mpi", self.tables["mpi"]))
        pid, tid = pids_and_tids(rank, integers(events.column("thread")))
        collective = pc.equal(column(events, "kind").cast(pa.string()), "collective")
        size = column(events, "bytes")
        return pa.table(
            {
                "Start": events.column("start"),
                "End": events.column("end"),
                "Duration": events.column("value"),
                "Event": as_text(column(events, "name"), rank),
                "Pid": pid,
                "Tid": tid,
                "Tag": events.column("tag"),
                "Rank": np.full(events.num_rows, rank.rank, np.int64),
                "PeerRank": events.column("peer").cast(pa.int64()),
                "RootRank": events.column("root").cast(pa.int64()),
                "Size": pc.if_else(collective, None, size),
                "CollSendSize": pc.if_else(collective, size, None),
                "CollRecvSize": events.column("recv_bytes"),
            }
        )


RECIPE = MpiEventTrace()
