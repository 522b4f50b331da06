"""What detectors judge: facts of each rank, small enough to be gathered from thousands of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from alltrace.align.step_names import iteration_of
from alltrace.recipes.questions.diagnose.calls import Calls, is_pageable
from alltrace.recipes.questions.diagnose.finding import PARTS
from alltrace.recipes.questions.diagnose.gaps import CLASSES, HOST_CLASSES, HostSets, activity, classify, regions_of
from alltrace.recipes.questions.diagnose.host_sets import host_sets
from alltrace.recipes.questions.diagnose.kernel_rows import Int32, KernelRows
from alltrace.recipes.questions.diagnose.kernel_work import PIECES, KernelWork, kernel_work
from alltrace.recipes.questions.diagnose.operator_rates import SlowOperator, slow_operators
from alltrace.recipes.questions.diagnose.potential import Potential, potentials
from alltrace.run.clock import ClockMap
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, blocks, coded, integers, is_one_of, is_true
from alltrace.trace.distinct import distinct_rows
from alltrace.trace.intervals import (
    Merged,
    closed,
    containing,
    difference,
    exclusive,
    intersection,
    merge,
    overlap_ns,
    union,
)

_SMALLER = {
    "graphs": ("start", "end", "correlation", "process"),
    "copies": tuple("start end correlation process device stream bytes kind src_kind dst_kind collective".split()),
}
"""Tables that are read whole."""

_iteration_of = lru_cache(1 << 14)(iteration_of)  # ranks have the same names

_LEAST_COPY_BYTES = 256 << 10

LEAST_PAUSE_NS = 10_000_000  # a pause of a device that is shorter is within a phase of its role, not between two
_FEWEST_WAITED = 3  # in fewer steps in a row a wait for a batch says nothing of the loader's pace
_IN_A_ROW = 0.8  # nor do waits here and there: this share of the steps with waits are in a row, or half of all steps
_LIMITING = 0.1  # nor do waits that are a smaller share of that time
_GOING_ON_NS = 50_000  # a pause that begins so soon after a wait is what the program does with what it waited for


@dataclass
class RankFacts:
    """One rank's facts; arrays of n are over its judged steps, times in ns."""

    steps: Int64  # numbers of the judged steps, n
    regions: Int64  # their start and end on the device, aligned, (n, 2)
    times: Int64  # how their time divides into `CLASSES`, (n, len(CLASSES))
    waits: Int64  # intervals in which a device waits for communication, (w, 2)
    working: Int64  # when the devices compute or copy, in the whole run, pauses of less than 10 ms closed, (k, 2)
    work: KernelWork  # what its compute kernels did in each step, or piece of a run without steps
    potentials: dict[str, Potential]  # what other kernels could save, by kind of opportunity
    operators: list[SlowOperator]  # operators below the roof of their device
    copy_kinds: list[str]  # direction and memory of copies, such as `HtoD pageable`
    copy_bytes: Int64  # bytes of large copies of each, in the judged steps
    copy_ns: Int64  # their summed durations
    call_names: dict[str, str]  # for each class of host calls its most frequent name
    call_counts: dict[str, int]  # for each the number of calls in the whole run
    # time of the host in each step in all of `HOST_CLASSES` but the last, whether or not the device waits
    host_ns: Int64
    loader_ns: int  # what others took to prepare the batches of a step, while the host waited for them; 0 if unknown
    paused_behind_ns: int  # the part of that in pauses that begin as a wait of class `sync` ends
    launch_ns: int  # median time from one launch of a compute kernel to the next, 0 for those into a full queue
    kernels: int  # compute kernels in the judged steps
    kernel_total_ns: int  # their summed durations
    graphs: int  # graphs traced as a whole
    graph_ns: int  # their time in the judged steps
    ranges: bool  # whether the rank has any range
    whole_run: bool  # whether no steps were known, so that the run counts as one
    device: str = ""  # the name of its first device, if the report has it
    calls: bool = True  # whether the report has calls, without which nothing is known of the host
    left_out: int = 0  # steps that are not judged because their records may be lost; for a whole run 1 for a part
    of_host: bool = False  # whether it is the work of its host that is judged, since nothing ran on a device
    # `times` of `PARTS` equal parts of a run without steps, (PARTS, len(CLASSES)); None with steps
    parts: Int64 | None = None
    staged_copies: int = 0  # copies between device and host that MPI makes in its calls, in the judged steps
    staged_bytes: int = 0  # their bytes

    @property
    def paused_ns(self) -> int:
        """Time in judged steps in which no thread calls anything, whether or not the device is idle."""
        return int(self.host_ns[:, HOST_CLASSES.index("host-pause")].sum())

    def placed(self, clock: ClockMap) -> Self:
        """The facts of a rank in the time of its files on the run's clock; kernel sums stay by the host's clock."""
        regions, waits = clock.apply(self.regions), clock.apply(self.waits)
        return replace(self, regions=regions, waits=waits, times=clock.lengths(self.times))

    def without(self, beyond_ns: Int64) -> Self:
        """The facts without some time of each work in each step (`KernelWork.without`); for a rank with steps."""
        times = self.times.copy()
        compute = CLASSES.index("compute")
        times[:, compute] = np.maximum(times[:, compute] - beyond_ns.sum(axis=1), 0)
        return replace(self, times=times, work=self.work.without(beyond_ns))

    def undisturbed(self) -> Self:
        """The facts without what another process took from the rank's kernels."""
        if self.work.slices is None:
            return self
        taken, times = self.work.taken_share, self.times.copy()
        if self.whole_run:
            taken = np.average(taken, weights=np.maximum(self.work.total_ns, 1), keepdims=True)
        times[:, CLASSES.index("compute")] -= np.rint(taken * times[:, CLASSES.index("compute")]).astype(np.int64)
        return replace(self, times=times, work=self.work.undisturbed())


