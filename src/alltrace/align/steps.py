"""The training steps of each rank: from ranges that name them, else from what repeats on the device.

Ranges name steps by a number (`step 12`, `ProfilerStep#12`) or by repetition (`train_step`); `step_names` has the
names. Of several families those win that contain one optimizer step each, then the one that covers most of the rank's
time, outermost first. If only optimizers are named, each of their ranges ends a step. A program without such ranges
still repeats itself: the shortest period under which the sequence of kernel names of the busiest stream agrees with
itself is the step (autocorrelation, as in Greyhound, ATC'25, for NCCL calls).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.align.schema import NEARLY_ALL
from alltrace.align.step_names import CHECKPOINT, LONGEST_NAME, step_name
from alltrace.run.collecting import Growing, file_pieces
from alltrace.run.launch_matching import Operations, correlations
from alltrace.run.overlay import STEPS
from alltrace.run.rank import Rank
from alltrace.run.store import Run
from alltrace.trace.arrays import Flags, Floats, Int64, coded, integers, is_one_of, nearest
from alltrace.trace.distinct import distinct, folded, rows_by
from alltrace.trace.host_patterns import ALLOCATIONS, CODE_CALLS, matching
from alltrace.trace.kernel_rules import NOT_COMPUTE

_SLOW = 1.2
"""A step at the beginning that takes this many times the median is a warm-up, if it also exceeds the usual variation of
steps."""

_SLOWER = 1.05
"""From here on it is one if it exceeds all later steps: a slowness that recurs is not a warm-up."""

_LONGEST = 0.1
"""The first step is one where it takes longer than any later one by this share, however much these differ."""

_DEVIATIONS = 6.0
"""An unusual step differs by this many median deviations."""

_LEAST_LAUNCHED = 0.1
"""Ranges in which a smaller share of a rank's device work is launched are not steps."""

_SAVED_BYTES = 64 << 10
"""A longer step that brings more than so many bytes beyond the usual ones back to the host writes a checkpoint, if
others differ by less (`_DEVIATIONS`): the part of a model that one of many ranks has may be small."""

_PREPARING = (*CODE_CALLS, *ALLOCATIONS)
"""Calls that a program makes more often while it warms up."""

_AGREEING = 0.9
_LAUNCHED_BEFORE = 0.05
"""Where this share of the work was launched before the report begins, calls do not show to which step work belongs."""

_LONGEST_SEQUENCE = 400_000
_FEWEST = 2
_FEWEST_KERNELS = 64
"""Of fewer ranges nothing shows that they repeat."""

_ONE_EACH = (0.6, 1.5)
"""A step holds about one work of an optimizer: a part of a step holds fewer, what holds several steps more."""

_CLOSE = 0.1
"""Works of optimizers with less than this share of the usual launches between them, or of the usual time, end one step
together."""

_NONE = np.iinfo(np.int64).min


@dataclass
class RankSteps:
    """The steps of one rank, in order, ns of the rank's files: int64 arrays of n."""

    rank: int
    source: str  # what they were found by
    starts: Int64  # of the host: of launches if found by kernels, or of kernels of which many launches are not known
    ends: Int64
    numbers: Int64 | None  # the program's own
    device: Int64  # extents, (n, 2); the lowest integer without work
    took: Int64  # from the end of the step before, or its own later start, to its end
    copied: Int64  # bytes from the device to the host
    computed: Int64  # durations of the kernels and graphs it launched, but communication
    saves: Flags  # a range inside says that a checkpoint is written
    prepared: Int64  # how many calls inside allocate memory, or load code


class _Spans(NamedTuple):
    """What `RankSteps` begins with."""

    source: str
    starts: Int64
    ends: Int64
    numbers: Int64 | None = None


def find_steps(run: Run, each: Iterable[RankSteps | None]) -> tuple[Any, tuple[str, ...]]:
    """The table `STEPS` of all ranks, by rank and step, and notes; `each` is what `rank_steps` found on every rank."""
    steps = _as_long(run, sorted((its for its in each if its is not None), key=lambda its: its.rank))
    notes = []
    if run.ranks and not steps:
        notes.append("no steps were found: no range names them, and the kernels do not repeat")
    elif len(steps) < len(run.ranks):
        without = sorted({r.rank for r in run.ranks} - {its.rank for its in steps})
        notes.append(
            f"no steps were found on {len(without)} of {len(run.ranks)} ranks, the first of them rank {without[0]}"
        )
    numbers = _numbers(run, steps)
    return _table(steps, numbers, _kinds(steps, numbers)), tuple(notes)


