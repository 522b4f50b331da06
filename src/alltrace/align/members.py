"""What matched operations are: the evidence that clocks are made from, and the times of each instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.align.nccl_names import BROADCAST, GATHER, RECV, REDUCE, SCATTER, SEND, SEND_RECV, SYNCHRONISING
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct_rows, folded, rows_by, run_starts
from alltrace.trace.schema import TABLES

EXCHANGE = 2
_NEVER = np.iinfo(np.int64).min
_DIRECTIONS = {SEND: 1, RECV: -1, SEND_RECV: EXCHANGE}
_GIVEN, _TAKEN, _PREFIX = frozenset({BROADCAST, SCATTER}), frozenset({REDUCE, GATHER}), frozenset({"Scan", "Exscan"})
DIRECTED = _GIVEN | _TAKEN | _PREFIX
"""Operations with members that need not wait for all others."""


@dataclass(frozen=True)
class Evidence:
    """Matched operations, one row per member, by instance: arrays of n, ns in the time of the rank's files."""

    instance: Int64
    communicator: Int64
    rank: Int64
    start: Int64
    end: Int64
    synchronising: Flags  # no member can leave before the last has arrived
    direction: NDArray[np.int8]  # 1 for a send, -1 for a receive, `EXCHANGE` where one kernel is either or both, 0 else


def direction_of(op: str | None) -> int:
    """1 for a send, -1 for a receive, `EXCHANGE` where it may be both, 0 for anything else."""
    return _DIRECTIONS.get(op or "", 0)


def taken(members: Any, tables: Mapping[int, Any], column: str) -> Any:
    """A column of the ranks' collectives, for each row of `members`, as an Arrow array."""
    rows = members.column("row").to_numpy()
    of_rank = rows_by(members.column("rank").to_numpy())
    parts = [tables[rank].column(column).take(pa.array(rows[mine])) for rank, mine in of_rank.items()]
    if not parts:
        return TABLES["collectives"].arrow_schema([column]).empty_table().column(0).combine_chunks()
    joined = pa.chunked_array([c for p in parts for c in p.chunks], parts[0].type).combine_chunks()
    return joined.take(pa.array(np.argsort(np.concatenate(list(of_rank.values())))))


