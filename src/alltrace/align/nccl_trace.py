"""NCCL as the profiler traces it itself (nsys 2025.6 and later): operations of the GPU, with sequence numbers, per channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.align.nccl_names import NOTHING, operation_of, parse_payload
from alltrace.trace.arrays import coded, integers


def read_trace(ranges: Any) -> dict[str, Any] | None:
    """The operations that the profiler traced, as columns of `collectives`; None if it did not.

    An operation is all rows of one communicator, operation and sequence number. If some of them name a channel, these are its
    work on the GPU and the others its calls; where none does, all of them are.

    Args:
        ranges: NCCL's ranges, as `nccl_ranges` returns them.
    """
    import pyarrow as pa

    payloads, at = coded(ranges.column("payload"))
    told = [*map(parse_payload, payloads.to_pylist()), NOTHING]
    traced = np.array([t.sequence is not None and t.communicator is not None for t in told])
    names, name_at = coded(ranges.column("text"))
    ops = [*map(operation_of, names.to_pylist()), None]
    is_op = np.array([o is not None for o in ops])
    ended = ranges.column("end").is_valid().to_numpy()
    rows = np.flatnonzero(traced[at] & is_op[name_at] & ended)
    if not len(rows):
        return None
    start, end = ranges.column("start").to_numpy()[rows], ranges.column("end").fill_null(0).to_numpy()[rows]
    process = integers(ranges.column("process"), -1)[rows]
    thread = integers(ranges.column("thread"))[rows]
    words = sorted({o for o in ops if o is not None})
    op = np.array([words.index(o) if o is not None else -1 for o in ops], np.int64)[name_at[rows]]
    texts = sorted({t.communicator for t in told if t.communicator is not None})
    communicator = np.array([texts.index(t.communicator) if t.communicator else -1 for t in told], np.int64)[at[rows]]
    told_here = [told[i] for i in at[rows].tolist()]
    sequence = np.array([t.sequence for t in told_here], np.int64)
    peer = np.array([-1 if t.peer is None else t.peer for t in told_here], np.int64)
    on_gpu = np.array([t.channel is not None for t in told_here])
    keys, first, inverse = np.unique(
        np.stack((process, communicator, op, sequence, peer)), axis=1, return_index=True, return_inverse=True
    )
    inverse = inverse.reshape(-1)
    count = keys.shape[1]
    big = np.iinfo(np.int64).max
    bounds = {}
    some = np.bincount(inverse, on_gpu, minlength=count) > 0
    work = on_gpu | ~some[inverse]
    for name, mine in (("", work), ("api_", ~work)):
        low, high = np.full(count, big), np.full(count, -big)
        np.minimum.at(low, inverse[mine], start[mine])
        np.maximum.at(high, inverse[mine], end[mine])
        bounds[f"{name}start"] = pa.array(low, mask=low == big)
        bounds[f"{name}end"] = pa.array(high, mask=high == -big)
    heads = [told_here[i] for i in first.tolist()]
    return {
        **bounds,
        "process": pa.array(keys[0], mask=keys[0] < 0),
        "thread": pa.array(thread[first]),
        "communicator": pa.array([texts[i] for i in keys[1].tolist()]).dictionary_encode(),
        "op": pa.array([words[i] for i in keys[2].tolist()]).dictionary_encode(),
        "sequence": pa.array(keys[3]),
        "peer": pa.array(keys[4], mask=keys[4] < 0),
        "datatype": pa.array([h.datatype for h in heads], pa.string()).dictionary_encode(),
        **{n: pa.array([getattr(h, n) for h in heads], pa.int64()) for n in ("bytes", "count", "root", "group_rank", "group_size")},
        "evidence": pa.array(["trace"] * count).dictionary_encode(),
    }