def rank_steps(rank: Rank) -> RankSteps | None:
    """The steps of one rank, in the time of its files; None if nothing shows them."""
    work = _DeviceWork(rank)
    ranges = rank.file_table("ranges", ("start", "end", "thread", "depth", "name"))
    ids, codes = coded(ranges.column("name"))
    names = rank.texts(ids).to_pylist()
    spans = _by_ranges(rank, work, ranges, names, codes)
    on_host = rank.with_host_work()
    if on_host is not rank:
        work = _DeviceWork(on_host)
    spans = spans or _by_kernels(on_host, work)
    if spans is None:
        return None
    device, copied, computed = work.of_intervals(spans.starts, spans.ends)
    saves = _saves(ranges, names, codes, spans.starts, spans.ends)
    prepared = np.searchsorted(work.preparing, spans.ends) - np.searchsorted(work.preparing, spans.starts)
    took = _took(spans.starts, spans.ends, device)
    return RankSteps(rank.rank, *spans, device, took, copied, computed, saves, prepared)


def _took(starts: Int64, ends: Int64, device: Int64) -> Int64:
    """`RankSteps.took`: a step ends with its work on the device, or on the host where that is later."""
    done = np.maximum(ends, device[:, 1])  # the lowest integer if there is no work; what runs ahead is not waited for
    took: Int64 = done - np.maximum(starts, np.concatenate(([_NONE], np.maximum.accumulate(done)[:-1])))
    return took


def _by_ranges(rank: Rank, work: _DeviceWork, ranges: Any, names: Sequence[str | None], codes: Int64) -> _Spans | None:
    """The steps that `ranges` name; their names are `names` by `codes`."""
    families: dict[str, dict[str, dict[int, int]]] = {}
    alone: set[str] = set()
    for code, name in enumerate(names):
        said = step_name(name) if name else None
        if said is not None:
            number = -1 if said.number is None else said.number
            families.setdefault(said.role, {}).setdefault(said.family, {})[code] = number
            alone |= {said.family} if said.alone else set()
    if not families:
        return None
    starts, ends = integers(ranges.column("start"), _NONE), integers(ranges.column("end"), _NONE)
    threads, depths = integers(ranges.column("thread"), -1), integers(ranges.column("depth"), 0)

    def candidates(role: str) -> list[_Family]:
        found = []
        for family, members in families.get(role, {}).items():
            rows = _outermost(np.flatnonzero(np.isin(codes, list(members)) & (ends > starts)), starts, ends, threads)
            # what launches nothing may be named alike, such as reading the clock of an iteration
            works = role == "optimizer" or work.share_launched_in(starts[rows], ends[rows]) >= _LEAST_LAUNCHED
            if len(rows) >= (1 if family in alone else _FEWEST) and works:
                numbers = np.array([members[c] for c in codes[rows].tolist()], np.int64)
                found.append(_Family(starts[rows], ends[rows], numbers, int(threads[rows[0]]), int(depths[rows].min())))
        return found

    optimizer = _last_works(candidates("optimizer"), work)
    steps = _launching(rank, candidates("step"))
    right = [f for f in steps if optimizer is not None and _ONE_EACH[0] <= f.holding(optimizer) <= _ONE_EACH[1]]
    if right or steps:
        return max(right or steps, key=_Family.worth).spans()
    if optimizer is not None and len(optimizer) > _FEWEST:
        return _Spans("range", *_between(optimizer, starts, ends, codes))
    evaluations = _launching(rank, candidates("evaluation"))
    return max(evaluations, key=_Family.worth).spans() if evaluations else None


@dataclass(frozen=True)
class _Family:
    """The ranges of one family on one thread, in order, without overlap: arrays of n; `depth` is the least."""

    starts: Int64
    ends: Int64
    numbers: Int64
    thread: int
    depth: int

    def worth(self) -> tuple[int, int]:
        """The time that they cover, then how far outside they are."""
        return int((self.ends - self.starts).sum()), -self.depth

    def holding(self, times: Int64) -> float:
        """How many of the times, which are in order, are in a range on average."""
        return float((np.searchsorted(times, self.ends, "right") - np.searchsorted(times, self.starts, "right")).mean())

    def spans(self) -> _Spans:
        """The steps; missing numbers and numbers out of order do not count."""
        own = None if (self.numbers < 0).any() or (np.diff(self.numbers) <= 0).any() else self.numbers
        return _Spans("range", self.starts, self.ends, own)


