"""Communication kernels, and copies of collectives by copy engines, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.align.nccl_names import datatype_of_kernel, operation_of_kernel
from alltrace.run.collecting import file_pieces
from alltrace.run.launch_matching import Operations
from alltrace.run.rank import Rank
from alltrace.trace.arrays import coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.kernel_rules import COMMUNICATION

_COLUMNS = ["start", "end", "process", "device", "stream", "correlation"]
NOT_KNOWN = np.iinfo(np.int64).min


@dataclass
class Kernels:
    """Communication kernels and copies by start; -1 is an unknown process, device, stream, thread, operation or type.

    Attributes:
        start: ns; likewise `end`.
        process: Row of `processes`; likewise `device`, `thread` (that launched it).
        stream: CUDA stream.
        op: Index in `ops`.
        datatype: Index in `datatypes`.
        api_start: Start of the launching call, `NOT_KNOWN` if unknown; likewise `api_end`.
        copied: Whether it is a copy, with unknown operation and type, bool.
        exchanging: Whether it waits for peers inside (class `exchange`), bool.
        ops: Names of operations.
        datatypes: Names of types.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    process: NDArray[np.int64]
    device: NDArray[np.int64]
    stream: NDArray[np.int64]
    thread: NDArray[np.int64]
    op: NDArray[np.int64]
    datatype: NDArray[np.int64]
    api_start: NDArray[np.int64]
    api_end: NDArray[np.int64]
    copied: NDArray[np.bool_]
    exchanging: NDArray[np.bool_]
    ops: list[str]
    datatypes: list[str]

    @property
    def count(self) -> int:
        """The number of kernels."""
        return len(self.start)


def read_kernels(rank: Rank) -> Kernels | None:
    """The communication kernels of a rank, by the kernel rules, and its copies that communicate; None if there are none."""
    parts = []
    for kernels in file_pieces(rank, "kernels", [*_COLUMNS, "name", "kind"]) if rank.has("kernels") else ():
        keep = is_one_of(kernels.column("kind"), COMMUNICATION)
        if keep.any():
            kernels = kernels.filter(pa.array(keep))
            exchanging = pa.array(is_one_of(kernels.column("kind"), (EXCHANGE,)))
            parts.append(_marked(kernels.drop_columns("kind"), copied=False, exchanging=exchanging))
    if rank.has("copies"):
        copies = rank.table("copies", [*_COLUMNS, "collective"])
        keep = is_true(copies.column("collective"))
        if keep.any():
            copies = copies.drop_columns("collective").filter(pa.array(keep))
            copies = copies.append_column("name", pa.nulls(copies.num_rows, pa.int64()))
            parts.append(_marked(copies, copied=True, exchanging=pa.array(np.zeros(copies.num_rows, np.bool_))))
    if not parts:
        return None
    table = pa.concat_tables(parts)
    table = table.filter(pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("end"))))
    table = table.take(pc.sort_indices(table.column("start"))).combine_chunks()
    ids, at = coded(table.column("name"))
    texts = rank.texts(ids).to_pylist()
    named = [operation_of_kernel(t) for t in texts]
    types = [datatype_of_kernel(t, o) for t, o in zip(texts, named, strict=True)]
    ops, datatypes = (sorted({v for v in values if v is not None}) for values in (named, types))
    op = np.array([*(ops.index(o) if o is not None else -1 for o in named), -1], np.int64)[at]
    datatype = np.array([*(datatypes.index(t) if t is not None else -1 for t in types), -1], np.int64)[at]
    process, device, stream, correlation = (integers(table.column(c), -1) for c in ("process", "device", "stream", "correlation"))
    thread, api_start, api_end = _launches(rank, process, correlation)
    start, end = table.column("start").to_numpy(), table.column("end").to_numpy()
    copied, exchanging = (is_true(table.column(c)) for c in ("copied", "exchanging"))
    return Kernels(
        start, end, process, device, stream, thread, op, datatype, api_start, api_end, copied, exchanging, ops, datatypes
    )


def _marked(table: pa.Table, *, copied: bool, exchanging: pa.Array) -> pa.Table:
    table = table.append_column("copied", pa.array(np.full(table.num_rows, copied)))
    return table.append_column("exchanging", exchanging)


def _launches(
    rank: Rank, process: NDArray[np.int64], correlation: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Thread, start and end of the call that launched each kernel, by process and correlation."""
    count = len(correlation)
    thread, start, end = np.full(count, -1), np.full(count, NOT_KNOWN), np.full(count, NOT_KNOWN)
    nulls = int((process < 0).any())  # a call without a process launched work without one
    operations = Operations(process + nulls, correlation)
    known = np.zeros(count, np.bool_)
    for calls in file_pieces(rank, "api", ("process", "correlation", "thread", "start", "end")) if rank.has("api") else ():
        rows, many, own = operations.of(integers(calls.column("process"), -1) + nulls, integers(calls.column("correlation"), -1))
        at = rows if many is None else np.repeat(rows, many)
        fresh = ~known[own][::-1]  # of several calls the first counts, which is written last
        to, of = own[::-1][fresh], at[::-1][fresh]
        for values, column, null in ((thread, "thread", -1), (start, "start", NOT_KNOWN), (end, "end", NOT_KNOWN)):
            values[to] = integers(calls.column(column), null)[of]
        known[own] = True
    return thread, start, end
