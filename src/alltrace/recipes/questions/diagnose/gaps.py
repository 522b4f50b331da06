"""Why a device does not compute: each time without a compute kernel by what the host, and then the device, does meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers, is_one_of, is_true
from alltrace.trace.intervals import NOTHING, Merged, containing, difference, intersection, merge, overlap_ns, union
from alltrace.trace.kernel_rules import NOT_COMPUTE

HOST_CLASSES = (
    "data",
    "compilation",
    "module-loading",
    "allocation",
    "pageable-copy",
    "sync-copy",
    "sync",
    "host-pause",
    "launch",
)
"""What the host does while it has not launched the next kernel; of several at once the first counts."""

CLASSES = ("compute", "short-kernels", *HOST_CLASSES, "communication", "transfer", "copy", "kernel-gap", "idle", "unknown")
"""All classes of a rank's time: compute runs, or rows of kernels that are no longer than an empty one; the host is late; queued
work waits for communication, a transfer between host and device or between devices, a copy or fill within the device, or nothing,
for as short as any device takes from one kernel to the next, or longer; nothing runs, and no call is known to launch what comes."""

_EMPTY_KERNEL_NS = 4_000
"""A kernel of this length or less does nothing that can be measured: an empty one takes 1 to 3 microseconds."""

_DEVICE_GAP_NS = 5_000
"""A pause between queued kernels up to this long is how devices work."""

_LAUNCHED = {"start": 0, "end": 0, "correlation": -1, "process": -1}
"""The columns of work that calls launched, with their values for null."""

WITHIN_A_DEVICE = ("memset", "DtoD", "UvmDtoD", "AtoA", "AtoD", "DtoA")
"""Kinds of copies that move nothing over a link."""

_RETURNING_NS = 20_000
"""A device that runs dry within this time of a blocking call's end ran dry because of the call."""


@dataclass(frozen=True)
class HostSets:
    """What the host did."""

    sets: Mapping[str, Merged]  # intervals by class, which may overlap
    names: Mapping[str, str]  # the most frequent name in each class
    calls: Mapping[str, int]  # its number of calls or ranges
    known: bool = True  # whether the report has calls
    # when it exchanged data with other ranks itself, by MPI: it waits for them, or transfers
    exchanges: Merged = NOTHING
    # when it waited for a batch that another thread or process prepares, as far as that is certain
    batches: Merged = NOTHING
    # rows of `threads`: those that launch kernels
    threads: Int64 = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Activity:
    """The work of a rank's devices as one, sorted compute kernels and their launches."""

    compute: Merged
    short: Merged  # when only rows of queued kernels as short as an empty one run, with the pauses after them
    communication: Merged
    copies: Merged
    transfers: Merged  # when a copy from or to the host or another device runs, from or to memory that is not pageable
    # when one of these runs and its call had returned before it ended, so that no host waits for the copy itself
    queued: Merged
    pageable: Merged  # when one from or to pageable memory runs
    # int64 array of the starts of compute kernels, ascending. launch_start, launch_end: When their launching calls
    # began and ended; their own start if no call is known
    starts: Int64
    launch_start: Int64
    launch_end: Int64
    launched: NDArray[np.bool_]  # whether a call is known to have launched each
    # when the call ended that launched the last kernel of another kind, such as a barrier's; 0 if none is known
    last_other_launch: int = 0


def is_pageable(copies: Any) -> NDArray[np.bool_]:
    """Which copies are from or to pageable memory."""
    return is_one_of(copies.column("src_kind"), ("pageable",)) | is_one_of(copies.column("dst_kind"), ("pageable",))


