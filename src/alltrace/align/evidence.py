"""One rank's communication operations, from the best available evidence.

In falling order: the rank's own table `collectives`, if its reader fills it; NCCL traced by the profiler (GPU
operations with a sequence number); NVTX calls joined with the kernels that they launched; only kernels; and in addition
MPI's operations, which are of the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.grouped_sends import fold_groups
from alltrace.align.mpi_operations import mpi_operations
from alltrace.align.nccl_calls import nccl_ranges, read_calls, read_contexts
from alltrace.align.nccl_join import join
from alltrace.align.nccl_kernels import read_kernels
from alltrace.align.nccl_names import POINT_TO_POINT
from alltrace.align.nccl_trace import read_trace
from alltrace.run.rank import Rank
from alltrace.trace.arrays import coded, integers
from alltrace.trace.distinct import occurrences
from alltrace.trace.schema import TABLES

_NAMES = TABLES["collectives"].name_columns()


def collect(rank: Rank) -> Any:
    """The communication operations of one rank, in the time of its tables, as `collectives` with names as text.

    Operations known only by their call (`nvtx`, `mpi`) have no `start` and `end`. If the profiler has no `sequence`, it
    is the operation's number among those of its communicator and this rank, and of sends and receives among those of
    the same peer; without a communicator, among those of its stream. `bytes` is the size as NCCL's payload has it: of
    the whole vector for an all-reduce, of a rank's share for an all-gather or reduce-scatter.
    """
    of_devices = _of_devices(rank)
    parts = [None if of_devices is None else fold_groups(of_devices), _table(mpi_operations(rank))]
    parts = [t for t in parts if t is not None and t.num_rows]
    if not parts:
        return _schema().empty_table()
    return _sorted(_numbered(pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else parts[0]))


def _schema() -> Any:
    """The canonical columns, with names as text."""
    text = pa.dictionary(pa.int32(), pa.string())
    declared = TABLES["collectives"].arrow_schema()
    return pa.schema([pa.field(f.name, text if f.name in _NAMES else f.type) for f in declared])


def _of_devices(rank: Rank) -> Any:
    if rank.has("collectives"):
        own = rank.table("collectives")
        for name in _NAMES:
            at = own.column_names.index(name)
            codes = own.column(name).combine_chunks().dictionary_encode()
            own = own.set_column(at, name, rank.texts(codes.dictionary).take(codes.indices).dictionary_encode())
        return own.cast(_schema())
    ranges, kernels = nccl_ranges(rank), read_kernels(rank)
    contexts = read_contexts(ranges)
    traced = read_trace(ranges, kernels, contexts)
    return _table(join(read_calls(ranges.filter(pa.array(~traced.superseded)), contexts), kernels, contexts, traced))


def _table(columns: dict[str, Any]) -> Any:
    """The canonical table with the given columns; others are null."""
    if not columns:
        return None
    count = len(next(iter(columns.values())))
    schema = _schema()
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        if values is None:
            arrays.append(pa.nulls(count, column.type))
        else:
            arrays.append(values.cast(column.type) if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _numbered(table: Any) -> Any:
    """The table with ordinals where it has no sequence numbers."""
    sequence = table.column("sequence")
    if sequence.null_count == 0:
        return table
    time = pc.coalesce(table.column("start"), table.column("api_start")).to_numpy()
    names, communicator = coded(table.column("communicator"))
    stream = np.where(communicator == len(names), integers(table.column("stream"), -1), -1)
    ops, op = coded(table.column("op"))
    paired = np.array([*(o in POINT_TO_POINT for o in ops.to_pylist()), False])[op]
    kind = np.where(paired, op, -1)
    peer = np.where(paired, integers(table.column("peer"), -1), -1)
    order = np.argsort(time, kind="stable")
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = occurrences(*(column[order] for column in (communicator, stream, kind, peer)))
    filled = pc.coalesce(sequence, pa.chunked_array([pa.array(ordinal)]))
    return table.set_column(table.column_names.index("sequence"), "sequence", filled)


def _sorted(table: Any) -> Any:
    time = pc.coalesce(table.column("start"), table.column("api_start")).to_numpy()
    device, stream = (integers(table.column(c).cast("int64"), np.iinfo(np.int64).max) for c in ("device", "stream"))
    order = np.lexsort((time, stream, device))
    if (order[1:] > order[:-1]).all():
        return table
    return table.take(pa.array(order)).combine_chunks()
