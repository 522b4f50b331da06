"""What a rank did on its devices and where its host waited, as flat arrays: what a rank's graph is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, coded, integers, is_true
from alltrace.trace.distinct import distinct
from alltrace.trace.kernel_rules import NOT_COMPUTE

COMPUTE, COPY, TRANSFER, OTHER = 0, 1, 2, 3
"""Classes of device work: kernels and graphs, copies, matched collectives, communication that no other rank's matches."""

UNKNOWN = np.iinfo(np.int64).min
_WAITING = re.compile(
    r"^(cudaDeviceSynchronize|cudaStreamSynchronize|cudaEventSynchronize|cuCtxSynchronize|cuStreamSynchronize|cuEventSynchronize"
    r"|cudaThreadSynchronize|cudaMemcpy(2D|3D|ToSymbol|FromSymbol)?|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?|cudaFree|cudaMalloc"
    r"|cudaHostAlloc|cudaFreeHost"
    r"|hip(Device|Stream|Event|Ctx)Synchronize|hipMemcpy(2D|3D|ToSymbol|FromSymbol|HtoD|DtoH|DtoD)?|hipFree|hipMalloc"
    r"|hipHost(Alloc|Malloc|Free)|hipFreeHost)(_v\d+)?(_ptsz|_ptds|_spt)?$"
)

EVERY, ELSEWHERE = -1, -2

_QUEUE = 1_000
"""A stream's queue is full with 1024 pieces of work or a few more; who launches another one waits until one of them begins."""

_BLOCKED_NS = 50_000
"""A call that takes this long may have waited for the device."""

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
    """Device work of one rank, sorted by track and start; arrays of n values.

    Attributes:
        start: Start, ns.
        end: End, ns.
        track: Number of its (device, stream).
        launch: Start of the call that launched it, ns; `UNKNOWN` if there is none.
        launched: End of that call, ns, likewise.
        kind: Its class.
        name: Id of the kernel's name; for a copy a negative number for its kind.
        tracks: For each track its (device, stream).
        rows: For a matched collective the rows of `collectives` that it is, by the number of the work.
    """

    start: Int64
    end: Int64
    track: Int64
    launch: Int64
    launched: Int64
    kind: Int64
    name: Int64
    tracks: list[tuple[int, int]]
    rows: dict[int, list[int]]


@dataclass
class Waits:
    """Host calls that may wait for a device, sorted by end, and the orders for streams to wait; arrays.

    Attributes:
        start: int64 array of k starts, ns.
        end: int64 array of k ends.
        track: int64 array of k: the track waited for, `EVERY`, or `ELSEWHERE` for a device without work here.
        order_at: int64 array of j: when a stream was told to wait for another.
        order_track: int64 array of j: that stream's track.
        first_call: Start of the first call or range of all, or `UNKNOWN`.
    """

    start: Int64
    end: Int64
    track: Int64
    order_at: Int64
    order_track: Int64
    first_call: int


def copy_name(word: str | None) -> int:
    """The number for a kind of copy in `Work.name`."""
    return -1 - crc32((word or "").encode())


def read(rank: Rank, matched: Int64) -> tuple[Work, Waits]:
    """The work of a rank and its waits.

    Args:
        rank: The rank's tables.
        matched: Rows of its `collectives` that are matched.
    """
    several = rank.has("processes") and rank.table("processes", ["process"]).num_rows > 1
    parts = [p for p in (_kernels(rank, several), _copies(rank, several), _graphs(rank, several)) if len(p["start"])]
    api = rank.table("api", TABLES["api"])
    calls = {c: integers(api.column(c), UNKNOWN) for c in ("start", "end", "correlation")}
    if several:
        calls["correlation"] = _apart(rank, "api", calls["correlation"])
    if parts:
        joined = {c: np.concatenate([p[c] for p in parts]) for c in parts[0]}
    else:
        joined = {c: np.empty(0, np.int64) for c in ("start", "end", "device", "stream", "correlation", "kind", "name")}
    joined["end"] = np.maximum(joined["start"], joined["end"])
    tracks, joined["track"] = _tracks(joined["device"], joined["stream"])
    joined["launch"] = _looked_up(calls["correlation"], calls["start"], joined["correlation"])
    joined["launched"] = _looked_up(calls["correlation"], calls["end"], joined["correlation"])
    unknown = joined["launch"] > joined["start"]
    joined["launch"][unknown] = joined["launched"][unknown] = UNKNOWN
    order = np.lexsort((joined["end"], joined["start"], joined["track"]))
    joined = {c: v[order] for c, v in joined.items()}
    work = _merged(rank, joined, tracks, matched)
    waits = _waits(rank, api, calls, tracks, several=several)
    return work, _with_blocked_calls(waits, work)