def gather(rank: Rank, steps: Any) -> tuple[RankFacts, HostSets] | None:
    """The facts of a rank, and what its host did; None without device work.

    `steps`: Its rows of `alltrace.align.schema.STEPS`, aligned; None or empty takes the run for one step.
    """
    graphs, copies = (rank.table(table, columns) for table, columns in _SMALLER.items())
    calls = Calls(rank, graphs, copies)
    called, _, known = (c[len(c) - copies.num_rows :].copy() for c in calls.launched)
    copied_at = np.where(known, called, -1)
    host, kernels = host_sets(rank, calls), calls.kernels
    calls.launches = calls.launches[:0].copy()  # it is long, as is what follows
    work = activity(graphs, copies, calls)
    del calls
    # an entry without duration has no information
    spans = [m for m in (work.compute, work.communication, work.copies) if len(m.starts)]
    if not spans or (not len(work.starts) and not len(work.communication.starts)):
        return None
    rows: list[Mapping[str, Any]] = steps.to_pylist() if steps is not None else []
    last_end = int(work.communication.ends.max(initial=0))
    numbered, regions = regions_of(rows, work.starts, serves=_serves(rank), last_end=last_end)
    whole_run = not len(regions)
    if whole_run:
        numbered = np.zeros(1, np.int64)
        regions = np.array([[min(int(m.starts[0]) for m in spans), max(int(m.ends[-1]) for m in spans)]], np.int64)
    numbered, regions, left_out = _recorded(numbered, regions, rank.unrecorded(), whole_run=whole_run)
    times, waits = classify(work, host, regions)
    parts = classify(work, host, _equal_parts(regions))[0] if whole_run else None
    judged = Merged(*regions.T.copy())
    pauses, waits_end = host.sets["host-pause"], host.sets["sync"].ends
    behind = containing(merge(waits_end, waits_end + _GOING_ON_NS), pauses.starts) >= 0
    classes = exclusive([host.sets[name] for name in HOST_CLASSES[:-1]])
    taken = [overlap_ns(*judged, times) for times in classes]
    paused_behind = intersection(Merged(pauses.starts[behind], pauses.ends[behind]), judged).total_ns
    counted = _step_of_kernels(kernels, judged)
    # a run without steps has pieces in their place
    steps_or_pieces = (_pieces(kernels, counted), PIECES) if whole_run else (counted, len(regions))
    work_done = kernel_work(kernels, *steps_or_pieces)
    kinds, copied, took = _copies(copies, judged)
    staged = _staged_by_mpi(copies, containing(host.exchanges, copied_at) >= 0, kernels, judged)
    in_graphs = intersection(merge(integers(graphs.column("start")), integers(graphs.column("end"))), judged).total_ns
    facts = RankFacts(
        steps=numbered,
        regions=regions,
        times=times,
        waits=np.stack((waits.starts, waits.ends), axis=1),
        working=_working(work.compute, work.copies),
        work=work_done,
        potentials=potentials(rank, kernels, counted, work),
        operators=slow_operators(rank, counted),
        copy_kinds=kinds,
        copy_bytes=copied,
        copy_ns=took,
        call_names=dict(host.names),
        call_counts=dict(host.calls),
        host_ns=np.stack(taken, axis=1),
        loader_ns=_loader_ns(rows, host.batches),
        paused_behind_ns=paused_behind,
        launch_ns=work.launch_ns,
        kernels=int((counted >= 0).sum()),
        kernel_total_ns=int(work_done.total_ns.sum()),
        graphs=graphs.num_rows,
        graph_ns=in_graphs,
        ranges=rank.has("ranges"),
        whole_run=whole_run,
        device=_device(rank),
        calls=host.known,
        left_out=left_out,
        of_host=rank.host_work is not None,
        parts=parts,
        staged_copies=int(staged.sum()),
        staged_bytes=int(integers(copies.column("bytes"))[staged].sum()),
    )
    return facts, host


