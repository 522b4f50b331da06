"""Why a device does not compute: each time without a compute kernel by what the host, and then the device, does meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.trace.arrays import integers, is_one_of
from alltrace.trace.intervals import Merged, containing, difference, gaps, intersection, merge, overlap_ns, union
from alltrace.trace.kernel_rules import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables
    from alltrace.trace.arrays import Int64

HOST_CLASSES = ("allocation", "pageable-copy", "sync-copy", "sync", "data", "host-pause", "launch")
"""What the host does while it has not launched the next kernel; of several at once the first counts."""

CLASSES = ("compute", *HOST_CLASSES, "communication", "copy", "idle")
"""All classes of a rank's time: compute runs; the host is late; queued work waits for communication, a copy, or nothing."""

_SYNC = re.compile(r"^cu(?:da)?(?:Device|Stream|Event|Ctx|Thread)Synchronize", re.IGNORECASE)
_ALLOCATION = re.compile(r"^cu(?:da)?(?:Malloc|Free|HostAlloc|Mem(?:Alloc|Free|HostAlloc|Create|Release|Map|Unmap))", re.IGNORECASE)
_ASYNC_ALLOCATION = re.compile(r"async", re.IGNORECASE)
_COPY = re.compile(r"^cu(?:da)?Memcpy", re.IGNORECASE)
_DATA_RANGE = re.compile(
    r"(?:^|[^a-z])(?:data|dataloader|next_?batch|load_?batch|get_?batch|batch_?load|fetch)(?:[^a-z]|$)", re.IGNORECASE
)
_DATA_CALL = re.compile(r"^(?:p?read(?:64|v)?|fread|recv(?:from|msg)?)$", re.IGNORECASE)

SILENCE_NS = 1_000_000
"""A time without any API call that is at least this long is a pause of the host; shorter ones are the pace of launching."""

_LAUNCHED = {"start": 0, "end": 0, "correlation": -1, "process": -1}
"""What is read of work that calls launched, and what stands for null."""

_RETURNING_NS = 20_000
"""A device that runs dry within this time of a blocking call's end ran dry because of the call."""


@dataclass(frozen=True)
class HostSets:
    """What the host did, as sets of intervals by class, and the name that each class is mostly made of."""

    sets: Mapping[str, Merged]
    names: Mapping[str, str]
    calls: Mapping[str, int]


@dataclass(frozen=True)
class Activity:
    """The work of a rank's devices as one, sorted compute kernels and their launches.

    Attributes:
        compute, communication, copies: When at least one runs.
        starts: int64 array of the starts of compute kernels, ascending.
        launch_start, launch_end: When their launching calls began and ended; their own start where no call is known.
    """

    compute: Merged
    communication: Merged
    copies: Merged
    starts: Int64
    launch_start: Int64
    launch_end: Int64


def is_pageable(copies: Any) -> NDArray[np.bool_]:
    """Which copies are from or to pageable memory."""
    return is_one_of(copies.column("src_kind"), ("pageable",)) | is_one_of(copies.column("dst_kind"), ("pageable",))


def coded_names(rank: RankTables, table: Any) -> tuple[Int64, list[str]]:
    """The names of a table's rows as codes and texts, without versions such as `_v3020`."""
    encoded = table.column("name").combine_chunks().dictionary_encode()
    texts = [re.sub(r"_v\d+$", "", t or "") for t in rank.texts(encoded.dictionary).to_pylist()]
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), texts


def activity(rank: RankTables, api: Any) -> Activity:
    """The work of a rank's devices; `api` has start, end, process and correlation."""
    kernels = rank.table("kernels", ("start", "end", "correlation", "kind", "process"))
    graphs = rank.table("graphs", ("start", "end", "correlation", "process"))
    copies = rank.table("copies", ("start", "end"))
    talks = is_one_of(kernels.column("kind"), COMMUNICATION)
    of_kernels, of_graphs = ([integers(table.column(c), null) for c, null in _LAUNCHED.items()] for table in (kernels, graphs))
    own = [np.concatenate((a[~talks], b)) for a, b in zip(of_kernels, of_graphs, strict=True)]
    order = np.argsort(own[0], kind="stable")
    starts, ends, correlations, processes = (c[order] for c in own)
    launched, returned = _launches(api, processes, correlations, starts)
    return Activity(
        compute=merge(starts, ends),
        communication=merge(of_kernels[0][talks], of_kernels[1][talks]),
        copies=merge(integers(copies.column("start")), integers(copies.column("end"))),
        starts=starts,
        launch_start=launched,
        launch_end=returned,
    )


