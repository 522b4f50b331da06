"""The calls of a rank's log as the units in which they become operations of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.align.nccl_names import ALL_TO_ALL, NUMBERED_TYPES, RECV, SEND, SEND_RECV, operation_of
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.distinct import distinct_rows, folded
from alltrace.trace.names import name_id
from alltrace.trace.nccl_words import OPERATIONS

NUMBERS = ("bytes", "count", "root", "peer", "group_rank", "group_size")


@dataclass(frozen=True)
class Units:
    """Units in the order of the log; arrays of n values."""

    op: Int64  # in `ops`
    ops: list[str]  # as in traces
    kind: Int64  # equal numbers have equal content
    group: Int64  # number of the communicator
    numbers: dict[str, Int64]  # of `NUMBERS`, each -1 if not known
    communicator_id: Int64  # id of the communicator's name, 0 if ranks may call it differently
    datatype_id: Int64  # 0 if not known
    single_id: Int64  # id of the name of a unit that is one send, one receive or one exchange among all; else 0
    time_ns: Int64 | None  # of its first line; None unless all lines have a time
    texts: set[str]  # the strings of all ids


def units_of(calls: Any, *, by_call: bool) -> Units:
    """The units of a rank's calls (a table of `alltrace.run.run_logs.CALLS`).

    If not `by_call`, calls that were launched together are one kernel: those of equal opCount that follow each other on
    a communicator. Sends and receives among all members, launched together, are one all-to-all, as in the trace. If
    opCount is the same on all calls of a communicator, for example if a CUDA graph captured them, this is not visible:
    a collective counts as a separate launch, and a launch of sends and receives as one with each of a peer once.
    """

    def column(name: str) -> Int64:
        return integers(calls.column(name), -1)

    names = calls.column("communicator").combine_chunks()
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    words = [str(w) for w in names.dictionary.to_pylist()]
    communicator = names.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    op, op_count = column("op"), column("op_count")
    known = [operation_of(f"nccl{o}") or o for o in OPERATIONS]
    ops = sorted({*known, ALL_TO_ALL, SEND_RECV})
    of = np.array([ops.index(o) for o in known], np.int64)[op]
    numbers = {name: column(name) for name in NUMBERS}
    head = np.concatenate(([True], (communicator[1:] != communicator[:-1]) | (op_count[1:] != op_count[:-1])))
    head[1:] |= op_count[1:] < 0
    still = _uncounted(communicator, op_count, len(words))[communicator]
    if still.any():
        direct = np.isin(of, [ops.index(SEND), ops.index(RECV)])
        head |= still & (~direct | np.concatenate(([True], ~direct[:-1])))
        head |= _begun_again(head, still & direct, distinct_rows(of, numbers["peer"])[1])
    unit = np.cumsum(head) - 1
    first = np.flatnonzero(head)
    many = np.bincount(unit)
    sends, receives = of == ops.index(SEND), of == ops.index(RECV)
    paired = np.bincount(unit, ~(sends | receives)) == 0
    size = numbers["group_size"][first]
    exchange = paired & (size > 2)
    for direction in (sends, receives):
        pairs = np.unique(np.stack((unit[direction], numbers["peer"][direction])), axis=1)
        exchange &= np.bincount(pairs[0], minlength=len(first)) >= size - 1
    datatype = column("datatype")
    # what is launched together becomes one unit where it is one kernel, or one exchange
    fold = exchange if by_call else np.ones(len(first), np.bool_)
    keep = np.flatnonzero(head | ~fold[unit])
    folded = fold[unit[keep]] & (many[unit[keep]] > 1)
    carried = sends if sends.any() else np.zeros(len(of), np.bool_)
    total = np.bincount(
        unit, np.where(paired[unit] & ~carried, 0, np.maximum(numbers["bytes"], 0)), minlength=len(first)
    )
    unknown = np.bincount(unit, numbers["bytes"] < 0, minlength=len(first)) > 0
    out = {name: values[keep].copy() for name, values in numbers.items()}
    out["bytes"][folded] = np.where(unknown, -1, total)[unit[keep[folded]]].astype(np.int64)
    for name in ("count", "peer"):
        out[name][folded] = -1
    out["root"][folded] = np.where(paired[unit[keep[folded]]], -1, out["root"][folded])
    result = of[keep].copy()
    result[folded & paired[unit[keep]]] = ops.index(SEND_RECV)
    result[folded & exchange[unit[keep]]] = ops.index(ALL_TO_ALL)
    types = np.array([name_id(t) for t in NUMBERED_TYPES] + [0], np.int64)
    datatype_id = types[np.where((datatype >= 0) & (datatype < len(NUMBERED_TYPES)), datatype, len(NUMBERED_TYPES))][
        keep
    ]
    mixed = np.minimum.reduceat(datatype, first) != np.maximum.reduceat(datatype, first)
    datatype_id[folded & mixed[unit[keep]]] = 0
    shared = calls.column("shared").to_numpy()
    communicator_id = np.where(shared, np.array([name_id(w) for w in words], np.int64)[communicator], 0)[keep]
    single = np.isin(result, [ops.index(o) for o in (SEND, RECV, ALL_TO_ALL)])
    single_id = np.where(single, np.array([name_id(o) for o in ops], np.int64)[result], 0)
    time = calls.column("time_ns")
    parts = np.stack([result, communicator[keep], datatype_id, *out.values()])
    _, kind = np.unique(parts, axis=1, return_inverse=True)
    return Units(
        op=result,
        ops=ops,
        kind=kind.reshape(-1).astype(np.int64),
        group=communicator[keep],
        numbers=out,
        communicator_id=communicator_id,
        datatype_id=datatype_id,
        single_id=single_id,
        time_ns=_times(time, keep),
        texts={*words, *NUMBERED_TYPES, SEND, RECV, ALL_TO_ALL},
    )


def _uncounted(communicator: Int64, op_count: Int64, many: int) -> Flags:
    """Of each communicator whether it has several calls, all of one opCount."""
    least = folded(np.minimum, communicator, op_count, many, np.iinfo(np.int64).max)
    most = folded(np.maximum, communicator, op_count, many, -1)
    uncounted: Flags = (np.bincount(communicator, minlength=many) > 1) & (least == most) & (most >= 0)
    return uncounted


def _begun_again(head: Flags, asked: Flags, key: Int64) -> Flags:
    """Where a send or receive comes a second time since its launch began, which begins another."""
    again = np.zeros(len(head), np.bool_)
    seen: set[int] = set()
    for at, begins, own in zip(np.flatnonzero(asked).tolist(), head[asked].tolist(), key[asked].tolist(), strict=True):
        if begins or own in seen:
            again[at] = True
            seen.clear()
        seen.add(own)
    return again


def _times(column: Any, keep: Int64) -> Int64 | None:
    """Times of the units; a line without one has that of the previous line."""
    if column.null_count == len(column):
        return None
    valid = column.is_valid().to_numpy()
    if 2 * valid.mean() < 1:
        return None
    timed = np.flatnonzero(valid)
    return integers(column)[timed[np.maximum(np.searchsorted(timed, keep, side="right") - 1, 0)]]