def _with_blocked_calls(waits: Waits, work: Work) -> Waits:
    """The waits, and the calls that launch work and waited: for a place in a full queue, or for their own copy to end."""
    long = (work.launch != UNKNOWN) & (work.launched - work.launch >= _BLOCKED_NS)
    long[long] = ~np.isin(work.launch[long], waits.start)
    blocked = []
    for number in np.unique(work.track[long]).tolist():
        low, high = np.searchsorted(work.track, (number, number + 1)).tolist()
        mine = low + np.flatnonzero(work.launch[low:high] != UNKNOWN)
        mine = mine[np.argsort(work.launch[mine], kind="stable")]
        ended = np.searchsorted(np.sort(work.end[mine]), work.launch[mine], "right")
        full = np.arange(len(mine)) - ended >= _QUEUE
        copied = (work.kind[mine] == COPY) & (work.launched[mine] >= work.end[mine])
        blocked.append(mine[long[mine] & (full | copied)])
    rows = np.concatenate(blocked) if blocked else np.empty(0, np.int64)
    if not len(rows):
        return waits
    start, end, track = (
        np.concatenate(both)
        for both in ((waits.start, work.launch[rows]), (waits.end, work.launched[rows]), (waits.track, work.track[rows]))
    )
    order = np.argsort(end, kind="stable")
    return replace(waits, start=start[order], end=end[order], track=track[order])


def _tracks(device: Int64, stream: Int64) -> tuple[list[tuple[int, int]], Int64]:
    """The (device, stream) there are, ascending, and the number of each row's."""
    devices, of_device = distinct(device)
    streams, of_stream = distinct(stream)
    keys, track = distinct(of_device * max(len(streams), 1) + of_stream)
    pairs = [divmod(int(k), max(len(streams), 1)) for k in keys]
    return [(int(devices[d]), int(streams[s])) for d, s in pairs], track


def _apart(rank: Rank, table: str, correlation: Int64) -> Int64:
    """Correlations that differ between processes, each of which counts its own from 1 in 32 bits; -1 if there is none."""
    process = integers(rank.table(table, ["process"]).column("process"), -1)
    keys: Int64 = np.where(correlation >= 0, ((process + 1) << 33) + correlation, -1)
    return keys


def _base(rank: Rank, table: str, several: bool) -> tuple[Any, dict[str, Int64]]:
    found = rank.table(table, TABLES[table])
    columns = {c: integers(found.column(c), -1) for c in ("device", "stream", "correlation")}
    if several:
        columns["correlation"] = _apart(rank, table, columns["correlation"])
    columns |= {c: integers(found.column(c)) for c in ("start", "end")}
    return found, columns


def _kernels(rank: Rank, several: bool) -> dict[str, Int64]:
    table, columns = _base(rank, "kernels", several)
    words, codes = coded(table.column("kind"))
    columns["kind"] = np.array([*(OTHER if w in NOT_COMPUTE else COMPUTE for w in words.to_pylist()), COMPUTE], np.int64)[codes]
    columns["name"] = integers(table.column("name"))
    return columns


def _copies(rank: Rank, several: bool) -> dict[str, Int64]:
    table, columns = _base(rank, "copies", several)
    words, codes = coded(table.column("kind"))
    columns["kind"] = np.where(is_true(table.column("collective")), OTHER, COPY).astype(np.int64)
    columns["name"] = np.array([*map(copy_name, words.to_pylist()), copy_name(None)], np.int64)[codes]
    return columns