def described(
    members: pa.Table,
    tables: Mapping[int, pa.Table],
    *,
    group_sizes: Sequence[int],
    texts: Callable[[pa.Array], pa.Array],
    error_ns: Callable[[int, int], int | None],
) -> pa.Table:
    """`members`, at aligned times, with the columns that `Aligned.members` adds; `tables` are ranks' `collectives`."""
    members = members.sort_by([("instance", "ascending"), ("rank", "ascending")])
    columns: dict[str, Any] = {name: members.column(name).combine_chunks() for name in members.column_names}
    for name in ("op", "datatype"):
        encoded = taken(members, tables, name).dictionary_encode()
        columns[name] = pa.DictionaryArray.from_arrays(encoded.indices, texts(encoded.dictionary))
    columns |= {name: taken(members, tables, name) for name in ("bytes", "stream", "device", "evidence")}
    instance = members.column("instance").to_numpy()
    start, end = members.column("start").to_numpy(), members.column("end").to_numpy()
    rank = members.column("rank").to_numpy()
    first = run_starts(instance)
    counts = np.diff(np.concatenate((first, [len(instance)])))
    place = np.repeat(np.arange(len(first)), counts)
    last_arrival, last_end = (np.maximum.reduceat(times, first) for times in (start, end))
    first_arrival = np.minimum.reduceat(start, first)
    # of equal arrivals the lowest rank's
    arrived_last = np.flatnonzero(start == last_arrival[place])
    which = arrived_last[np.unique(place[arrived_last], return_index=True)[1]]
    ops, op = coded(columns["op"])
    words_of = ops.to_pylist()
    awaited = which[place]
    if not DIRECTED.isdisjoint(words_of):
        group_rank, root = (integers(taken(members, tables, name), -1) for name in ("group_rank", "root"))
        awaited = _awaited(np.array([*words_of, None], object)[op], awaited, place, start, root, group_rank)
    wait_start, completed, of_call = start, last_end, end
    if is_one_of(columns["evidence"], ("mpi",)).any():
        wait_start = np.maximum(start, integers(taken(members, tables, "wait_start"), -1))
        message = (counts[place] == 2) & (integers(taken(members, tables, "tag"), -1) >= 0)
        sends = np.flatnonzero(np.array([*(w == SEND for w in words_of), False])[op] & message)
        others = np.where(is_one_of(columns["evidence"], ("mpi",)), -1, np.arange(len(rank)))
        call = distinct_rows(rank, wait_start, end, others)[1]
        awaited[sends] = sends
        until = np.maximum(np.minimum(start[awaited], end), wait_start)
        awaited[sends] = _awaited_by_sends(
            _Sends(
                sends,
                2 * first[place[sends]] + 1 - sends,
                integers(columns["bytes"], -1)[sends],
                integers(taken(members, tables, "synchronous").cast("int64"), -1)[sends],
                call[sends],
                _errors(error_ns, rank[sends], rank[2 * first[place[sends]] + 1 - sends]),
            ),
            _latest(call, until),
            wait_start,
            start,
            end,
        )
        until = np.maximum(np.minimum(start[awaited], end), wait_start)
        completed = _completed(first, until + end - _latest(call, until)[call], wait_start <= last_arrival[place])
        before, of_call = _shared_out(call, until, end, np.isin(np.arange(len(rank)), sends))
        wait_start = np.minimum(np.maximum(wait_start, before), until)
    wait = np.maximum(np.minimum(start[awaited], end) - wait_start, 0)
    error = _errors(error_ns, rank, rank[awaited])
    sizes = np.array(group_sizes or [0], np.int64)
    known = integers(taken(members, tables, "group_size"))
    size = np.maximum.reduce([known, sizes[members.column("communicator").to_numpy()], counts[place]])
    columns["group_size"] = size.astype(np.int32)
    columns["members"] = counts[place].astype(np.int32)
    columns["synchronising"] = is_one_of(columns["op"], SYNCHRONISING)
    columns["arrival_ns"] = start
    columns["first_arrival_ns"], columns["last_arrival_ns"] = first_arrival[place], last_arrival[place]
    columns["last_rank"], columns["last_end_ns"] = rank[which[place]], last_end[place]
    columns["awaited_rank"], columns["awaited_ns"] = rank[awaited], start[awaited]
    columns["wait_start_ns"], columns["wait_ns"], columns["until_ns"] = wait_start, wait, of_call
    columns["transfer_ns"] = np.maximum(completed - last_arrival, 0)[place]
    columns["error_ns"] = pa.array(np.maximum(error, 0), mask=error < 0)
    columns["fact"] = (error >= 0) & (wait >= error)
    return pa.table(columns)


def _completed(first: NDArray[np.intp], end: Int64, waiting: Flags) -> Int64:
    """When each instance was complete: the last end of members that waited then, or the first end if none did."""
    latest = np.maximum.reduceat(np.where(waiting, end, np.iinfo(np.int64).min), first)
    return np.where(np.logical_or.reduceat(waiting, first), latest, np.minimum.reduceat(end, first))


class _Sends(NamedTuple):
    """Sends of MPI's messages, in arrays of n."""

    row: NDArray[np.intp]  # of the members; likewise `receive`
    receive: NDArray[np.intp]
    size: Int64  # bytes, -1 if unknown
    synchronous: Int64  # 1 if it waits for its receive, 0 if it does not, -1 if its size decides
    call: Int64  # the number of the call that completes it
    error_ns: Int64  # how far the clocks of both may be off, -1 if not known


