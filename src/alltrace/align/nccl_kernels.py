"""Communication kernels, and copies of collectives by copy engines, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import datatype_of_kernel, numbered, operation_of_kernel
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.kernel_rules import COMMUNICATION

_COLUMNS = ["start", "end", "process", "device", "stream", "correlation"]
NOT_KNOWN = np.iinfo(np.int64).min


@dataclass
class Kernels:
    """Communication kernels and copies by start; -1 is unknown, of times `NOT_KNOWN`."""

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


def read_kernels(rank: Rank) -> Kernels:
    """The communication kernels of a rank, by the kernel rules, and its copies that communicate."""
    kernels, copies = rank.table("kernels", [*_COLUMNS, "name", "kind"]), rank.table("copies", [*_COLUMNS, "collective"])
    kind, no_name = kernels.column("kind"), pa.nulls(copies.num_rows, kernels.schema.field("name").type)
    parts = (
        (kernels.drop_columns("kind"), is_one_of(kind, COMMUNICATION), is_one_of(kind, (EXCHANGE,))),
        (copies.drop_columns("collective").append_column("name", no_name), is_true(copies.column("collective")), None),
    )
    tables = []
    for table, communicates, exchanging in parts:
        for name, flags in (("copied", exchanging is None), ("exchanging", exchanging if exchanging is not None else False)):
            table = table.append_column(name, pa.array(np.broadcast_to(flags, table.num_rows)))
        timed = pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("end")))
        tables.append(table.filter(pc.and_(timed, pa.array(communicates))))
    table = pa.concat_tables(tables)
    table = table.take(pc.sort_indices(table.column("start"))).combine_chunks()
    ids, at = coded(table.column("name"))
    texts = rank.texts(ids).to_pylist()
    named = [operation_of_kernel(t) for t in texts]
    ops, op = numbered(named)
    datatypes, datatype = numbered([datatype_of_kernel(t, o) for t, o in zip(texts, named, strict=True)])
    process, device, stream, correlation = (integers(table.column(c), -1) for c in ("process", "device", "stream", "correlation"))
    thread, api_start, api_end = _launches(rank, process, correlation)
    start, end = table.column("start").to_numpy(), table.column("end").to_numpy()
    copied, exchanging = (is_true(table.column(c)) for c in ("copied", "exchanging"))
    return Kernels(
        start, end, process, device, stream, thread, op[at], datatype[at], api_start, api_end, copied, exchanging, ops, datatypes
    )


def _launches(rank: Rank, process: Int64, correlation: Int64) -> tuple[Int64, Int64, Int64]:
    """Thread, start and end of the call that launched each kernel, by process and correlation."""
    count = len(correlation)
    thread, start, end = np.full(count, -1), np.full(count, NOT_KNOWN), np.full(count, NOT_KNOWN)
    if not count:
        return thread, start, end
    table = rank.table("api", ["correlation", "process", "start", "end", "thread"])
    calls = integers(table.column("correlation"), -2)
    near = np.flatnonzero(np.isin(calls, correlation))
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
