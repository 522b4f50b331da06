"""What a rank did on its devices and where its host waited, as flat arrays: what a rank's graph is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from alltrace.run.collecting import Growing, in_pieces
from alltrace.run.launch_matching import Operations, correlations
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, blocks, coded, integers, is_true
from alltrace.trace.distinct import distinct_rows
from alltrace.trace.kernel_rules import NOT_COMPUTE

COMPUTE, COPY, TRANSFER, OTHER = 0, 1, 2, 3
"""Classes of device work: kernels and graphs, copies, matched collectives, communication that no other rank's
matches."""

UNKNOWN, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_WAITING = re.compile(
    r"^(cudaDeviceSynchronize|cudaStreamSynchronize|cudaEventSynchronize|cuCtxSynchronize|cuStreamSynchronize|"
    r"cuEventSynchronize"
    r"|cudaThreadSynchronize|cudaMemcpy(2D|3D|ToSymbol|FromSymbol)?|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?|cudaFree|cudaMalloc"
    r"|cudaHostAlloc|cudaFreeHost"
    r"|hip(Device|Stream|Event|Ctx)Synchronize|hipMemcpy(2D|3D|ToSymbol|FromSymbol|HtoD|DtoH|DtoD)?|hipFree|hipMalloc"
    r"|hipHost(Alloc|Malloc|Free)|hipFreeHost)(_v\d+)?(_ptsz|_ptds|_spt)?$"
)

EVERY, ELSEWHERE = -1, -2

FULL_QUEUE = 1_000
"""A stream's queue is full with 1024 pieces of work or a few more; who launches another one waits until one of them
begins."""

_BLOCKED_NS = 50_000
"""A call that takes this long may have waited for the device, as may several into a full queue together."""

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "stream", "correlation", "name", "kind"),
    "copies": ("start", "end", "device", "stream", "correlation", "kind", "collective"),
    "graphs": ("start", "end", "device", "stream", "correlation", "graph"),
    "api": ("start", "end", "correlation", "name"),
    "syncs": ("start", "end", "device", "stream", "correlation", "kind"),
    "ranges": ("start",),
    "collectives": ("start", "end", "api_start", "api_end", "wait_start", "device", "stream", "evidence"),
}
"""What is read."""


@dataclass
class Work:
    """Device work of one rank, sorted by track and start; arrays of n values, times in ns."""

    start: Int64
    end: Int64
    track: NDArray[np.int32]  # number of its (device, stream)
    launch: Int64  # start of the call that launched it; `UNKNOWN` if there is none
    launched: Int64  # end of that call, likewise
    kind: NDArray[np.int8]  # its class
    name: Int64  # id of the kernel's name; for a copy a negative number for its kind
    tracks: list[tuple[int, int]]  # for each track its (device, stream)
    rows: dict[int, list[int]]  # for a matched collective the rows of `collectives` that it is, by the work's number


@dataclass
class Waits:
    """Host calls that may wait for a device, arrays of k by end, and j orders for streams to wait; ns."""

    start: Int64
    end: Int64
    track: Int64  # that is waited for, `EVERY`, or `ELSEWHERE` for a device without work here
    order_at: Int64  # when a stream was told to wait for another
    order_track: Int64  # that stream's track
    first_call: int  # start of the first call or range of all, or `UNKNOWN`


def copy_name(word: str | None) -> int:
    """The number for a kind of copy in `Work.name`."""
    return -1 - crc32((word or "").encode())


def read(rank: Rank, matched: Int64) -> tuple[Work, Waits]:
    """The work of a rank and its waits; `matched` are rows of its `collectives`."""
    several = rank.has("processes") and rank.table("processes", ["process"]).num_rows > 1
    columns, tracks = _device_work(rank, several=several)
    calls = _Calls(rank, columns.pop("correlation"), several=several)
    columns["launch"], columns["launched"] = calls.launch, calls.launched
    unknown = calls.launch > columns["start"]
    calls.launch[unknown] = calls.launched[unknown] = UNKNOWN
    order = _order(columns["track"], columns["start"], columns["end"])
    for name in columns if order is not None else ():
        columns[name] = columns[name][order]
    waits = _waits(rank, calls, tracks, several=several)
    del calls, unknown, order
    work = _merged(rank, columns, tracks, matched)
    return work, _with_blocked_calls(waits, work)


def _with_blocked_calls(waits: Waits, work: Work) -> Waits:
    """The waits, and those in calls that launch work: for a place in a full queue, or for their own copy to end."""
    copied = (work.kind == COPY) & (work.launched - work.launch >= _BLOCKED_NS) & (work.launched >= work.end)
    bounds = np.searchsorted(work.track, np.arange(len(work.tracks) + 1)).tolist()
    blocked = [_in_full_queue(work, slice(*both)) for both in pairwise(bounds)]
    blocked.append((work.launch[copied], work.launched[copied], work.track[copied]))
    start, end, track = (np.concatenate(columns) for columns in zip(*blocked, strict=True))
    fresh = ~np.isin(end, waits.end)
    both = ((waits.start, start[fresh]), (waits.end, end[fresh]), (waits.track, track[fresh]))
    start, end, track = (np.concatenate(columns) for columns in both)
    order = np.argsort(end, kind="stable")
    return replace(waits, start=start[order], end=end[order], track=track[order])


def _in_full_queue(work: Work, rows: slice) -> tuple[Int64, Int64, NDArray[np.int32]]:
    """Start, end and track of the waits for a place in the queue of one track, which has these rows.

    Launches wait as long as a kernel takes, often for less than `_BLOCKED_NS`: several are one wait, which ends as the
    last of them does. What launches take while there are places is the host's own.
    """
    launch, launched, end, track = work.launch[rows], work.launched[rows], work.end[rows], work.track[rows]
    if not (launch[FULL_QUEUE:] < end[:-FULL_QUEUE]).any():
        return launch[:0], launch[:0], track[:0]
    mine = np.flatnonzero(launch != UNKNOWN)
    mine = mine[np.argsort(launch[mine], kind="stable")]
    full = np.zeros(len(mine), np.bool_)
    full[FULL_QUEUE:] = launch[mine[FULL_QUEUE:]] < np.sort(end[mine])[:-FULL_QUEUE]
    calls = np.diff(launch[mine], prepend=UNKNOWN) != 0  # one launches all kernels of a graph
    mine, full = mine[calls], full[calls]
    if not full.any():
        return launch[:0], launch[:0], track[:0]
    took = (launched - launch)[mine]
    blocked_ns = np.cumsum(np.where(full, np.maximum(took - int(np.median(took[~full])), 0), 0))
    last = np.flatnonzero(np.diff(blocked_ns // _BLOCKED_NS, prepend=0))
    end = launched[mine[last]]
    return end - np.diff(blocked_ns[last], prepend=0), end, track[mine[last]]


def _device_work(rank: Rank, *, several: bool) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Columns of all device work, kernels first, with `correlation`; and each track's (device, stream), ascending."""
    count = sum(rank.record.rows.get(table, 0) for table in _WORK)
    numbers, codes = Growing(3, count), Growing(1, count, np.int32)
    kinds = [np.empty((4, 0), np.int64)]
    before = 0
    for table, facts in _WORK.items():
        for piece in in_pieces(rank, table, TABLES[table] + (("process",) if several else ())):
            device, stream = (integers(piece.column(c), -1) for c in ("device", "stream"))
            own, code = distinct_rows(device, stream, *facts(piece))
            kinds.append(own)
            codes.add((before + code).astype(np.int32))
            before += own.shape[1]
            start = integers(piece.column("start"))
            numbers.add(start, np.maximum(start, integers(piece.column("end"))), correlations(piece, several=several))
    values = np.concatenate(kinds, axis=1)
    pairs, track = distinct_rows(*values[:2])
    (code,) = codes.columns()
    start, end, correlation = numbers.columns()
    columns = {"start": start, "end": end, "correlation": correlation}
    columns |= {"track": track.astype(np.int32)[code], "kind": values[2].astype(np.int8)[code], "name": values[3][code]}
    return columns, list(zip(*pairs.tolist(), strict=True))