def _launches(api: Any, processes: Int64, correlations: Int64, starts: Int64) -> tuple[Int64, Int64]:
    keys, correlations = _joined(api, processes, correlations)
    if not len(keys):
        return starts.copy(), starts.copy()
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], correlations), len(keys) - 1)
    row = order[at]
    known = (keys[row] == correlations) & (correlations >= 0)
    return np.where(known, integers(api.column("start"))[row], starts), np.where(known, integers(api.column("end"))[row], starts)


def _joined(api: Any, processes: Int64, correlations: Int64) -> tuple[Int64, Int64]:
    """A number for each call and for each piece of work, equal where one launched the other; below 0 where none is known.

    Correlation ids count within a process, and a rank may have several.
    """
    owner = np.concatenate((integers(api.column("process"), -1), processes))
    ids = np.concatenate((integers(api.column("correlation"), -1), correlations))
    if len(owner) and (owner != owner[0]).any():
        distinct, codes = np.unique(ids, return_inverse=True)
        ids = np.where(ids >= 0, (owner + 1) * len(distinct) + codes.reshape(-1), -1)
    return ids[: api.num_rows], ids[api.num_rows :]


def host_sets(rank: RankTables, api: Any) -> HostSets:
    """What the host did; `api` has start, end, process, correlation and name."""
    start, end = integers(api.column("start")), integers(api.column("end"))
    codes, texts = coded_names(rank, api)
    copies = rank.table("copies", ("correlation", "src_kind", "dst_kind", "process"))
    pageable = is_pageable(copies)
    # a synchronous copy is one for its own sake, from whatever memory
    is_copy = np.isin(codes, [i for i, t in enumerate(texts) if _COPY.match(t)])
    later = np.isin(codes, [i for i, t in enumerate(texts) if "async" in t.lower()])
    launching, launched = _joined(api, integers(copies.column("process"), -1), integers(copies.column("correlation"), -1))
    from_pageable = np.isin(launching, launched[pageable]) & (launching >= 0)
    chosen = {
        "allocation": np.isin(codes, [i for i, t in enumerate(texts) if _ALLOCATION.match(t) and not _ASYNC_ALLOCATION.search(t)]),
        "pageable-copy": is_copy & later & from_pageable,
        "sync-copy": is_copy & ~later,
        "sync": np.isin(codes, [i for i, t in enumerate(texts) if _SYNC.match(t)]),
    }
    sets, names, calls = {}, {}, {}
    for name, rows in chosen.items():
        sets[name] = merge(start[rows], end[rows])
        calls[name] = int(rows.sum())
        if calls[name]:
            total = np.bincount(codes[rows], weights=(end - start)[rows])
            names[name] = texts[int(total.argmax())]
    sets["data"], names["data"] = _data(rank)
    active = merge(start, end)
    quiet = gaps(active)
    long = quiet.durations_ns >= SILENCE_NS
    sets["host-pause"] = difference(Merged(quiet.starts[long], quiet.ends[long]), sets["data"])
    return HostSets(sets, names, calls)


def _data(rank: RankTables) -> tuple[Merged, str]:
    """When the program said that it waits for data, or read; and the name of that."""
    sets: list[Merged] = []
    name = ""
    for table, pattern in (("ranges", _DATA_RANGE), ("osrt", _DATA_CALL)):
        rows = rank.table(table, ("start", "end", "name"))
        codes, texts = coded_names(rank, rows)
        wanted = [i for i, t in enumerate(texts) if len(t) < 200 and pattern.search(t)]
        start, end = integers(rows.column("start")), integers(rows.column("end"))
        mine = np.isin(codes, wanted) & (end > start)  # what is still open, or takes no time, tells nothing
        if mine.any():
            start, end = start[mine], end[mine]
            sets.append(merge(start, end))
            name = name or texts[int(np.bincount(codes[mine], weights=end - start).argmax())]
    return union(sets), name