def _outermost(rows: Int64, starts: Int64, ends: Int64, threads: Int64) -> Int64:
    """Of the ranges in `rows` those on the thread that has most of them, in order, each after the last one's end."""
    if not len(rows):
        return rows
    ids, counts = np.unique(threads[rows], return_counts=True)
    rows = rows[threads[rows] == ids[counts.argmax()]]
    rows = rows[np.lexsort((-ends[rows], starts[rows]))]
    reached = np.maximum.accumulate(ends[rows])
    return rows[np.concatenate(([True], starts[rows][1:] >= reached[:-1]))]


def _last_works(optimizers: Sequence[_Family], work: _DeviceWork) -> Int64 | None:
    """When the optimizers' work of each step is done; None if it is not known.

    A host that waits in one step and runs ahead in the next has unequal times, and the same launches, between them. Of
    nested optimizers, such as DeepSpeed's over PyTorch's, the one that works least often has the steps.
    """
    best: tuple[int, int, Int64] | None = None
    for family in optimizers:
        gaps = work.launched_in(family.ends[:-1], family.starts[1:])
        if not gaps.any():
            gaps = family.starts[1:] - family.ends[:-1]
        apart = np.append(gaps >= _CLOSE * np.quantile(gaps, 0.9), True)
        ends = family.ends[apart]
        if best is None or (len(ends), -family.worth()[0]) < best[:2]:
            best = (len(ends), -family.worth()[0], ends)
    return None if best is None else best[2]


def _between(done: Int64, starts: Int64, ends: Int64, codes: Int64) -> tuple[Int64, Int64]:
    """Starts and ends of the steps with optimizers `done` at these times.

    A step begins with the program's first range with a name that occurs equally often in the first two steps, such as
    data loading; work after an optimizer, such as reading the loss, belongs to its step. Without such a range the first
    step is left out.
    """
    first, second = starts < done[0], (starts >= done[0]) & (starts < done[1])
    once, again = (Counter(codes[rows].tolist()) for rows in (first, second))
    same = first & np.isin(codes, [code for code, count in once.items() if again[code] == count])
    if not same.any():
        return done[:-1], done[1:]
    name = codes[np.flatnonzero(same)[starts[same].argmin()]]
    begins = np.sort(starts[codes == name])
    at = np.concatenate(([0], np.searchsorted(begins, done[:-1])))
    found = begins[np.minimum(at, len(begins) - 1)]
    begin = np.where(found < done, found, np.concatenate(([done[0]], done[:-1])))
    # nothing begins after the last one: it lasts as long after its optimizer as the others do
    last = min(int(done[-1] + np.median(begin[1:] - done[:-1])), max(int(ends.max()), int(done[-1])))
    return begin, np.append(begin[1:], last)


def _launching(rank: Rank, families: list[_Family]) -> list[_Family]:
    """The ranges on threads that call CUDA, if any: a thread that loads data has ranges for batches too."""
    if len({f.thread for f in families}) < 2:
        return families
    calling = {
        t for piece in file_pieces(rank, "api", ("thread",)) for t in piece.column("thread").unique().to_pylist()
    }
    return [f for f in families if f.thread in calling] or families


def _by_kernels(rank: Rank, work: _DeviceWork) -> _Spans | None:
    """Steps from the period of the sequence of kernel names on the stream with most kernels."""
    kernels = rank.file_table("kernels", ("start", "end", "stream", "device", "name"))
    if kernels.num_rows < _FEWEST_KERNELS:
        return None
    streams = integers(kernels.column("stream"), -1) * 4096 + integers(kernels.column("device"), 0)
    ids, counts = np.unique(streams, return_counts=True)
    rows = np.flatnonzero(streams == ids[counts.argmax()])
    rows = rows[np.argsort(integers(kernels.column("start"), _NONE)[rows], kind="stable")]
    _, tokens = np.unique(integers(kernels.column("name"), _NONE)[rows], return_inverse=True)
    last = int(integers(kernels.column("end"), _NONE)[rows].max())
    periods = _periods(tokens.astype(np.int64))
    changes = np.append(True, tokens[1:] != tokens[:-1])
    # steps that differ in how often a kernel runs in a row have the same sequence without that; two kernels in turn
    # are a sequence of none
    if periods is None and changes.sum() >= _FEWEST_KERNELS and tokens.max() > 1:
        rows = rows[changes]
        periods = _periods(tokens[changes].astype(np.int64))
    if periods is None:
        return None
    boundaries, whole_end = periods
    begun = integers(kernels.column("start"), _NONE)[rows[boundaries]]
    launches = np.unique(np.maximum.accumulate(work.launches_of(rows[boundaries], begun)))
    if len(launches) < len(boundaries):  # a graph launches several periods, so they are not steps of the program
        return None
    ends = launches[1:]
    if whole_end:  # nothing is launched after it, so it lasts as long as its work
        ends = np.append(ends, max(last, int(launches[-1]) + 1))
    return _Spans("kernels", launches[: len(ends)], ends)


