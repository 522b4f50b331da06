"""MPI's operations of one rank: from the call that begins an operation to the end of the call that completes it.

A call that blocks does both. One that only begins an operation returns a request, and the operation ends in the call
that waits for that request: until then the rank does as it likes, so it waits for others only in that call. A
persistent request is set up once, and each start of it is an operation. A request's number is used again once the
operation is complete, so the next use of it ends the search. Profilers record of calls that test or wait for any of
several requests those that completed one, so it is not known how long a rank that tests has waited.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.align.nccl_names import RECV, SEND, SEND_RECV, operation_of
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct_rows, folded

_COLUMNS = ("start", "end", "process", "thread", "name", "bytes", "communicator", "peer", "tag", "root", "request")
_MOST_MEMBERS_NAMED = 64
_NONE = np.iinfo(np.int64).min
_NO_OP = -1
_STARTED = "Start"
"""What a call starts whose set-up is not recorded."""
_MESSAGES = {**dict.fromkeys(("ssend", "bsend", "rsend"), SEND), "mrecv": RECV, "sendrecv_replace": SEND_RECV}
_SYNCHRONOUS = {"ssend": 1, "bsend": 0, "rsend": 0}


class _Role(IntEnum):
    BLOCKS = auto()
    BEGINS = auto()
    SETS_UP = auto()
    STARTS = auto()
    COMPLETES = auto()
    TESTS = auto()


_ROLES = {
    **dict.fromkeys(("wait", "waitall", "waitany", "waitsome"), _Role.COMPLETES),
    **dict.fromkeys(("test", "testall", "testany", "testsome"), _Role.TESTS),
    **dict.fromkeys(("start", "startall"), _Role.STARTS),
}


class _Call(NamedTuple):
    """What a call does, and with which operation; None if it names none."""

    op: str | None
    role: _Role
    synchronous: int = _NONE


def mpi_operations(rank: Rank) -> dict[str, Any]:
    """The operations as columns of `collectives`, with names as text; empty without any.

    Of an operation that was not completed in the recording `api_end` is null, and of one whose set-up is not in it,
    such as that of a persistent collective, all but its start; a message that is never waited for ends with its own
    call on the side of the sender.
    """
    if not rank.has("mpi"):
        return {}
    table = rank.table("mpi", ("kind", *_COLUMNS))
    table = table.filter(pa.array(~is_one_of(table.column("kind"), ("other",))))  # these have no arguments
    ids, code = coded(table.column("name"))
    calls = [*map(_call, rank.texts(ids).to_pylist()), _Call(None, _Role.BLOCKS)]
    ops = list(dict.fromkeys([SEND, RECV, SEND_RECV, _STARTED, *(c.op for c in calls if c.op is not None)]))
    role = np.array([c.role for c in calls])[code]
    op = np.array([_NO_OP if c.op is None else ops.index(c.op) for c in calls])[code]
    at = {name: integers(table.column(name).cast("int64"), _NONE) for name in _COLUMNS}
    at["synchronous"] = np.array([c.synchronous for c in calls])[code]
    of, completed = _completed(at, role)
    op = np.where((role == _Role.STARTS) & (op[of] == _NO_OP), ops.index(_STARTED), op[of])
    rows = np.flatnonzero((op != _NO_OP) & (role != _Role.SETS_UP))
    ends = np.where(role[rows] == _Role.BLOCKS, rows, completed[rows])
    op = op[rows]
    ended, begun = (ends >= 0) & (op != ops.index(_STARTED)), role[rows] != _Role.BLOCKS
    columns = {name: values[of[rows]] for name, values in at.items()}
    columns["start"] = at["start"][rows]
    columns["end"] = np.where(ended, at["end"][ends], np.where(op == ops.index(SEND), at["end"][rows], _NONE))
    columns["wait_start"] = np.where(ended & begun, at["start"][ends], _NONE)
    # of no known end
    columns["synchronous"] = np.where(begun & ~ended & (op == ops.index(SEND)), 0, columns["synchronous"])
    columns["tested"] = np.where(ended & (role[ends] == _Role.TESTS), 1, _NONE)
    return _as_collectives(columns, op, ops, rank)


def _call(name: str | None) -> _Call:
    plain = (name or "").removeprefix("MPI_").lower()
    if plain in _ROLES:
        return _Call(None, _ROLES[plain])
    for word, role in (
        (plain, _Role.BLOCKS),
        (plain.removesuffix("_init"), _Role.SETS_UP),
        (plain.removeprefix("i"), _Role.BEGINS),
    ):
        op = _MESSAGES.get(word) or operation_of(f"MPI_{word}")
        if op is not None:
            return _Call(op, role, _SYNCHRONOUS.get(word, _NONE))
    return _Call(None, _Role.BLOCKS)


def _completed(at: dict[str, Int64], role: Int64) -> tuple[Int64, Int64]:
    """For each call the one with its arguments, itself or what set it up; and the call that completes it, or -1."""
    count = len(role)
    order = np.lexsort((np.arange(count), at["start"], at["request"], at["process"]))
    order = order[at["request"][order] != _NONE]
    of, completed = np.arange(count), np.full(count, -1, np.int64)
    if not len(order):
        return of, completed
    doing, place = role[order], np.arange(len(order))
    request = distinct_rows(at["process"][order], at["request"][order])[1]
    changes = np.concatenate(([True], request[1:] != request[:-1]))
    argued = (doing == _Role.SETS_UP) | (doing == _Role.BEGINS)
    latest = np.maximum.accumulate(np.where(argued | changes, place, -1))
    of[order] = np.where((doing == _Role.STARTS) & argued[latest], order[latest], order)
    # the next call with the same request completes it, or uses its number again
    following = np.append(order[1:], -1)
    completes = np.append((doing[1:] >= _Role.COMPLETES) & ~changes[1:], False)
    completed[order] = np.where(completes, following, -1)
    return of, completed


def _one_way(op: Int64, columns: dict[str, Int64], ops: list[str]) -> tuple[Int64, dict[str, Int64]]:
    """The operations with a send and a receive in place of each exchange.

    One with two peers is recorded as two calls of one start, of which the one without a length is the send, and one
    with a single peer as one.
    """
    both = np.flatnonzero(op == ops.index(SEND_RECV))
    if not len(both):
        return op, columns
    group = distinct_rows(*(columns[name][both] for name in ("process", "thread", "start")))[1]
    order = np.lexsort((both, columns["end"][both], group))
    both, group = both[order], group[order]
    changes = np.concatenate(([True], group[1:] != group[:-1], [True]))
    first, last = changes[:-1], changes[1:]
    op = op.copy()
    op[both] = np.where(first, ops.index(SEND), ops.index(RECV))
    columns["end"][both] = folded(np.maximum, group, columns["end"][both], int(group[-1]) + 1, _NONE)[group]
    alone = both[first & last]
    columns = {name: np.concatenate((values, values[alone])) for name, values in columns.items()}
    return np.concatenate((op, np.full(len(alone), ops.index(RECV)))), columns


def _as_collectives(columns: dict[str, Int64], op: Int64, ops: list[str], rank: Rank) -> dict[str, Any]:
    op, columns = _one_way(op, columns, ops)
    message = (op == ops.index(SEND)) | (op == ops.index(RECV))
    # half of an exchange may have no peer
    there = ~message | (columns["tag"] != _NONE)
    columns, op, message = {name: values[there] for name, values in columns.items()}, op[there], message[there]
    if not len(op):
        return {}
    own = {name: pa.array(values, mask=values == _NONE) for name, values in columns.items()}
    groups = _communicators(rank)
    handles, place = np.unique(columns["communicator"], return_inverse=True)
    names, numbers, sizes = zip(*[groups.get(h, (None, None, None)) for h in handles.tolist()], strict=True)
    return {
        "api_start": own["start"],
        "api_end": own["end"],
        **{name: own[name] for name in ("wait_start", "process", "thread", "bytes", "root", "synchronous", "tested")},
        "communicator": pa.array(names, pa.string()).take(pa.array(place)),
        "op": pa.DictionaryArray.from_arrays(pa.array(op, pa.int32()), pa.array(ops)),
        "peer": pa.array(columns["peer"], mask=~message | (columns["peer"] < 0)),
        "tag": pa.array(columns["tag"], mask=~message),
        "group_rank": pa.array(numbers, pa.int32()).take(pa.array(place)),
        "group_size": pa.array(sizes, pa.int32()).take(pa.array(place)),
        "evidence": pa.array(["mpi"] * len(op)).dictionary_encode(),
    }


def _communicators(rank: Rank) -> dict[int | None, tuple[str | None, int | None, int | None]]:
    """For each MPI handle the communicator's identity, this rank's number in it, and its size."""
    if not rank.has("communicators"):
        return {}
    identities: dict[int | None, tuple[str | None, int | None, int | None]] = {}
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
        identities.setdefault(row["communicator"], (name, row["group_rank"], row["size"]))
    return identities