def classify(work: Activity, host: HostSets, regions: Int64) -> tuple[Int64, Merged]:
    """How the time of each region divides into `CLASSES`, and when communication is what a device waits for.

    A device that does not compute waits for its next kernel. Until the call that launches it has returned, the host is late; what
    it did meanwhile counts, by priority; what is left of a gap that begins as a blocking call returns is that call's. After that
    the kernel is queued and waits for communication or a copy that runs, or stands idle.

    Args:
        work: The rank's work.
        host: What its host did.
        regions: int64 array (n, 2) of regions, ascending, without overlap.

    Returns:
        int64 array (n, len(CLASSES)), ns, whose rows sum to the regions' lengths; and the intervals of `communication`.
    """
    count = len(regions)
    times = np.zeros((count, len(CLASSES)), np.int64)
    whole = Merged(regions[:, 0].copy(), regions[:, 1].copy())
    at = {name: n for n, name in enumerate(CLASSES)}
    times[:, at["compute"]] = overlap_ns(whole.starts, whole.ends, work.compute)
    holes = difference(Merged(whole.starts, whole.ends), work.compute) if count else Merged(whole.starts, whole.ends)
    if not len(holes.starts):
        return times, Merged(holes.starts, holes.ends)
    region = np.searchsorted(whole.starts, holes.starts, "right") - 1
    following = np.searchsorted(work.starts, holes.starts, "left")
    there = following < len(work.starts)
    following = np.minimum(following, max(len(work.starts) - 1, 0))
    launched = np.where(there, work.launch_end[following], holes.starts) if len(work.starts) else holes.starts
    launched = np.clip(launched, holes.starts, holes.ends)
    # the host is late from the start of the hole to the end of the launching call
    taken = Merged(np.empty(0, np.int64), np.empty(0, np.int64))
    left = launched - holes.starts
    long = left > 0
    for name in HOST_CLASSES[:-1]:
        fresh = difference(host.sets[name], taken)
        part = np.zeros(len(left), np.int64)
        part[long] = overlap_ns(holes.starts[long], launched[long], fresh)
        np.add.at(times[:, at[name]], region, part)
        left = left - part
        taken = union((taken, host.sets[name]))
    cause = np.full(len(left), at["launch"])
    for name in ("sync", "sync-copy", "pageable-copy", "allocation"):
        reach = host.sets[name]
        near = merge(reach.starts, reach.ends + _RETURNING_NS)
        cause[containing(near, holes.starts) >= 0] = at[name]
    np.add.at(times, (region, cause), left)
    # then the kernel is queued
    waits = Merged(launched[holes.ends > launched], holes.ends[holes.ends > launched])
    whose = region[holes.ends > launched]
    talking = intersection(waits, work.communication)
    moved = overlap_ns(waits.starts, waits.ends, difference(work.copies, work.communication))
    talked = overlap_ns(waits.starts, waits.ends, work.communication)
    for name, part in (("communication", talked), ("copy", moved), ("idle", waits.ends - waits.starts - talked - moved)):
        np.add.at(times[:, at[name]], whose, part)
    return times, talking


def regions_of(steps: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64]:
    """The judged steps of a rank and the region of each: from the end of the step before on the device to its own end there.

    Args:
        steps: Rows of the rank's steps, any order.

    Returns:
        int64 array of n numbers, and (n, 2) of times. Warm-up and checkpoint steps are left out, as are those without device work.
    """
    ordered = sorted((s for s in steps if s["device_start"] is not None), key=lambda s: s["start"])
    chosen, spans, reached = [], [], None
    for row in ordered:
        start = row["start"] if reached is None else max(row["start"], reached)
        end = max(row["device_end"], start)
        reached = end if reached is None else max(reached, end)
        if row["kind"] == "step" and end > start:
            chosen.append(row["step"])
            spans.append((start, end))
    return np.array(chosen, np.int64), np.array(spans, np.int64).reshape(-1, 2)