def _loader_ns(steps: Sequence[Mapping[str, Any]], waits: Merged) -> int:
    """What a loader takes for a step's batches: from one step's last wait for it to the next one's, in steps in a row.

    While a program waits for batch after batch, its loader has none in store. `steps`: Of the rank, of all kinds.
    """
    ordered = sorted(steps, key=lambda s: s["start"])
    starts = np.array([s["start"] for s in ordered], np.int64)
    at = np.searchsorted(starts, waits.ends, "right") - 1
    last = np.flatnonzero(np.diff(at, append=len(starts)) > 0)
    last = last[at[last] >= 0]
    numbers = np.array([s["step"] for s in ordered], np.int64)[at[last]]
    rows = np.split(np.arange(len(last)), np.flatnonzero(np.diff(numbers) != 1) + 1)
    longest = last[max(rows, key=len)]
    if len(longest) < max(_FEWEST_WAITED, min(_IN_A_ROW * len(last), len(starts) / 2)):
        return 0
    passed_ns = int(waits.ends[longest[-1]] - waits.ends[longest[0]])
    limits = waits.durations_ns[longest].sum() >= _LIMITING * passed_ns
    return passed_ns // (len(longest) - 1) if limits else 0


def _equal_parts(regions: Int64) -> Int64:
    """The parts of a run that is one region: an int64 array of (PARTS, 2), or of (0, 2) without the region."""
    if not len(regions):
        return regions
    bounds = np.linspace(regions[0, 0], regions[0, 1], PARTS + 1).astype(np.int64)
    return np.stack((bounds[:-1], bounds[1:]), axis=1)


def _working(compute: Merged, copies: Merged) -> Int64:
    busy = closed(union([closed(times, LEAST_PAUSE_NS) for times in (compute, copies)]), LEAST_PAUSE_NS)
    return np.stack((busy.starts, busy.ends), axis=1)