def _periods(tokens: Int64) -> tuple[Int64, bool] | None:
    """The positions at which periods begin, and whether the last one is complete.

    None if nothing repeats at least three times.
    """
    n = len(tokens)
    if n > _LONGEST_SEQUENCE:
        tokens, n = tokens[:_LONGEST_SEQUENCE], _LONGEST_SEQUENCE
    period = _period(tokens)
    if period is None or n < 3 * period:
        return None
    # phase: a step begins at the token that is rarest within a period, which a dropped event then cannot shift
    counts = np.bincount(tokens)
    once = np.flatnonzero(np.abs(counts - n / period) <= max(1, 0.1 * n / period))
    whole = n < _LONGEST_SEQUENCE
    if len(once):
        first = folded(np.minimum, tokens, np.arange(n), len(counts), n)
        places = np.flatnonzero(tokens == once[first[once].argmin()])
        places = places[np.concatenate(([True], np.diff(places) > period // 2))]
        return (places, whole and n - places[-1] >= NEARLY_ALL * period) if len(places) >= 3 else None
    return np.arange(0, n, period), whole and n % period == 0


def _period(tokens: Int64) -> int | None:
    """The shortest shift under which nine tenths of the sequence agree with itself, by correlation over tokens."""
    n = len(tokens)
    size = 1 << (2 * n - 1).bit_length()
    # a random sign per token and round: the expected product is 1 if tokens agree and 0 if not
    random = np.random.default_rng(0)
    agreement = np.zeros(n)
    rounds = 8
    for _ in range(rounds):
        signs = random.choice((-1.0, 1.0), int(tokens.max()) + 1)[tokens]
        spectrum = np.fft.rfft(signs, size)
        agreement += np.fft.irfft(spectrum * spectrum.conj(), size)[:n]
    share = agreement / rounds / np.arange(n, 0, -1)
    candidates = np.flatnonzero(share[2 : n // 2] >= _AGREEING - 0.1) + 2
    for shift in candidates.tolist():
        if (tokens[shift:] == tokens[:-shift]).mean() >= _AGREEING and len(np.unique(tokens[:shift])) > 1:
            return int(shift)
    return None


class _DeviceWork:
    """The device work of a rank by when it was launched."""

    def __init__(self, rank: Rank) -> None:
        several = rank.has("processes") and rank.file_table("processes", ("process",)).num_rows > 1
        count = sum(rank.record.rows.get(name, 0) for name in ("kernels", "copies", "graphs"))
        work = Growing(5, count)
        for name, more in (("kernels", ("kind",)), ("copies", ("bytes", "kind")), ("graphs", ())):
            for table in file_pieces(
                rank, name, ("start", "end", "correlation", *(("process",) if several else ()), *more)
            ):
                start, end = (integers(table.column(c), _NONE) for c in ("start", "end"))
                to_host, computing = np.zeros_like(start), end - start
                if name == "copies":
                    to_host = np.where(
                        is_one_of(table.column("kind"), ("DtoH",)), integers(table.column("bytes"), 0), 0
                    )
                    computing = np.zeros_like(start)
                elif name == "kernels":
                    computing = np.where(is_one_of(table.column("kind"), NOT_COMPUTE), 0, computing)
                work.add(start, end, correlations(table, several=several), to_host, computing)
        start, end, keys, to_host, computing = work.columns()
        operations = Operations(np.zeros(len(keys), np.int8), keys)
        del work, keys
        self._known, launch = np.zeros(len(start), np.bool_), start.copy()
        preparing = []
        for calls in file_pieces(rank, "api", ("start", "correlation", "name", *(("process",) if several else ()))):
            names, codes = coded(calls.column("name"))
            prepares = np.isin(codes, matching((t or "" for t in rank.texts(names).to_pylist()), _PREPARING))
            preparing.append(integers(calls.column("start"), _NONE)[prepares])
            ids = correlations(calls, several=several)
            rows, many, own = operations.of(np.zeros(len(ids), np.int8), ids)
            at = rows if many is None else np.repeat(rows, many)
            fresh = ~self._known[own][::-1]  # of several calls the first counts, which is written last
            launch[own[::-1][fresh]] = integers(calls.column("start"), _NONE)[at[::-1][fresh]]
            self._known[own] = True
        del operations
        self._launch = launch
        self.preparing = np.sort(np.concatenate((*preparing, np.empty(0, np.int64))))  # calls of `_PREPARING` begin
        self._sort([launch, start, end, to_host, computing])

    def _sort(self, columns: list[Int64]) -> None:
        if (columns[0][1:] < columns[0][:-1]).any():
            by_launch = np.argsort(columns[0], kind="stable")
            for number, column in enumerate(columns):
                columns[number] = column[by_launch]
        self._launched, self._start, self._end, to_host, computing = columns
        self._bytes, self._computing = (np.concatenate(([0], np.cumsum(v))) for v in (to_host, computing))

    def launches_of(self, rows: Int64, begun: Int64) -> Int64:
        """When rows of `kernels` were launched; if calls do not show that of all work, it counts as when it began."""
        if not len(self._known) or 1 - float(self._known.mean()) < _LAUNCHED_BEFORE:
            return self._launch[rows]
        self._sort([self._start, self._start, self._end, np.diff(self._bytes), np.diff(self._computing)])
        return begun

    def of_intervals(self, starts: Int64, ends: Int64) -> tuple[Int64, Int64, Int64]:
        """Of what was launched in each interval the extents, the bytes to the host and the ns of what computes.

        The extents are (n, 2): first start and last end; the lowest integer where nothing was.
        """
        first, last = np.searchsorted(self._launched, starts), np.searchsorted(self._launched, ends)
        result = np.full((len(starts), 2), _NONE)
        some = np.flatnonzero(last > first)
        if len(some):
            # from each first to its last, and from there to the next first, which is left out; the end needs no further
            # part
            cuts = np.stack((first[some], last[some]), axis=1).reshape(-1)
            for column, (least, values, empty) in enumerate(
                ((np.minimum, self._start, np.iinfo(np.int64).max), (np.maximum, self._end, _NONE))
            ):
                result[some, column] = least.reduceat(np.append(values, empty), cuts)[::2]
        return result, self._bytes[last] - self._bytes[first], self._computing[last] - self._computing[first]

    def launched_in(self, starts: Int64, ends: Int64) -> Int64:
        """How many pieces of work were launched in each interval."""
        return np.searchsorted(self._launched, ends) - np.searchsorted(self._launched, starts)

    def share_launched_in(self, starts: Int64, ends: Int64) -> float:
        """The share of the work that was launched in these intervals, which do not overlap; 1 without work."""
        return float(self.launched_in(starts, ends).sum() / len(self._launched)) if len(self._launched) else 1.0


def _saves(ranges: Any, names: Sequence[str | None], codes: Int64, starts: Int64, ends: Int64) -> Flags:
    result = np.zeros(len(starts), bool)
    wanted = [code for code, name in enumerate(names) if name and len(name) <= LONGEST_NAME and CHECKPOINT.search(name)]
    at = integers(ranges.column("start"), _NONE)[np.isin(codes, wanted)]
    step = np.searchsorted(starts, at, "right") - 1
    inside = (step >= 0) & (at < ends[np.maximum(step, 0)])
    result[step[inside]] = True
    return result


def _as_long(run: Run, steps: list[RankSteps]) -> list[RankSteps]:
    """The steps; those of others for ranks that repeat themselves several times in each, such as by micro-batches.

    Of ranks whose clocks are related ranges are trusted, then the longest steps: kernels show the shortest period.
    """
    components = {c.host: c.component for c in run.manifest.clocks}
    component = {r.rank: components.get(r.host, r.host) for r in run.ranks}
    result = {f.rank: f for f in steps}
    begun = {r: run.rank(r).clock.apply(_extents(f)[:, 0]) for r, f in result.items() if len(f.starts) > _FEWEST}
    by_worth = sorted(begun, key=lambda r: (result[r].source != "kernels", float(np.median(np.diff(begun[r])))))
    leaders = {component[rank]: rank for rank in by_worth}
    for rank, own in begun.items():
        if result[rank].source == "kernels":
            result[rank] = _together(result[rank], own, begun[leaders[component[rank]]])
    return list(result.values())


def _together(its: RankSteps, begun: Int64, others: Int64) -> RankSteps:
    """The steps that begin at `begun`, as many together as there are from one of `others` to the next, if always so.

    Before and after the others were recorded, as many together as while they were.
    """
    length = int(np.median(np.diff(others)))
    others = np.append(others, others[-1] + length)
    others = others[(others > begun[0] - length) & (others < begun[-1] + length)]
    if len(others) <= _FEWEST:
        return its
    # the same part of a step may begin earlier or later than on the others; where nothing begins, no chance decides
    shifts = np.array(sorted(range(-4, 4), key=abs))[:, None] * length // 8
    places = np.searchsorted(begun, others + shifts)
    counts = np.diff(places)
    usual = np.median(counts, axis=1, keepdims=True)
    right = (usual > 1) & (np.abs(counts - usual) <= (1 - NEARLY_ALL) * usual)
    best = right.sum(axis=1).argmax()
    places, right, many = places[best], right[best], int(usual[best, 0])
    # others were recorded in part
    if right.sum() < _FEWEST or right[1:-1].sum() < _AGREEING * (len(right) - 2):
        return its
    first, last = int(right.argmax()), len(right) - int(right[::-1].argmax())
    before, after = np.arange(places[first], -1, -many)[:0:-1], np.arange(places[last], len(begun) + 1, many)[1:]
    cuts = np.concatenate((before, places[first : last + 1], after))
    starts, ends = its.starts[cuts[:-1]], its.ends[cuts[1:] - 1]
    device = np.minimum.reduceat(its.device[: cuts[-1]], cuts[:-1])
    device[:, 1] = np.maximum.reduceat(its.device[: cuts[-1], 1], cuts[:-1])
    device[cuts[1:] == cuts[:-1]] = _NONE  # events of a whole step were dropped
    sums = (np.append(0, np.cumsum(values)) for values in (its.copied, its.computed, its.prepared, its.saves))
    copied, computed, prepared, saves = (np.diff(values[cuts]) for values in sums)
    took = _took(starts, ends, device)
    return RankSteps(its.rank, its.source, starts, ends, None, device, took, copied, computed, saves > 0, prepared)


def _numbers(run: Run, found: Sequence[RankSteps]) -> dict[int, Int64]:
    """The number of each rank's steps: the program's own, else by lining the ranks up on the aligned clock, from 0.

    Where the program numbers the steps of some ranks only, the others are lined up with these.
    """
    told = {f.rank: f.numbers for f in found if f.numbers is not None}
    if len(told) == len(found):
        return told
    # devices wait for each other; a host may be steps ahead
    middles = {f.rank: run.rank(f.rank).clock.apply(_middles(f)) for f in found}
    if not middles:
        return {}
    component = {c.host: c.component for c in run.manifest.clocks}
    of = {r.rank: component.get(r.host) for r in run.ranks}
    leader = max(told or middles, key=lambda r: len(middles[r]))
    reference = middles[leader]
    numbers = {}
    for rank, own in middles.items():
        # clocks that nothing connects may be off by more than a step; of as many steps the first is the first
        if of[rank] != of[leader] and len(own) == len(reference):
            numbers[rank] = np.arange(len(own))
            continue
        shift = int(np.median(nearest(reference, own) - np.arange(len(own))))
        numbers[rank] = np.arange(len(own)) + shift
    if told:
        numbers = {rank: told.get(rank, _continued(told[leader], n)) for rank, n in numbers.items()}
    lowest = min(int(n[0]) for n in numbers.values())
    lowest = min(lowest, 0) if told else lowest
    return {rank: n - lowest for rank, n in numbers.items()}


def _extents(found: RankSteps) -> Int64:
    """The start and end of each step on the device, or on the host where it has no device work."""
    on_host = np.stack((found.starts, found.ends), axis=1)
    return np.where(found.device[:, :1] != _NONE, found.device, on_host)


def _middles(found: RankSteps) -> Int64:
    """The middle of each of `_extents`, of what is behind the step before: a step's data may be copied ahead."""
    first, last = _extents(found).T
    begun = np.clip(np.concatenate((first[:1], last[:-1])), first, last)
    middles: Int64 = begun + (last - begun) // 2
    return middles


def _continued(numbers: Int64, places: Int64) -> Int64:
    """The numbers at some places of a sequence, which continues by one before its beginning and after its end."""
    inside = np.clip(places, 0, len(numbers) - 1)
    return numbers[inside] + places - inside


def _kinds(found: Sequence[RankSteps], numbers: dict[int, Int64]) -> dict[int, str]:
    """The kind of each step of the job: by its time and its kernels', medians over ranks, and its copies or words."""
    if not any(len(f.took) for f in found):
        return {}
    each = [(numbers[f.rank], f.took, f.ends - f.starts, f.computed, f.prepared, f.copied, f.saves) for f in found]
    number, *usual, copied, saves = (np.concatenate(column) for column in zip(*each, strict=True))
    steps, of = distinct(number)
    rows = rows_by(of).values()
    taken, hosts, works, prepared = (np.array([np.median(values[its]) for its in rows]) for values in usual)
    most, saving = folded(np.maximum, of, copied, len(steps), 0), np.bincount(of, saves, len(steps)) > 0
    # what is written to files keeps the host alone
    longer = (taken > 1.1 * np.median(taken)) | (hosts > 1.1 * np.median(hosts))
    beyond = most - np.median(most)
    heavy = beyond > max(_DEVIATIONS * float(np.median(np.abs(beyond))), _SAVED_BYTES)
    # activation checkpointing bears the name too, but does it in every step
    plain = ~(longer & (heavy | (saving & (saving.sum() <= len(steps) // 2))))
    often = (~plain).sum() >= max(_FEWEST, len(steps) / 4)  # what is done so often is a part of the work
    kinds = {step: "step" if own or often else "checkpoint" for step, own in zip(steps.tolist(), plain, strict=True)}
    first = len(steps) // 2
    preparing = prepared > prepared[first:][plain[first:]].max(initial=0)
    for place, step in enumerate(steps[:first].tolist()):
        # hosts that are late in later steps make these as long; what the kernels of a cold device take shows it all the
        # same
        warm = preparing[place] and taken[place] >= _SLOWER * np.median(taken)
        warm &= not place or taken[place - 1] >= taken[place]
        # behind a first step that prepares more, one that does not and whose kernels take no longer has a pause
        by_time = _stands_out(taken, plain, place) and not (place and preparing[0])
        warm = warm or by_time or (works[place] and _stands_out(works, plain, place))
        if not warm:
            break
        kinds[step] = "warm-up"
    return kinds


def _stands_out(taken: Floats, plain: Flags, place: int) -> bool:
    """Whether a step took longer by more than steps differ: than later ones do, and of the first step than most do.

    What warms up gets no slower. Steps that are not `plain` write a checkpoint.
    """
    typical = float(np.median(taken))
    later = taken[place + 1 :][plain[place + 1 :]]
    most = max(_SLOW * typical, typical + _DEVIATIONS * float(np.median(np.abs(taken - typical))))
    if len(later) < _FEWEST:
        return bool(taken[place] >= most)
    longest, differ = float(later.max()), float(later.max() - later.min())
    if place == 0:
        return bool(taken[0] >= max(_SLOWER * typical, min(most, longest + min(differ, _LONGEST * longest))))
    return bool(taken[place - 1] >= taken[place] >= max(_SLOWER * typical, longest + differ))


def _table(found: Sequence[RankSteps], numbers: dict[int, Int64], kinds: dict[int, str]) -> Any:
    schema = STEPS.arrow_schema()
    if not found:
        return schema.empty_table()
    device = np.concatenate([f.device for f in found])
    steps = np.concatenate([numbers[f.rank] for f in found])
    columns = {
        "rank": pa.array(np.repeat([f.rank for f in found], [len(f.starts) for f in found]), pa.int32()),
        "step": pa.array(steps, pa.int64()),
        "start": pa.array(np.concatenate([f.starts for f in found])),
        "end": pa.array(np.concatenate([f.ends for f in found])),
        "device_start": pa.array(device[:, 0], mask=device[:, 0] == _NONE),
        "device_end": pa.array(device[:, 1], mask=device[:, 0] == _NONE),
        "kind": pa.array([kinds[s] for s in steps.tolist()]).dictionary_encode(),
        "source": pa.array([f.source for f in found for _ in f.starts]).dictionary_encode(),
    }
    return pa.table(columns).cast(schema)