def _order(track: NDArray[np.int32], start: Int64, end: Int64) -> Int64 | None:
    """The order by track, start and end; None if that is how the rows are."""
    for some in blocks(len(start) - 1):
        after = slice(some.start + 1, some.stop + 1)
        same = (track[after] == track[some], start[after] == start[some])
        if (
            (track[after] < track[some]) | same[0] & ((start[after] < start[some]) | same[1] & (end[after] < end[some]))
        ).any():
            order: Int64 = np.lexsort((end, start, track))
            return order
    return None


def _kernels(table: Any) -> tuple[Int64, Int64]:
    words, codes = coded(table.column("kind"))
    kind = np.array([*(OTHER if w in NOT_COMPUTE else COMPUTE for w in words.to_pylist()), COMPUTE], np.int64)[codes]
    return kind, integers(table.column("name"))


def _copies(table: Any) -> tuple[Int64, Int64]:
    words, codes = coded(table.column("kind"))
    kind = np.where(is_true(table.column("collective")), OTHER, COPY).astype(np.int64)
    return kind, np.array([*map(copy_name, words.to_pylist()), copy_name(None)], np.int64)[codes]


def _graphs(table: Any) -> tuple[Int64, Int64]:
    return np.full(table.num_rows, COMPUTE, np.int64), np.full(table.num_rows, copy_name("graph"), np.int64)


