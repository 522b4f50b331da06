"""Communication kernels, and copies of collectives by copy engines, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import datatype_of_kernel, numbered, operation_of_kernel
from alltrace.run.collecting import file_pieces
from alltrace.run.launch_matching import Operations
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.kernel_rules import COMMUNICATION
from alltrace.trace.schema import TABLES

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
    columns = [*_COLUMNS, "name", "kind"]
    none = TABLES["kernels"].arrow_schema(columns).empty_table()
    pieces = file_pieces(rank, "kernels", columns) if rank.has("kernels") else ()
    parts = [piece.filter(pa.array(is_one_of(piece.column("kind"), COMMUNICATION))) for piece in pieces]
    kernels, copies = pa.concat_tables([none, *parts]), rank.table("copies", [*_COLUMNS, "collective"])
    copies = copies.filter(pa.array(is_true(copies.column("collective")))).drop_columns("collective")
    copies = copies.append_column("name", pa.nulls(copies.num_rows, kernels.schema.field("name").type))
    waits = is_one_of(kernels.column("kind"), (EXCHANGE,)), np.zeros(copies.num_rows, np.bool_)
    table = pa.concat_tables([kernels.drop_columns("kind"), copies])
    table = table.append_column("copied", pa.array(np.arange(table.num_rows) >= kernels.num_rows))
    table = table.append_column("exchanging", pa.array(np.concatenate(waits)))
    table = table.filter(pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("end"))))
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
