"""Marks the copies that NCCL's collectives by copy engines launched: communication that no kernel shows.

With `NCCL_CTA_POLICY=2` (zero CTA), NCCL does an all-gather, all-to-all, gather or scatter on symmetric memory by
copies and stream memory operations alone (`src/ce_coll.cc` in NVIDIA/nccl). Each rank first writes 4 bytes to signal
that it is ready, waits for the signals of the others, copies its part to them, and writes 4 bytes again when it is
done. So copies between memories of devices that were launched within a call of NCCL are such a collective if one of
them has 4 bytes and another does not, or if one goes to another device. A communicator of one rank copies too, to
itself and without a signal; that is no communication.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from alltrace.run.pieces import Piece
from alltrace.run.writer import TableWriter
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.schema import TABLES

_CALL = re.compile(
    r"^nccl(AllGather|AllToAll|AlltoAll|Gather|Scatter|GroupEnd|Put|PutSignal|Send|Recv|Broadcast|Bcast)\b"
)
_BETWEEN_DEVICES = ("DtoD", "PtoP")
_SIGNAL_BYTES = 4
_OPEN = np.iinfo(np.int64).max


def mark_collective_copies(piece: Piece, scratch: Path) -> None:
    """Fill `collective` of the copies in a rank's folder, if NCCL launched any; `scratch` takes temporary files."""
    marked = collective_copies(piece)
    if marked is None:
        return
    table = TABLES["copies"]
    enums = [c.name for c in table.columns if c.type == "enum"]
    path = piece.folder / "copies.parquet"
    copies = piece.read("copies", table.column_names, enums)
    column = pa.array(marked, mask=~marked)
    schema = table.arrow_schema()
    columns = [
        column if f.name == "collective" else copies.column(f.name).combine_chunks().cast(f.type) for f in schema
    ]
    draft = path.with_name(".copies.parquet")
    with TableWriter(table, draft, scratch) as writer:
        for batch in pa.Table.from_arrays(columns, schema=schema).to_batches():
            writer.append(batch)
        writer.finish()
    draft.replace(path)
    piece.hold("copies", None)


def collective_copies(piece: Piece) -> Flags | None:
    """Which copies are part of a collective by copy engines; None if none is."""
    if not all(piece.rows.get(name) for name in ("copies", "api", "ranges")):
        return None
    columns = ["kind", "bytes", "process", "correlation", "src_device", "dst_device"]
    copies = piece.read("copies", columns, ["kind"])
    between = is_one_of(copies.column("kind"), _BETWEEN_DEVICES)
    calls = _calls(piece) if between.any() else None
    if calls is None:
        return None
    of_call = np.full(copies.num_rows, -1, np.int64)
    candidates = np.flatnonzero(between)
    of_call[candidates] = _calls_of(
        piece, calls, *(integers(copies.column(c), -1)[candidates] for c in ("process", "correlation"))
    )
    inside = np.flatnonzero(of_call >= 0)
    if not len(inside):
        return None
    size, source, target = (integers(copies.column(c), -1)[inside] for c in ("bytes", "src_device", "dst_device"))
    count = int(of_call.max()) + 1
    signals, others, elsewhere = (
        np.bincount(of_call[inside], chosen, count) > 0
        for chosen in (size == _SIGNAL_BYTES, size != _SIGNAL_BYTES, (source >= 0) & (target >= 0) & (source != target))
    )
    communicates = (signals & others) | elsewhere
    marked = np.zeros(copies.num_rows, np.bool_)
    marked[inside] = communicates[of_call[inside]]
    return marked if marked.any() else None


def _calls(piece: Piece) -> tuple[Int64, Int64, Int64] | None:
    """Thread, start and end of NCCL's outermost calls that may copy, by thread and start; None without any."""
    ids, at = coded(piece.read("ranges", ["name"]).column("name"))
    texts = piece.names.texts(ids).to_pylist()
    wanted = np.array([*(bool(t and _CALL.match(t)) for t in texts), False])
    if not wanted.any():
        return None
    row = np.flatnonzero(wanted[at])
    table = piece.read("ranges", ["thread", "start", "end"]).take(pa.array(row))
    thread, start, end = (
        integers(table.column(c), null) for c, null in (("thread", -1), ("start", _OPEN), ("end", _OPEN))
    )
    order = np.lexsort((-end, start, thread))
    thread, start, end = (values[order] for values in (thread, start, end))
    outer = np.ones(len(order), np.bool_)
    for one in np.unique(thread):
        mine = np.flatnonzero(thread == one)
        outer[mine[1:]] = start[mine[1:]] >= np.maximum.accumulate(end[mine])[:-1]
    outer &= thread >= 0
    return (thread[outer], start[outer], end[outer]) if outer.any() else None


def _calls_of(piece: Piece, calls: tuple[Int64, Int64, Int64], process: Int64, correlation: Int64) -> Int64:
    """The number of the call in which each copy was launched, -1 for none."""
    api = piece.read("api", ["process", "correlation", "thread", "start"])
    launches = {c: integers(api.column(c), -1) for c in ("process", "correlation", "thread", "start")}
    near = np.flatnonzero(np.isin(launches["correlation"], correlation[correlation > 0]))
    keys = (launches["process"][near] << 33) + launches["correlation"][near]
    order = np.lexsort((launches["start"][near], keys))  # the runtime's call holds the driver's
    near, keys = near[order], keys[order]
    calls_of_copies = np.full(len(process), -1, np.int64)
    if not len(keys):
        return calls_of_copies
    wanted = (process << 33) + correlation
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = np.flatnonzero((keys[at] == wanted) & (correlation > 0))
    launch = near[at[known]]
    thread, start, end = calls
    for one in np.unique(thread):
        mine = np.flatnonzero(thread == one)
        here = np.flatnonzero(launches["thread"][launch] == one)
        when = launches["start"][launch[here]]
        place = np.searchsorted(start[mine], when, side="right") - 1
        inside = (place >= 0) & (when < end[mine[place]])
        calls_of_copies[known[here[inside]]] = mine[place[inside]]
    return calls_of_copies