def _graphs(rank: Rank, several: bool) -> dict[str, Int64]:
    table, columns = _base(rank, "graphs", several)
    columns["kind"] = np.full(table.num_rows, COMPUTE, np.int64)
    columns["name"] = np.full(table.num_rows, copy_name("graph"), np.int64)
    return columns


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
    found = (keys[at] == wanted) & (wanted >= 0)
    result[found] = values[at[found]]
    return result


def _merged(rank: Rank, columns: dict[str, Int64], tracks: list[tuple[int, int]], matched: Int64) -> Work:
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
        first, after = np.full(len(matched), -1, np.int64), np.full(len(matched), -1, np.int64)
        for track, (d, s) in enumerate(tracks):
            mine = np.flatnonzero((device == d) & (stream == s) & (begin != UNKNOWN))
            low, high = int(bounds[track]), int(bounds[track + 1])
            at = low + np.searchsorted(columns["start"][low:high], begin[mine])
            there = at < high
            there[there] = (columns["start"][at[there]] == begin[mine][there]) & talk[at[there]]
            first[mine[there]] = at[there]
            after[mine] = low + np.searchsorted(columns["start"][low:high], finish[mine])
        found = np.flatnonzero(first >= 0)
        for row, at in zip(matched[found].tolist(), first[found].tolist(), strict=True):
            rows.setdefault(at, []).append(row)
        for at, until in zip(*(v[found][after[found] > first[found] + 1].tolist() for v in (first, after)), strict=True):
            own = np.arange(at + 1, until)
            keep[own[talk[own]]] = False
        np.maximum.at(columns["end"], first[found], finish[found])
        columns["kind"][first[found]] = TRANSFER
    keep[list(rows)] = True
    place = np.cumsum(keep) - 1
    kept = {c: columns[c][keep] for c in ("start", "end", "track", "launch", "launched", "kind", "name")}
    return Work(**kept, tracks=tracks, rows={int(place[n]): r for n, r in rows.items()})


def _waits(rank: Rank, api: Any, calls: dict[str, Int64], tracks: list[tuple[int, int]], *, several: bool) -> Waits:
    number = {pair: n for n, pair in enumerate(tracks)}
    start, end, track = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    syncs, columns = _base(rank, "syncs", several)
    words, codes = coded(syncs.column("kind"))
    kinds = np.array([*words.to_pylist(), None], object)[codes]
    pairs = zip(columns["device"].tolist(), columns["stream"].tolist(), strict=True)
    of_sync = np.array([number.get(p, -1) for p in pairs], np.int64) if syncs.num_rows else np.empty(0, np.int64)
    named, ordering = kinds == "stream", (kinds == "stream-wait") & (of_sync >= 0)
    if api.num_rows:
        ids, at = coded(api.column("name"))
        wanted = np.array([*(bool(w and _WAITING.match(w)) for w in rank.texts(ids).to_pylist()), False])[at]
        rows = np.flatnonzero(wanted & (calls["end"] >= calls["start"]))
        rows = rows[np.argsort(calls["end"][rows], kind="stable")]
        start, end = calls["start"][rows], calls["end"][rows]
        track = _looked_up(columns["correlation"][named], of_sync[named], calls["correlation"][rows])
        track = np.where(track == UNKNOWN, EVERY, track)
        own = [device for device, _ in tracks]
        other = ~np.isin(columns["device"], own) & (columns["device"] >= 0) & (-1 not in own)
        elsewhere = _looked_up(columns["correlation"][other], columns["device"][other], calls["correlation"][rows])
        track[elsewhere != UNKNOWN] = ELSEWHERE
    begun = integers(rank.table("ranges", TABLES["ranges"]).column("start"), UNKNOWN)
    begun = np.concatenate((begun[begun != UNKNOWN], calls["start"]))
    return Waits(
        start,
        end,
        track,
        columns["start"][ordering],
        of_sync[ordering],
        int(begun.min()) if len(begun) else UNKNOWN,
    )