def _serves(rank: Rank) -> bool:
    names = np.unique(integers(rank.table("ranges", ("name",)).column("name")))
    texts = rank.texts(pa.array(names, pa.int64())).to_pylist()
    return any(_iteration_of(text) is not None for text in texts if text)


def _recorded(numbered: Int64, regions: Int64, unrecorded: Merged, *, whole_run: bool) -> tuple[Int64, Int64, int]:
    """The steps in which all that ran has a record, their regions, and how many are left out.

    Of a run without steps it is the longest part without such a time, if that is at least half of the run.
    """
    steps = Merged(*regions.T.copy())
    hidden = overlap_ns(*steps, unrecorded) > 0
    if not hidden.any():
        return numbered, regions, 0
    if not whole_run:
        return numbered[~hidden], regions[~hidden], int(np.count_nonzero(hidden))
    parts = difference(steps, unrecorded)
    lengths = parts.ends - parts.starts
    if not len(lengths) or 2 * lengths.max() < regions[0, 1] - regions[0, 0]:
        return numbered[:0], regions[:0], 1
    longest = int(lengths.argmax())
    return numbered, np.array([[parts.starts[longest], parts.ends[longest]]], np.int64), 1


def _device(rank: Rank) -> str:
    names = rank.texts(rank.table("devices", ("name",)).column("name")).to_pylist()
    return next((n for n in names if n), "")


def _step_of_kernels(kernels: KernelRows, judged: Merged) -> Int32:
    """The place of the step of each row of `kernels`; -1 for communication and what is in no step."""
    places = np.empty(len(kernels.start), np.int32)
    for some in blocks(len(places)):
        places[some] = np.where(kernels.talks[some], -1, containing(judged, kernels.start[some]))
    return places


def _pieces(kernels: KernelRows, counted: Int32) -> Int32:
    """The piece of the run that each of the counted kernels is in, in the order of their starts; -1 for others."""
    rows = np.flatnonzero(counted >= 0)
    pieces = np.full(len(counted), -1, np.int32)
    pieces[rows[np.argsort(kernels.start[rows], kind="stable")]] = np.arange(len(rows)) * PIECES // max(len(rows), 1)
    return pieces


def _staged_by_mpi(copies: Any, in_call: Flags, kernels: KernelRows, judged: Merged) -> Flags:
    """Which copies of judged steps are to or from the host within calls of MPI, on streams that nothing else uses."""
    place = ("process", "device", "stream")
    own = [integers(copies.column(c), -1) for c in place]
    stream = distinct_rows(*(np.concatenate(both) for both in zip(own, kernels.of_kinds(*place), strict=True)))[1]
    stream, of_kernels = stream[: len(own[0])], stream[len(own[0]) :]
    used = np.concatenate((stream[~in_call], of_kernels))
    in_step = containing(judged, integers(copies.column("start"))) >= 0
    return in_call & in_step & is_one_of(copies.column("kind"), ("DtoH", "HtoD")) & ~np.isin(stream, used)


def _copies(table: Any, judged: Merged) -> tuple[list[str], Int64, Int64]:
    kinds, kind = coded(table.column("kind"))
    pageable = is_pageable(table)
    size = integers(table.column("bytes"))
    large = (size >= _LEAST_COPY_BYTES) & (kind < len(kinds))
    large &= containing(judged, integers(table.column("start"))) >= 0
    large &= ~is_one_of(table.column("kind"), ("memset",)) & ~is_true(table.column("collective"))
    key = 2 * kind[large] + pageable[large]
    keys, at = np.unique(key, return_inverse=True)
    length = (integers(table.column("end")) - integers(table.column("start")))[large]
    labels = [f"{kinds[k // 2].as_py()} {'pageable' if k % 2 else 'pinned'}" for k in keys.tolist()]
    moved, took = (np.bincount(at, of, len(keys)).astype(np.int64) for of in (size[large], length))
    return labels, moved, took
