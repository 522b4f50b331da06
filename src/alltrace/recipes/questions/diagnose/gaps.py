"""Why a device does not compute: times without compute by what the host, then the device, does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.questions.diagnose.calls import Calls, is_pageable
from alltrace.replay.work import FULL_QUEUE
from alltrace.trace.arrays import Flags, Int64, blocks, integers, is_one_of, is_true
from alltrace.trace.intervals import (
    NOTHING,
    Merged,
    clip,
    containing,
    difference,
    intersection,
    merge,
    overlap_ns,
    union,
)

HOST_CLASSES = tuple(
    "data compilation module-loading allocation pageable-copy sync-copy sync host-pause launch".split()
)
"""What the host does while it has not launched the next kernel; of several at once the first counts."""

CLASSES = ("compute", "short-kernels", *HOST_CLASSES, *"communication transfer copy kernel-gap idle unknown".split())
"""All classes of a rank's time: compute runs, or rows of kernels that are no longer than an empty one; the host is
late; queued work waits for communication, a transfer between host and device or between devices, a copy or fill within
the device, or nothing, for as short as any device takes from one kernel to the next, or longer; nothing runs, and no
call is known to launch what comes."""

_EMPTY_KERNEL_NS = 4_000
"""A kernel of this length or less does nothing that can be measured: an empty one takes 1 to 3 microseconds."""

_DEVICE_GAP_NS = 5_000  # a pause between queued kernels up to this long is how devices work
WITHIN_A_DEVICE = ("memset", "DtoD", "UvmDtoD", "AtoA", "AtoD", "DtoA")  # kinds of copies that move nothing over a link
_RETURNING_NS = 20_000  # a device that runs dry within this time of a blocking call's end ran dry because of the call
_PIECE_KERNELS = 1 << 17  # how many kernels are looked at together


@dataclass(frozen=True)
class HostSets:
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

    def within(self, begin: int, end: int) -> Self:
        sets = {name: clip(intervals, begin, end) for name, intervals in self.sets.items()}
        return replace(self, sets=sets, exchanges=clip(self.exchanges, begin, end))


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
    starts: Int64  # of compute kernels, ascending
    launch_end: Int64  # when the call that launched each ended; its start if no call is known
    launched: Flags  # whether a call is known to have launched each
    launch_ns: int = 0  # median time from one of their launches to the next, 0 for those into a full queue
    # when the call ended that launched the last kernel of another kind, such as a barrier's; 0 if none is known
    last_other_launch: int = 0

    def within(self, begin: int, end: int) -> Self:
        """What ran in a time; of all time the kernels, for gaps at its end."""
        names = ("compute", "short", "communication", "copies", "transfers", "queued", "pageable")
        within: dict[str, Any] = {name: clip(getattr(self, name), begin, end) for name in names}
        return replace(self, **within)


def activity(graphs: Any, copies: Any, calls: Calls) -> Activity:
    """The work of a rank's devices; `graphs` and `copies` are its tables that `calls` were read with."""
    kernels, exchanges = calls.kernels, is_true(copies.column("collective"))
    in_kernels, in_graphs = len(kernels.start), len(kernels.start) + graphs.num_rows
    of_graphs = [integers(graphs.column(c)) for c in ("start", "end")]
    copied = [integers(copies.column(c)) for c in ("start", "end")]
    exchanged, copied = ([c[rows] for c in copied] for rows in (exchanges, ~exchanges))
    pageable = is_pageable(copies)[~exchanges]
    moving = ~pageable & ~is_one_of(copies.column("kind"), WITHIN_A_DEVICE)[~exchanges]
    talks = kernels.talks
    called, returned, known = calls.launched
    calls.launched = None  # it is long, and in another order below
    of_copies = [c[in_graphs:][~exchanges] for c in (returned, known)]
    queued = moving & of_copies[1] & (of_copies[0] < copied[1])
    others_returned = returned[:in_kernels][talks & known[:in_kernels]]

    def both(of_kernels: NDArray[Any], of_graphs: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((of_kernels, of_graphs)) if len(of_graphs) else of_kernels

    starts, none = both(kernels.start, of_graphs[0]), np.zeros(graphs.num_rows, np.bool_)
    index: Any = slice(in_graphs)  # nothing is copied where the kernels are all that computes, and in order
    if talks.any() or (starts[1:] < starts[:-1]).any():
        index = np.flatnonzero(~both(talks, none))
        index = index[np.argsort(starts[index], kind="stable")]
    # each column is long, so what is made of one comes before the next
    starts = starts[index]
    launch_ns = _launch_ns(called[index], starts)
    del called
    returned, known = returned[index], known[index]
    ends, hidden = both(kernels.end, of_graphs[1])[index], both(kernels.in_graph | calls.of_host, ~none)[index]
    del index
    short = _short(starts, ends, returned, hidden)
    compute = merge(starts, ends)
    if len(compute.starts) == len(starts):  # nothing was joined
        compute = Merged(starts, ends)
    return Activity(
        compute=compute,
        short=short,
        communication=merge(
            *(np.concatenate((c[talks], e)) for c, e in zip((kernels.start, kernels.end), exchanged, strict=True))
        ),
        copies=merge(*copied),
        transfers=merge(*(c[moving] for c in copied)),
        queued=merge(*(c[queued] for c in copied)),
        pageable=merge(*(c[pageable] for c in copied)),
        starts=starts,
        launch_end=returned,
        launched=known,
        launch_ns=launch_ns,
        last_other_launch=int(others_returned.max(initial=0)),
    )


def _launch_ns(moments: Int64, starts: Int64) -> int:
    """The median time from one launch to the next; 0 for those into a full queue, where the device sets the pace."""
    if len(moments) < 2:
        return 0
    if not (moments[1:] >= moments[:-1]).all():
        moments = np.sort(moments)
    between = np.diff(moments)
    between[FULL_QUEUE:][moments[FULL_QUEUE:-1] < starts[: -FULL_QUEUE - 1]] = 0
    middle = sorted({(len(between) - 1) // 2, len(between) // 2})
    between.partition(middle)
    return int(np.mean(between[middle]))


def _short(starts: Int64, ends: Int64, returned: Int64, in_graph: Flags) -> Merged:
    """When rows of short kernels run, each queued before the one ahead ended, and nothing else computes.

    `starts`: Starts of compute kernels, ascending.
    """
    queued, linked = np.zeros((2, max(len(starts) - 1, 0)), np.bool_)
    for some in blocks(len(queued)):
        before, after = some, slice(some.start + 1, some.stop + 1)
        pause = starts[after] - ends[before]
        queued[some] = (pause >= 0) & (pause <= _DEVICE_GAP_NS) & (returned[after] <= ends[before])
        linked[some] = queued[some]
        for both in (before, after):
            linked[some] &= (ends[both] - starts[both] <= _EMPTY_KERNEL_NS) & ~in_graph[both]
    if not linked.any():
        return NOTHING
    mine = np.append(linked, False) | np.append(False, linked)
    rows, reach = np.flatnonzero(mine), np.maximum.accumulate(ends)
    parts = []
    for some in blocks(len(rows)):
        own = rows[some]
        following = np.minimum(own + 1, len(queued))
        until = np.where(queued[following - 1] & (following > own), starts[following], ends[own])
        near = slice(int(np.searchsorted(reach, starts[own[0]], "right")), int(np.searchsorted(starts, until.max())))
        others = ~mine[near]
        parts.append(difference(merge(starts[own], until), merge(starts[near][others], ends[near][others])))
    return union(parts)


def classify(work: Activity, host: HostSets, regions: Int64) -> tuple[Int64, Merged]:
    """`_classified` of as many regions at a time as have `_PIECE_KERNELS`; a larger one is cut where a kernel begins.

    There the device computes, so that no gap is cut.
    """
    times = np.zeros((len(regions), len(CLASSES)), np.int64)
    talking = []
    for owner, some in _pieces(work, regions):
        begin, end = int(some[0, 0]), int(some[-1, 1])
        part, talks = _classified(work.within(begin, end), host.within(begin - _RETURNING_NS, end), some)
        np.add.at(times, owner, part)
        talking.append(talks)
    return times, union(talking)


def _pieces(work: Activity, regions: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Regions cut in pieces, some at a time: of each piece the place of its region, and the begin and end of it."""
    bounds = []
    for number, (begin, end) in enumerate(regions.tolist()):
        low, high = np.searchsorted(work.starts, (begin, end)).tolist()
        cuts = work.starts[low + _PIECE_KERNELS : high : _PIECE_KERNELS]
        cuts = cuts[(cuts > begin) & (containing(work.compute, cuts) >= 0)].tolist()
        bounds += [(number, *both, high - low) for both in pairwise((begin, *dict.fromkeys(cuts), end))]
    if not bounds:
        return
    owner, begins, ends, kernels = np.array(bounds, np.int64).T
    group = np.cumsum(np.minimum(kernels, _PIECE_KERNELS)) // _PIECE_KERNELS
    for some in np.split(np.arange(len(owner)), np.flatnonzero(np.diff(group)) + 1):
        yield owner[some], np.stack((begins[some], ends[some]), axis=1)


def _classified(work: Activity, host: HostSets, regions: Int64) -> tuple[Int64, Merged]:
    """How the time of each region divides into `CLASSES`, and when communication is what a device waits for.

    A device that does not compute waits for its next kernel. Until the call that launches it has returned, the host is
    late; what it did meanwhile counts, by priority; what is left of a gap that begins as a blocking call returns is
    that call's. After that the kernel is queued and waits for communication or a copy that runs, or stands idle; up to
    `_DEVICE_GAP_NS` is the time that devices take between kernels. A host that waits for a device which does nothing
    but a transfer is not late: the transfer is. Time in which the device copies is never the pace of launching. Where
    no call is known to have launched the next kernel, only what the host says of itself and what the device runs can be
    told, and the rest is unknown.

    `regions`: int64 array (n, 2) of regions, ascending, without overlap. Returns int64 array (n, len(CLASSES)), ns,
    with rows that sum to the regions' lengths; and the intervals of `communication`.
    """
    count = len(regions)
    times = np.zeros((count, len(CLASSES)), np.int64)
    at = {name: n for n, name in enumerate(CLASSES)}
    whole = Merged(*regions.T.copy())
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


def _launched(work: Activity, holes: Merged) -> tuple[Int64, Flags]:
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
    yield "communication", host.exchanges
    for name in HOST_CLASSES[:-1]:
        if name == "sync":
            yield "communication", _awaited(work, host)
            yield "pageable-copy", intersection(host.sets["sync"], difference(work.pageable, work.communication))
            yield "transfer", intersection(host.sets["sync"], difference(work.transfers, work.communication))
        if name in ("allocation", "pageable-copy", "sync-copy"):
            yield "transfer", intersection(host.sets[name], difference(work.queued, work.communication))
        yield name, host.sets[name]
    # a device that copies does not wait to be given work: what is left is the pace of launching, and this is not part
    # of it
    for name, copying in (("pageable-copy", work.pageable), ("transfer", work.transfers), ("copy", work.copies)):
        yield name, difference(copying, work.communication)


def _awaited(work: Activity, host: HostSets) -> Merged:
    """When the host waits for a device that communicates and copies nothing: it waits for other ranks."""
    return intersection(host.sets["sync"], difference(work.communication, work.copies))


def regions_of(
    steps: Sequence[Mapping[str, Any]], starts: Int64, *, serves: bool = False, last_end: int = 0
) -> tuple[Int64, Int64]:
    """The judged steps of a rank and the region of each: from the device's end of the last step to its own.

    A program is in its loop until the next step begins: what it does after the last kernel of a step keeps the device
    waiting, within the step's range or after it. A region begins with its own step instead if the step before it is not
    recorded or not judged, if the device computed between the two, such as for an evaluation, or if a server waited for
    requests.

    `starts`: int64 array of the starts of the rank's compute kernels, ascending. `last_end`: when the rank's last
    communication ends, which is in the last step if nothing computes in between, and it is not longer than the step.
    Returns int64 array of n numbers, and (n, 2) of times. Warm-up and checkpoint steps are left out, as are those
    without device work; and, if others remain, those after a checkpoint, which alone begin with nothing queued.
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
    return int(np.searchsorted(moments, begin)) < int(np.searchsorted(moments, end))