def _awaited_by_sends(sends: _Sends, until: Int64, wait_start: Int64, start: Int64, end: Int64) -> NDArray[np.intp]:
    """For each send the row that it waits for: its receive, or its own.

    A library holds small messages for the receiver, and the sender goes on; with a larger one the sender waits. Where
    the limit is shows by the largest message whose sender left before the receive began, and by the least of larger
    ones with which a sender was kept when its call had nothing else to wait for. Within a host the limit is another
    than over a network. `until` has until when each member's call waits at least, which sends do not add to.
    """
    begun, left, error = start[sends.receive], end[sends.row], np.maximum(sends.error_ns, 0)
    early, late = left + error < begun, wait_start[sends.row] + error < begun
    latest = until.copy()
    np.maximum.at(latest, sends.call, np.where(early, _NEVER, begun))
    only = (until[sends.call] + error < begun) & (begun == latest[sends.call])
    decided = (sends.synchronous < 0) & (sends.size >= 0) & (sends.error_ns >= 0)
    waits = (sends.synchronous > 0) & (sends.error_ns >= 0)
    for near in (sends.error_ns == 0, sends.error_ns > 0):
        eager_bytes = sends.size[near & decided & early].max(initial=-1)
        rendezvous_bytes = sends.size[near & decided & late & ~early & only & (sends.size > eager_bytes)]
        if len(rendezvous_bytes):
            waits |= near & decided & (sends.size >= rendezvous_bytes.min())
    return np.where(waits & late & ~early, sends.receive, sends.row)


def _latest(call: Int64, until: Int64) -> Int64:
    """Until when each call waits for what it completes, by the call's number, which is below the number of members."""
    return folded(np.maximum, call, until, len(call), _NEVER)


def _shared_out(call: Int64, until: Int64, end: Int64, sending: Flags) -> tuple[Int64, Int64]:
    """From and until when the call of each member is for its operation: one after the other, of equal times sends last.

    `call` is its number, and `until` until when the operation was waited for. The first is for it from `_NEVER` on, the
    last to the end.
    """
    order = np.lexsort((sending, until, call))
    since, to = np.full(len(call), _NEVER), end.copy()
    again = np.flatnonzero(call[order][1:] == call[order][:-1])
    since[order[again + 1]] = to[order[again]] = until[order[again]]
    return since, to


def _awaited(
    op: NDArray[Any], last: NDArray[np.intp], place: NDArray[np.intp], start: Int64, root: Int64, group_rank: Int64
) -> NDArray[np.intp]:
    """For each member the row of the one that it waits for: the last that it needs, or its own.

    `place` is its instance, ascending, and `last` the row of the member that arrives last. Without a known root all are
    needed.
    """
    awaited, begins = last.copy(), np.searchsorted(place, np.arange(int(place.max(initial=-1)) + 2))
    is_root, directed = (group_rank == root) & (root >= 0), np.isin(op, list(DIRECTED)) & (group_rank >= 0)
    for instance in np.unique(place[directed]).tolist():
        own = np.arange(begins[instance], begins[instance + 1])
        kind, roots = op[own[0]], own[is_root[own]]
        if kind in _PREFIX:
            for row in own:
                needed = (
                    own[(group_rank[own] <= group_rank[row]) & (group_rank[own] >= 0)] if group_rank[row] >= 0 else own
                )
                awaited[row] = needed[np.argmax(start[needed])]
        elif kind in _GIVEN and len(roots) and (root[own] == root[roots[0]]).all():
            awaited[own] = roots[0]
        elif kind in _TAKEN and (root[own] >= 0).all():
            leaves = own[~is_root[own]]
            awaited[leaves] = leaves
    return awaited


def _errors(error_ns: Callable[[int, int], int | None], rank: Int64, awaited: Int64) -> Int64:
    """How far the clocks of each rank and the one that it waits for may be off, -1 if not known."""
    key = rank.astype(np.int64) << 32 | awaited
    distinct, back = np.unique(key, return_inverse=True)
    errors = [error_ns(*divmod(int(k), 1 << 32)) for k in distinct]
    return np.array([-1 if f is None else f for f in errors] or [-1], np.int64)[
        back if len(back) else np.empty(0, np.int64)
    ]