_WORK = {"kernels": _kernels, "copies": _copies, "graphs": _graphs}
"""For each table of device work what reads class and name of its rows."""


class _Calls:
    """When the calls that launched each piece of work began and ended, and calls that may wait; read in pieces."""

    def __init__(self, rank: Rank, correlation: Int64, *, several: bool) -> None:
        count = len(correlation)
        operations = Operations(np.zeros(count, np.int8), correlation)
        self.launch, self.launched = np.full(count, _LATEST), np.full(count, _LATEST)
        self.first = _LATEST
        waiting = Growing(3, 0)
        for piece in in_pieces(rank, "api", TABLES["api"] + (("process",) if several else ())):
            start, end = (integers(piece.column(c), UNKNOWN) for c in ("start", "end"))
            ids = correlations(piece, several=several)
            self.first = min(self.first, int(start.min(initial=_LATEST)))
            rows, many, op = operations.of(np.zeros(len(ids), np.int8), ids)
            at = rows if many is None else np.repeat(rows, many)
            np.minimum.at(self.launch, op, start[at])
            np.minimum.at(self.launched, op, end[at])
            names, place = coded(piece.column("name"))
            wanted = np.array([*(bool(w and _WAITING.match(w)) for w in rank.texts(names).to_pylist()), False])[place]
            some = np.flatnonzero(wanted & (end >= start))
            waiting.add(start[some], end[some], ids[some])
        for times in (self.launch, self.launched):
            times[times == _LATEST] = UNKNOWN
        start, end, ids = waiting.columns()
        order = np.argsort(end, kind="stable")
        self.start, self.end, self.correlation = start[order], end[order], ids[order]


def _looked_up(keys: Int64, values: Int64, wanted: Int64) -> Int64:
    """The value of each wanted key, the lowest of several; `UNKNOWN` if there is none."""
    result = np.full(len(wanted), UNKNOWN, np.int64)
    keys, values = keys[keys >= 0], values[keys >= 0]
    if not len(keys) or not len(wanted):
        return result
    if (keys[1:] <= keys[:-1]).any():  # calls mostly come by ascending correlation
        order = np.lexsort((values, keys))
        keys, values = keys[order], values[order]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (keys[at] == wanted) & (wanted >= 0)
    result[known] = values[at[known]]
    return result


