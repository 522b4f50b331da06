"""When the operations of a rank ran, and which of them can be matched."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from alltrace.trace.arrays import Flags, Int64, integers, is_one_of

MATCHED_COLUMNS = (
    "start", "end", "api_start", "api_end", "wait_start", "device", "stream", "communicator", "op", "datatype", "bytes", "peer",
    "tag", "group_rank", "group_size", "sequence", "evidence",
)  # fmt: skip
"""The columns of `collectives` by which operations are matched."""

_WITH_SEQUENCE = ("trace", "log")


class OperationTimes(NamedTuple):
    """When the operations of a table ran, on the device or as calls of MPI, and which can be members of an instance."""

    start: Int64  # in the time of the rank's files, ns, -1 if unknown; likewise `end`
    end: Int64
    matchable: Flags  # both are known and the operation has a name and a communicator of more than one rank
    calls_only: int  # operations that cannot be members: their kernel, end or communicator is not known
    sequence: Int64  # the profiler's number, -1 without one


def operation_times(table: Any) -> OperationTimes:
    """When the rows of a table with `MATCHED_COLUMNS` ran."""
    on_host = is_one_of(table.column("evidence"), ("mpi",))

    def either(device: str, call: str) -> Int64:
        return np.where(on_host, integers(table.column(call), -1), integers(table.column(device), -1))

    known = {name: pc.is_valid(table.column(name)).to_numpy() for name in ("start", "end", "api_start", "api_end")}
    timed = np.where(on_host, known["api_start"] & known["api_end"], known["start"] & known["end"])
    # a message is no operation of another communicator than its own
    timed &= ~(pc.is_valid(table.column("tag")).to_numpy() & pc.is_null(table.column("communicator")).to_numpy())
    several = integers(table.column("group_size"), -1) != 1
    named: Flags = pc.is_valid(table.column("op")).to_numpy()
    start, end = either("start", "api_start"), either("end", "api_end")
    sequence = np.where(is_one_of(table.column("evidence"), _WITH_SEQUENCE), integers(table.column("sequence"), -1), -1)
    return OperationTimes(start, end, timed & several & named, int((~timed & several).sum()), sequence)
