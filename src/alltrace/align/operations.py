"""When the operations of a rank ran, and which of them can be matched."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.trace.arrays import coded, integers

MATCHED_COLUMNS = (
    "start", "end", "api_start", "api_end", "wait_start", "device", "stream", "communicator", "op", "datatype", "bytes", "peer",
    "tag", "group_rank", "group_size", "sequence", "evidence",
)  # fmt: skip
"""The columns of `collectives` by which operations are matched."""

_WITH_SEQUENCE = ("trace", "log")
_HOST = "mpi"


class OperationTimes(NamedTuple):
    """When the operations of a table ran, and which of them can be members of an instance.

    Attributes:
        start: Start on the device, or of the call of an MPI operation, in the time of the rank's files, ns; -1 if unknown.
        end: End, likewise.
        matchable: Whether both are known and the operation has a name and a communicator of more than one rank, bool.
        calls_only: The number of operations that cannot be members: their kernel, end or communicator is not known.
        sequence: The profiler's sequence number, -1 without one.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    matchable: NDArray[np.bool_]
    calls_only: int
    sequence: NDArray[np.int64]


def operation_times(table: Any) -> OperationTimes:
    """When the rows of a table with `MATCHED_COLUMNS` ran."""
    words, evidence = coded(table.column("evidence"))
    on_host = _chosen(words.to_pylist(), evidence, (_HOST,))

    def either(device: str, call: str) -> NDArray[np.int64]:
        return np.where(on_host, integers(table.column(call), -1), integers(table.column(device), -1))

    timed = np.where(on_host, _both(table, "api_start", "api_end"), _both(table, "start", "end"))
    # a message is no operation of another communicator than its own
    timed &= ~(pc.is_valid(table.column("tag")).to_numpy() & pc.is_null(table.column("communicator")).to_numpy())
    several = integers(table.column("group_size"), -1) != 1
    named: NDArray[np.bool_] = pc.is_valid(table.column("op")).to_numpy()
    start, end = either("start", "api_start"), either("end", "api_end")
    sequence = np.where(_chosen(words.to_pylist(), evidence, _WITH_SEQUENCE), integers(table.column("sequence"), -1), -1)
    return OperationTimes(start, end, timed & several & named, int((~timed & several).sum()), sequence)


def _chosen(words: list[str | None], codes: NDArray[np.int64], wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.array([*(w in wanted for w in words), False])[codes]


def _both(table: Any, first: str, second: str) -> NDArray[np.bool_]:

    valid: NDArray[np.bool_] = pc.and_(pc.is_valid(table.column(first)), pc.is_valid(table.column(second))).to_numpy()
    return valid