def _merged(rank: Rank, columns: dict[str, Any], tracks: list[tuple[int, int]], matched: Int64) -> Work:
    """The work with each matched collective as one piece, from its first kernel's start to its last one's end."""
    import pyarrow as pa

    rows: dict[int, list[int]] = {}
    keep = np.ones(len(columns["start"]), np.bool_)
    if len(matched) and len(keep):
        table = rank.table("collectives", ("start", "end", "device", "stream")).take(pa.array(matched))
        begin, finish = (integers(table.column(c), UNKNOWN) for c in ("start", "end"))
        device, stream = (integers(table.column(c), -1) for c in ("device", "stream"))
        talk = columns["kind"] == OTHER
        bounds = np.searchsorted(columns["track"], np.arange(len(tracks) + 1))
        first, after = np.full((2, len(matched)), UNKNOWN)
        for track, (d, s) in enumerate(tracks):
            mine = np.flatnonzero((device == d) & (stream == s) & (begin != UNKNOWN))
            low, high = int(bounds[track]), int(bounds[track + 1])
            at = low + np.searchsorted(columns["start"][low:high], begin[mine])
            there = at < high
            there[there] = (columns["start"][at[there]] == begin[mine][there]) & talk[at[there]]
            first[mine[there]] = at[there]
            after[mine] = low + np.searchsorted(columns["start"][low:high], finish[mine])
        seen = np.flatnonzero(first != UNKNOWN)
        for row, at in zip(matched[seen].tolist(), first[seen].tolist(), strict=True):
            rows.setdefault(at, []).append(row)
        for at, until in zip(*(v[seen][after[seen] > first[seen] + 1].tolist() for v in (first, after)), strict=True):
            own = np.arange(at + 1, until)
            keep[own[talk[own]]] = False
        np.maximum.at(columns["end"], first[seen], finish[seen])
        columns["kind"][first[seen]] = TRANSFER
    keep[list(rows)] = True
    if keep.all():
        return Work(**columns, tracks=tracks, rows=rows)
    place = np.cumsum(keep) - 1
    for name in columns:
        columns[name] = columns[name][keep]
    return Work(**columns, tracks=tracks, rows={int(place[n]): r for n, r in rows.items()})


def _waits(rank: Rank, calls: _Calls, tracks: list[tuple[int, int]], *, several: bool) -> Waits:
    number = {pair: n for n, pair in enumerate(tracks)}
    syncs = rank.table("syncs", TABLES["syncs"] + (("process",) if several else ()))
    columns = {c: integers(syncs.column(c), -1) for c in ("device", "stream")}
    correlation = correlations(syncs, several=several)
    words, codes = coded(syncs.column("kind"))
    kinds = np.array([*words.to_pylist(), None], object)[codes]
    pairs = zip(columns["device"].tolist(), columns["stream"].tolist(), strict=True)
    of_sync = np.array([number.get(p, -1) for p in pairs], np.int64) if syncs.num_rows else np.empty(0, np.int64)
    named, ordering = kinds == "stream", (kinds == "stream-wait") & (of_sync >= 0)
    track = _looked_up(correlation[named], of_sync[named], calls.correlation)
    track = np.where(track == UNKNOWN, EVERY, track)
    own = [device for device, _ in tracks]
    other = ~np.isin(columns["device"], own) & (columns["device"] >= 0) & (-1 not in own)
    track[_looked_up(correlation[other], columns["device"][other], calls.correlation) != UNKNOWN] = ELSEWHERE
    first = [calls.first]
    for piece in in_pieces(rank, "ranges", TABLES["ranges"]):
        begun = integers(piece.column("start"), UNKNOWN)
        first.append(int(begun.min(initial=_LATEST, where=begun != UNKNOWN)))
    return Waits(
        calls.start,
        calls.end,
        track,
        integers(syncs.column("start"))[ordering],
        of_sync[ordering],
        min(first) if min(first) != _LATEST else UNKNOWN,
    )
