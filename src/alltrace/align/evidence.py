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

from alltrace.align.mpi_operations import mpi_operations
from alltrace.align.nccl_calls import nccl_ranges, read_calls, read_contexts, read_kernels
from alltrace.align.nccl_join import join
from alltrace.align.nccl_names import ALL_TO_ALL, POINT_TO_POINT, RECV, SEND, SEND_RECV
from alltrace.align.nccl_trace import read_trace
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct, distinct_rows, occurrences
from alltrace.trace.schema import TABLES

_NAMES = TABLES["collectives"].name_columns()
_MOST = 2.0**63


def collect(rank: Rank) -> Any:
    """The communication operations of one rank, in the time of its tables, as `collectives` with names as text.

    Operations known only by their call (`nvtx`, `mpi`) have no `start` and `end`. If the profiler has no `sequence`, it
    is the operation's number among those of its communicator and this rank, and of sends and receives among those of
    the same peer; without a communicator, among those of its stream. `bytes` is the size as NCCL's payload has it: of
    the whole vector for an all-reduce, of a rank's share for an all-gather or reduce-scatter.
    """
    parts = [t for t in (fold_groups(_of_devices(rank)), _table(mpi_operations(rank))) if t.num_rows]
    table = pa.concat_tables(parts).combine_chunks() if parts else _schema().empty_table()
    time = pc.coalesce(table.column("start"), table.column("api_start")).to_numpy()
    table = _numbered(table, time)
    device, stream = (integers(table.column(c).cast("int64"), np.iinfo(np.int64).max) for c in ("device", "stream"))
    order = np.lexsort((time, stream, device))
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order)).combine_chunks()


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
    parts = join(read_calls(ranges.filter(pa.array(~traced.superseded)), contexts), kernels, contexts, traced)
    return pa.concat_tables([_table({}), *map(_table, parts)]).combine_chunks()


def _table(columns: dict[str, Any]) -> Any:
    """The canonical table with the given columns; others are null."""
    count = max(map(len, columns.values()), default=0)
    schema = _schema()
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        if values is None:
            arrays.append(pa.nulls(count, column.type))
        else:
            arrays.append(values.cast(column.type) if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _numbered(table: Any, time: Int64) -> Any:
    sequence = table.column("sequence")
    if sequence.null_count == 0:
        return table
    names, communicator = coded(table.column("communicator"))
    stream = integers(table.column("stream"), -1) * (communicator == len(names))
    ops, op = coded(table.column("op"))
    paired = np.array([*(o in POINT_TO_POINT for o in ops.to_pylist()), False])[op]
    kind = np.where(paired, op, len(ops))
    peer = integers(table.column("peer"), -1) * paired
    order = np.argsort(time, kind="stable")
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = occurrences(*(column[order] for column in (communicator, stream, kind, peer)))
    filled = pc.coalesce(sequence, pa.chunked_array([pa.array(ordinal)]))
    return table.set_column(table.column_names.index("sequence"), "sequence", filled)


def fold_groups(table: Any) -> Any:
    """The operations of one rank, names as text, with a row for each group of sends and receives, not for each call.

    Calls of one kernel and communicator are one operation if they have one peer, or if they send to all members and
    receive from all, which is an all-to-all. Calls without a peer count as of one peer, but of several both ways it is
    not known whether that is one: they are what their kernel shows. What a member sends to itself goes with the rest.
    `bytes` and `count` of a group are what it sends, or what it receives if it sends nothing.
    """
    rows = np.flatnonzero(is_one_of(table.column("op"), (SEND, RECV)) & pc.is_valid(table.column("start")).to_numpy())
    if len(rows) < 2:
        return table
    calls = table.take(rows)
    keys = [integers(calls.column(c), -1) for c in ("start", "stream", "device")]
    group = distinct_rows(*keys, coded(calls.column("communicator"))[1])[1]
    several = np.bincount(group)[group] > 1
    if not several.any():
        return table
    rows, calls, group = rows[several], calls.filter(pa.array(several)), distinct(group[several])[1]
    groups = int(group.max()) + 1
    head = np.unique(group, return_index=True)[1]
    peer, own, size = (integers(calls.column(c), -1) for c in ("peer", "group_rank", "group_size"))
    sends = is_one_of(calls.column("op"), (SEND,))
    to_self = (peer == own) & (peer >= 0)
    others = np.flatnonzero(~to_self)
    first = np.full(groups, -1, np.int64)
    first[group[others[::-1]]] = others[::-1]  # the first call with another member

    def count(chosen: Flags) -> Int64:
        return np.bincount(group[chosen], minlength=groups)

    def peers(chosen: Flags) -> Int64:
        pairs = distinct_rows(group[chosen], peer[chosen])[0]
        return np.bincount(pairs[0], minlength=groups) if chosen.any() else np.zeros(groups, np.int64)

    members = size[head]
    among_all = (members > 2) & (count(peer < 0) == 0) & (np.minimum(peers(sends), peers(~sends)) >= members - 1)
    one_peer = (first >= 0) & (count(~to_self & (peer != peer[first][group])) == 0)
    shown = np.where(one_peer & ~among_all, first, head)  # the call that stays
    out, back = count(sends & ~to_self) > 0, count(~sends & ~to_self) > 0
    moved = (sends == out[group]) & (~to_self | among_all[group])
    folded = one_peer | among_all
    folded_rows = calls.take(shown[folded])
    op = np.where(among_all, ALL_TO_ALL, np.where(out & back, SEND_RECV, np.where(out, SEND, RECV)))[folded]
    changed: dict[str, Any] = {
        "op": pa.array(op, pa.string()).dictionary_encode(),
        "peer": pa.array(peer[shown][folded], mask=(among_all | (peer[shown] < 0))[folded]),
        "sequence": pa.nulls(len(op), pa.int64()),  # those of single calls
    }
    unknown = ((peer[shown] < 0) & (count(sends) > 1) & (count(~sends) > 1))[folded]
    if unknown.any():
        evidence = folded_rows.column("evidence").cast(pa.string())
        changed["evidence"] = pc.if_else(pa.array(unknown), "kernel", evidence).dictionary_encode()
    for name in ("bytes", "count"):
        sizes = integers(calls.column(name), -1)
        total = np.bincount(group, np.where(moved & (sizes >= 0), sizes, 0), groups)[folded]
        changed[name] = pa.array(
            np.where(total < _MOST, total, 0).astype(np.int64), mask=~((total > 0) & (total < _MOST))
        )
    for name, values in changed.items():
        place = folded_rows.schema.get_field_index(name)
        folded_rows = folded_rows.set_column(place, name, values.cast(folded_rows.schema.field(place).type))
    left = np.ones(len(table), np.bool_)
    left[rows[folded[group]]] = False
    return pa.concat_tables([table.filter(pa.array(left)), folded_rows]).combine_chunks()
