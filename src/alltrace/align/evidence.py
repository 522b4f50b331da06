"""One rank's communication operations, from the best available evidence.

In falling order: the rank's own table `collectives`, if its reader fills it; NCCL traced by the profiler (GPU operations with a
sequence number); NVTX calls joined with the kernels that they launched; only kernels; and in addition MPI's blocking collectives,
which are operations of the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from alltrace.align.grouped_sends import fold_groups
from alltrace.align.nccl_calls import nccl_ranges, read_calls, read_contexts
from alltrace.align.nccl_join import join
from alltrace.align.nccl_kernels import read_kernels
from alltrace.align.nccl_names import POINT_TO_POINT, operation_of
from alltrace.align.nccl_trace import read_trace
from alltrace.run.rank import Rank
from alltrace.trace.arrays import coded, integers
from alltrace.trace.distinct import occurrences
from alltrace.trace.schema import TABLES

_NAMES = TABLES["collectives"].name_columns()
_MPI_COLUMNS = ["start", "end", "process", "thread", "name", "kind", "bytes", "communicator", "root"]
_MOST_MEMBERS_NAMED = 64


def collect(rank: Rank) -> Any:
    """The communication operations of one rank.

    Args:
        rank: The rank's tables, in any time; the answer is in the same.

    Returns:
        A `pyarrow.Table` with the columns of `collectives`, sorted like it; columns of names hold text. Operations known only by
        their call (`nvtx`, `mpi`) have no `start` and `end`. If the profiler has no `sequence`, it is the operation's number
        among those of its communicator and this rank, and of sends and receives among those of the same peer; without a
        communicator, among those of its stream. `bytes` is the size as NCCL's payload has it: of the whole vector for an
        all-reduce, of a rank's share for an all-gather or reduce-scatter.
    """
    import pyarrow as pa

    parts = [t for t in (_of_devices(rank), _mpi(rank)) if t is not None and t.num_rows]
    if not parts:
        return _schema().empty_table()
    table = pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else parts[0]
    return _sorted(_numbered(fold_groups(table)))


def _schema() -> Any:
    """The canonical columns, with names as text."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    declared = TABLES["collectives"].arrow_schema()
    return pa.schema([pa.field(f.name, text if f.name in _NAMES else f.type) for f in declared])


def _of_devices(rank: Rank) -> Any:
    import pyarrow as pa

    if rank.has("collectives"):
        own = rank.table("collectives")
        for name in _NAMES:
            at = own.column_names.index(name)
            codes = own.column(name).combine_chunks().dictionary_encode()
            own = own.set_column(at, name, rank.texts(codes.dictionary).take(codes.indices).dictionary_encode())
        return own.cast(_schema())
    ranges = nccl_ranges(rank)
    kernels = read_kernels(rank)
    if ranges is None:
        return _table(join(None, kernels))
    contexts = read_contexts(ranges)
    traced = read_trace(ranges, kernels, contexts)
    if traced is not None:
        ranges = ranges.filter(pa.array(~traced.superseded))
    return _table(join(read_calls(ranges, contexts), kernels, contexts, traced))


def _table(columns: dict[str, Any]) -> Any:
    """The canonical table with the given columns; others are null."""
    import pyarrow as pa

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


def _mpi(rank: Rank) -> Any:
    """MPI's collectives that block: their calls end together. A call that only begins an operation says nothing of its end."""
    import pyarrow as pa

    if not rank.has("mpi"):
        return None
    table = rank.table("mpi", _MPI_COLUMNS)
    table = table.filter(pc.and_(pc.equal(table.column("kind"), "collective"), pc.is_valid(table.column("end"))))
    if not table.num_rows:
        return None
    codes = table.column("name").combine_chunks().dictionary_encode()
    ops = pa.array([operation_of(t) for t in rank.texts(codes.dictionary).to_pylist()], pa.string())
    op = ops.take(codes.indices)
    known = pc.is_valid(op)
    table, op = table.filter(known), op.filter(known)
    if not table.num_rows:
        return None
    groups = _communicators(rank)
    handles = table.column("communicator").to_pylist()
    names, numbers, sizes = zip(*[groups.get(h, (None, None, None)) for h in handles], strict=True)
    return _table(
        {
            "api_start": table.column("start").combine_chunks(),
            "api_end": table.column("end").combine_chunks(),
            "process": table.column("process").combine_chunks(),
            "thread": table.column("thread").combine_chunks(),
            "communicator": list(names),
            "op": op,
            "bytes": table.column("bytes").combine_chunks(),
            "root": table.column("root").combine_chunks(),
            "group_rank": list(numbers),
            "group_size": list(sizes),
            "evidence": pa.array(["mpi"] * table.num_rows).dictionary_encode(),
        }
    )


def _communicators(rank: Rank) -> dict[int | None, tuple[str | None, int | None, int | None]]:
    """For each MPI handle the communicator's identity, this rank's number in it, and its size."""
    if not rank.has("communicators"):
        return {}
    found: dict[int | None, tuple[str | None, int | None, int | None]] = {}
    by_members: dict[str, int] = {}
    for row in rank.table("communicators").to_pylist():
        name = None
        if row["uid"] is not None:
            name = f"mpi {row['uid'] % 2**64:#x}"
        elif row["members"]:
            # the same members may form several communicators, in the same order on each of them
            again = by_members[row["members"]] = by_members.get(row["members"], -1) + 1
            name = f"mpi of {row['members'][:_MOST_MEMBERS_NAMED]}" + (f" #{again}" if again else "")
        elif not row["parent"] and (row["size"] or 0) > 1:  # made from no other: the world
            name = "mpi world"
        found.setdefault(row["communicator"], (name, row["group_rank"], row["size"]))
    return found


def _numbered(table: Any) -> Any:
    """The table with ordinals where it has no sequence numbers."""
    import pyarrow as pa

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
    import pyarrow as pa

    return table.take(pa.array(order)).combine_chunks()