def activity(rank: Rank, api: Any) -> Activity:
    """The work of a rank's devices; `api` has start, end, process and correlation."""
    kernels = rank.table("kernels", ("start", "end", "correlation", "kind", "process", "graph_node"))
    of_host = np.full(kernels.num_rows, rank.host_work is not None)
    graphs = rank.table("graphs", ("start", "end", "correlation", "process"))
    copies = rank.table("copies", ("start", "end", "correlation", "kind", "process", "src_kind", "dst_kind", "collective"))
    exchanges = is_true(copies.column("collective"))
    exchanged = [integers(copies.column(c))[exchanges] for c in ("start", "end")]
    copies = copies.filter(pa.array(~exchanges))
    copied = [integers(copies.column(c)) for c in ("start", "end")]
    pageable = is_pageable(copies)
    moving = ~pageable & ~is_one_of(copies.column("kind"), WITHIN_A_DEVICE)
    talks = is_one_of(kernels.column("kind"), NOT_COMPUTE)
    of_kernels, of_graphs = ([integers(table.column(c), null) for c, null in _LAUNCHED.items()] for table in (kernels, graphs))
    own = [np.concatenate((a[~talks], b)) for a, b in zip(of_kernels, of_graphs, strict=True)]
    order = np.argsort(own[0], kind="stable")
    starts, ends, correlations, processes = (c[order] for c in own)
    called, returned, launched = _launches(api, processes, correlations, starts)
    _, copy_returned, copy_launched = _launches(
        api, integers(copies.column("process"), -1), integers(copies.column("correlation"), -1), copied[0]
    )
    queued = moving & copy_launched & (copy_returned < copied[1])
    _, others_returned, _ = _launches(api, of_kernels[3][talks], of_kernels[2][talks], np.zeros(int(talks.sum()), np.int64))
    in_graph = (of_host | np.asarray(kernels.column("graph_node").is_valid().to_numpy(zero_copy_only=False), np.bool_))[~talks]
    hidden = np.concatenate((in_graph, np.ones(graphs.num_rows, np.bool_)))[order]
    return Activity(
        compute=merge(starts, ends),
        short=_short(starts, ends, np.where(launched, returned, starts), hidden),
        communication=merge(*(np.concatenate((of_kernels[n][talks], exchanged[n])) for n in (0, 1))),
        copies=merge(*copied),
        transfers=merge(*(c[moving] for c in copied)),
        queued=merge(*(c[queued] for c in copied)),
        pageable=merge(*(c[pageable] for c in copied)),
        starts=starts,
        launch_start=called,
        launch_end=returned,
        launched=launched,
        last_other_launch=int(others_returned.max(initial=0)),
    )


def _short(starts: Int64, ends: Int64, returned: Int64, in_graph: NDArray[np.bool_]) -> Merged:
    """When rows of short kernels run, each of which was queued before the one ahead of it ended, and nothing else computes.

    `starts`: Starts of compute kernels, ascending.
    """
    if len(starts) < 2:
        return NOTHING
    short = (ends - starts <= _EMPTY_KERNEL_NS) & ~in_graph
    pause = starts[1:] - ends[:-1]
    linked = short[1:] & short[:-1] & (pause >= 0) & (pause <= _DEVICE_GAP_NS) & (returned[1:] <= ends[:-1])
    mine = np.append(linked, False) | np.append(False, linked)
    until = ends.copy()
    until[:-1] += np.where((pause >= 0) & (pause <= _DEVICE_GAP_NS) & (returned[1:] <= ends[:-1]), pause, 0)
    return difference(merge(starts[mine], until[mine]), merge(starts[~mine], ends[~mine]))


def _launches(api: Any, processes: Int64, correlations: Int64, starts: Int64) -> tuple[Int64, Int64, NDArray[np.bool_]]:
    """When the calls that launched work began and ended, and whether one is known; if none is, when the work began."""
    keys, correlations = joined(api, processes, correlations)
    if not len(keys):
        return starts.copy(), starts.copy(), np.zeros(len(starts), np.bool_)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], correlations), len(keys) - 1)
    row = order[at]
    known = (keys[row] == correlations) & (correlations >= 0)
    start, end = (np.where(known, integers(api.column(c))[row], starts) for c in ("start", "end"))
    return start, end, known


def joined(api: Any, processes: Int64, correlations: Int64) -> tuple[Int64, Int64]:
    """A number for each call and for each piece of work, equal if one launched the other; below 0 if none is known.

    Correlation ids count within a process, and a rank may have several.
    """
    owner = np.concatenate((integers(api.column("process"), -1), processes))
    ids = np.concatenate((integers(api.column("correlation"), -1), correlations))
    if len(owner) and (owner != owner[0]).any():
        distinct, codes = np.unique(ids, return_inverse=True)
        ids = np.where(ids >= 0, (owner + 1) * len(distinct) + codes.reshape(-1), -1)
    return ids[: api.num_rows], ids[api.num_rows :]


