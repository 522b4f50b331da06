"""Sends and receives that one kernel does: what a group exchanges is one operation, whoever recorded its calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import ALL_TO_ALL, RECV, SEND, SEND_RECV
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct_rows

_MOST = 2.0**63
_KERNEL = "kernel"
"""The evidence of an operation that is known from its kernel alone."""


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
    rows, calls, group = rows[several], calls.filter(pa.array(several)), np.unique(group[several], return_inverse=True)[1]
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
        changed["evidence"] = pc.if_else(pa.array(unknown), _KERNEL, evidence).dictionary_encode()
    for name in ("bytes", "count"):
        sizes = integers(calls.column(name), -1)
        total = np.bincount(group, np.where(moved & (sizes >= 0), sizes, 0), groups)[folded]
        changed[name] = pa.array(np.where(total < _MOST, total, 0).astype(np.int64), mask=~((total > 0) & (total < _MOST)))
    for name, values in changed.items():
        place = folded_rows.schema.get_field_index(name)
        folded_rows = folded_rows.set_column(place, name, values.cast(folded_rows.schema.field(place).type))
    left = np.ones(len(table), np.bool_)
    left[rows[folded[group]]] = False
    return pa.concat_tables([table.filter(pa.array(left)), folded_rows]).combine_chunks()
