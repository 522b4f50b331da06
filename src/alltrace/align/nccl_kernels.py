"""Communication kernels, and copies of collectives by copy engines, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import datatype_of_kernel, operation_of_kernel
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.kernel_rules import COMMUNICATION

_COLUMNS = ["start", "end", "process", "device", "stream", "correlation"]
NOT_KNOWN = np.iinfo(np.int64).min


@dataclass
class Kernels:
    """Communication kernels and copies by start; -1 is an unknown process, device, stream, thread, operation or type."""

    start: Int64
    end: Int64
    process: Int64
    device: Int64
    stream: Int64
    thread: Int64  # that launched it
    op: Int64  # index in `ops`
    datatype: Int64  # index in `datatypes`
    api_start: Int64  # of the launching call, `NOT_KNOWN` if unknown; likewise `api_end`
    api_end: Int64
    copied: Flags  # a copy, with unknown operation and type
    exchanging: Flags  # waits for peers inside (class `exchange`)
    ops: list[str]
    datatypes: list[str]

    @property
    def count(self) -> int:
        """The number of kernels."""
        return len(self.start)


def read_kernels(rank: Rank) -> Kernels | None:
    """The communication kernels of a rank, by the kernel rules, and its copies that communicate; None if there are none."""
    parts = []
    if rank.has("kernels"):
        kernels = rank.table("kernels", [*_COLUMNS, "name", "kind"])
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


def _launches(rank: Rank, process: Int64, correlation: Int64) -> tuple[Int64, Int64, Int64]:
    """Thread, start and end of the call that launched each kernel, by process and correlation."""
    count = len(correlation)
    thread, start, end = np.full(count, -1), np.full(count, NOT_KNOWN), np.full(count, NOT_KNOWN)
    if not rank.has("api"):
        return thread, start, end
    table = rank.table("api", ["correlation", "process", "start", "end", "thread"])
    calls = integers(table.column("correlation"), -2)
    low, high = int(correlation.min()), int(correlation.max())
    near = np.flatnonzero((calls >= low) & (calls <= high))
    if high - low < 1 << 26:
        marked = np.zeros(high - low + 1, np.bool_)
        marked[correlation - low] = True
        near = near[marked[calls[near] - low]]
    else:
        near = near[np.isin(calls[near], correlation)]
    if not len(near):
        return thread, start, end
    table = table.take(pa.array(near))
    own = integers(table.column("process"), -1)
    order = np.lexsort((calls[near], own))
    pairs = _packed(own[order], calls[near][order])
    wanted = _packed(process, correlation)
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    found = pairs[at] == wanted
    rows = order[at[found]]
    thread[found] = integers(table.column("thread"), -1)[rows]
    start[found] = table.column("start").to_numpy()[rows]
    end[found] = table.column("end").fill_null(NOT_KNOWN).to_numpy()[rows]
    return thread, start, end


def _packed(process: Int64, correlation: Int64) -> Int64:
    """A process row and a correlation, which CUPTI counts in 32 bits, as one number that sorts like the pair."""
    packed: Int64 = (process << 33) + correlation
    return packed