def classify(work: Activity, host: HostSets, regions: Int64) -> tuple[Int64, Merged]:
    """How the time of each region divides into `CLASSES`, and when communication is what a device waits for.

    A device that does not compute waits for its next kernel. Until the call that launches it has returned, the host is late; what
    it did meanwhile counts, by priority; what is left of a gap that begins as a blocking call returns is that call's. After that
    the kernel is queued and waits for communication or a copy that runs, or stands idle; up to `_DEVICE_GAP_NS` is the time that
    devices take between kernels. A host that waits for a device which does
    nothing but a transfer is not late: the transfer is. Time in which the device copies is never the pace of launching. Where no
    call is known to have launched the next kernel, only what the host says of itself and what the device runs can be told, and the
    rest is unknown.

    `regions`: int64 array (n, 2) of regions, ascending, without overlap. Returns int64 array (n, len(CLASSES)), ns,
    with rows that sum to the regions' lengths; and the intervals of `communication`.
    """
    count = len(regions)
    times = np.zeros((count, len(CLASSES)), np.int64)
    at = {name: n for n, name in enumerate(CLASSES)}
    whole = Merged(regions[:, 0].copy(), regions[:, 1].copy())
    times[:, at["short-kernels"]] = overlap_ns(whole.starts, whole.ends, work.short)
    times[:, at["compute"]] = overlap_ns(whole.starts, whole.ends, difference(work.compute, work.short))
    holes = difference(whole, union((work.compute, work.short))) if count else whole
    if not len(holes.starts):
        return times, Merged(holes.starts, holes.ends)
    region = np.searchsorted(whole.starts, holes.starts, "right") - 1
    launched, known = _launched(work, holes)
    taken = NOTHING
    left = launched - holes.starts
    late = np.flatnonzero(left > 0)
    for name, intervals in _host_classes(work, host):
        part = overlap_ns(holes.starts[late], launched[late], difference(intervals, taken))
        np.add.at(times[:, at[name]], region[late], part)
        left[late] -= part
        taken = union((taken, intervals))
    talking = intersection(Merged(holes.starts[late], launched[late]), union((host.exchanges, _awaited(work, host))))
    # what is left of a gap is of the call that returned as it began, else of the pace of launching
    cause = np.full(len(left), at["launch"])
    for name in ("sync", "sync-copy", "pageable-copy", "allocation"):
        reach = host.sets[name]
        near = merge(reach.starts, reach.ends + _RETURNING_NS)
        cause[containing(near, holes.starts) >= 0] = at[name]
    np.add.at(times, (region[known], cause[known]), left[known])
    # then the kernel is queued, or may be
    queued = Merged(launched[holes.ends > launched], holes.ends[holes.ends > launched])
    hidden = difference(Merged(holes.starts[~known], launched[~known]), taken)
    for waits, rest in ((queued, "idle"), (hidden, "unknown")):
        whose = np.searchsorted(whole.starts, waits.starts, "right") - 1
        remains = waits.ends - waits.starts
        busy = NOTHING
        for name, intervals in (
            ("communication", work.communication),
            ("pageable-copy", work.pageable),
            ("transfer", work.transfers),
            ("copy", work.copies),
        ):
            part = overlap_ns(waits.starts, waits.ends, difference(intervals, busy))
            np.add.at(times[:, at[name]], whose, part)
            remains -= part
            busy = union((busy, intervals))
        short = remains <= (_DEVICE_GAP_NS if rest == "idle" else 0)
        np.add.at(times[:, at["kernel-gap"]], whose[short], remains[short])
        np.add.at(times[:, at[rest]], whose[~short], remains[~short])
        talking = union((talking, intersection(waits, work.communication)))
    return times, talking


def _launched(work: Activity, holes: Merged) -> tuple[Int64, NDArray[np.bool_]]:
    """Until when the host is late with the kernel after each hole, ns within the hole, and whether its launch is known.

    After the last kernel that computes the host is late with the last one of another kind, if one follows.
    """
    if not len(work.starts):
        return np.clip(work.last_other_launch, holes.starts, holes.ends), np.ones(len(holes.starts), np.bool_)
    following = np.searchsorted(work.starts, holes.starts, "left")
    there = following < len(work.starts)
    following = np.minimum(following, len(work.starts) - 1)
    known = ~there | work.launched[following]
    launched = np.where(there, np.where(known, work.launch_end[following], holes.ends), work.last_other_launch)
    return np.clip(launched, holes.starts, holes.ends), known


def _host_classes(work: Activity, host: HostSets) -> Iterator[tuple[str, Merged]]:
    """The classes of a late host with their intervals, of which the first counts."""
    yield "communication", host.exchanges
    for name in HOST_CLASSES[:-1]:
        if name == "sync":
            yield "communication", _awaited(work, host)
            yield "pageable-copy", intersection(host.sets["sync"], difference(work.pageable, work.communication))
            yield "transfer", intersection(host.sets["sync"], difference(work.transfers, work.communication))
        if name in ("allocation", "pageable-copy", "sync-copy"):
            yield "transfer", intersection(host.sets[name], difference(work.queued, work.communication))
        yield name, host.sets[name]
    # a device that copies does not wait to be given work: what is left is the pace of launching, and this is not part of it
    for name, copying in (("pageable-copy", work.pageable), ("transfer", work.transfers), ("copy", work.copies)):
        yield name, difference(copying, work.communication)


def _awaited(work: Activity, host: HostSets) -> Merged:
    """When the host waits for a device that communicates and copies nothing: it waits for other ranks, or for what they send."""
    return intersection(host.sets["sync"], difference(work.communication, work.copies))


def regions_of(
    steps: Sequence[Mapping[str, Any]], starts: Int64, *, serves: bool = False, last_end: int = 0
) -> tuple[Int64, Int64]:
    """The judged steps of a rank and the region of each: from the end of the step before on the device to its own end there.

    A program is in its loop until the next step begins: what it does after the last kernel of a step keeps the device waiting,
    within the step's range or after it. A region begins with its own step instead if the step before it is not recorded or not
    judged, if the device computed between the two, such as for an evaluation, or if a server waited for requests.

    `starts`: int64 array of the starts of the rank's compute kernels, ascending. `last_end`: when the rank's last communication
    ends, which is in the last step if nothing computes in between, and it is not longer than the step. Returns int64 array of n
    numbers, and (n, 2) of times. Warm-up and checkpoint steps are left out, as are those without device work; and, if others
    remain, those after a checkpoint, which alone begin with nothing queued.
    """
    ordered = sorted((s for s in steps if s["device_start"] is not None), key=lambda s: s["start"])
    saved = {s["step"] + 1 for s in ordered if s["kind"] == "checkpoint"}
    if all(s["step"] in saved for s in ordered if s["kind"] == "step"):
        saved = set()
    chosen, spans = [], []
    reached, before = None, None
    for row in ordered:
        follows = not serves and before is not None and (before["kind"], before["step"]) == ("step", row["step"] - 1)
        if reached is None:
            start = row["start"]
        elif follows and not _any_between(starts, reached, row["start"]):
            start = reached
        else:
            start = max(row["start"], reached)
        end = max(row["device_end"], start)
        if row is ordered[-1] and last_end - end <= end - start and not _any_between(starts, end, last_end):
            end = max(end, last_end)
        reached = end if reached is None else max(reached, end)
        before = row
        if row["kind"] == "step" and end > start and row["step"] not in saved:
            chosen.append(row["step"])
            spans.append((start, end))
    return np.array(chosen, np.int64), np.array(spans, np.int64).reshape(-1, 2)


def _any_between(moments: Int64, begin: int, end: int) -> bool:
    """Whether any of the moments, ascending, is in a time."""
    return int(np.searchsorted(moments, begin)) < int(np.searchsorted(moments, end))
