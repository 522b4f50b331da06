"""What the host did while a device had nothing to compute: intervals by class, from calls, ranges and Python."""

import numpy as np
import pyarrow as pa

from alltrace.recipes.questions.diagnose.calls import PAGEABLE, STAGED, Calls, having_name, mostly, named_ids
from alltrace.recipes.questions.diagnose.gaps import HostSets
from alltrace.run.collecting import whole_columns
from alltrace.run.rank import Rank
from alltrace.trace import host_patterns as patterns
from alltrace.trace.arrays import Flags, Int64, integers, is_one_of
from alltrace.trace.host_patterns import Pattern
from alltrace.trace.intervals import NOTHING, Merged, containing, difference, intersection, merge, overlap_ns, union
from alltrace.trace.kernel_rules import NOT_COMPUTE
from alltrace.trace.mpi_kinds import exchanges

_FOLLOWING_NS = 50_000
"""A wait that a thread begins so soon after a pageable copy is the end of that copy: frameworks copy and wait as one
operation."""

_MOST_LAUNCHES = 0.1
"""Ranges of one name that hold a larger share of the launches are not waiting for data, even if their name says so."""

_AT_ONCE, _SOME_AT_ONCE = 0.05, 0.25
"""A batch that takes this share of the longest wait was there already; so are this share of all where others prepare
them."""


def host_sets(rank: Rank, calls: Calls) -> HostSets:
    """What the host did.

    Calls and ranges of the threads that launch kernels count. Other threads, such as those of a data loader, delay the
    device only while the launching threads call nothing for `SILENCE_NS` or more.
    """
    classes: dict[str, tuple[Merged, str, int]] = {}
    exchanges = _exchanges(rank, calls)
    blocking = _blocking(calls, exchanges)
    named = _Named(rank, calls)
    classes["data"] = named.data(union([s for s, _, _ in blocking.values()]))
    classes["compilation"] = named.compilation()
    classes["module-loading"] = named.module_loading()
    classes |= blocking
    pauses = difference(calls.silence, classes["data"][0])
    classes["host-pause"] = (pauses, named.within(pauses), 0)
    return HostSets(
        {name: difference(intervals, exchanges) for name, (intervals, _, _) in classes.items()},
        {name: text for name, (_, text, _) in classes.items() if text},
        {name: count for name, (_, _, count) in classes.items() if name not in ("data", "host-pause")},
        known=calls.rows > 0 or rank.host_work is not None,
        exchanges=exchanges,
        batches=named.batches(classes["data"][0]),
        threads=calls.threads,
    )


def _exchanges(rank: Rank, calls: Calls) -> Merged:
    """When the launching threads were in MPI; of a rank without device work when it communicated at all."""
    if rank.host_work is not None:
        table = rank.table("kernels", ("start", "end", "kind"))
        table = table.filter(pa.array(is_one_of(table.column("kind"), NOT_COMPUTE)))
        return merge(integers(table.column("start")), integers(table.column("end")))
    if not rank.has("mpi"):
        return NOTHING
    table = rank.table("mpi", ("start", "end", "thread", "name", "kind"))
    start, end, thread = (integers(table.column(c), null) for c, null in (("start", 0), ("end", 0), ("thread", -1)))
    rows = calls.of_launching(thread) & exchanges(table) & (end > start)
    return merge(start[rows], end[rows])


def _blocking(calls: Calls, exchanges: Merged) -> dict[str, tuple[Merged, str, int]]:
    """Calls that can keep the host from going on, by class; not waits for what MPI then sends."""
    is_copy, sync = calls.named(patterns.COPIES), calls.named(patterns.SYNCS)
    later = np.isin(calls.codes, [i for i, t in enumerate(calls.texts) if "async" in t.lower()])
    pageable = is_copy & later & calls.are(PAGEABLE)
    ends = sync & _follow(calls, pageable)
    sync &= containing(merge(exchanges.starts - _FOLLOWING_NS, exchanges.ends), calls.end) < 0
    # a synchronous copy waits for itself, from any memory
    classes = {
        "allocation": calls.set_of(calls.named(patterns.ALLOCATIONS)),
        "pageable-copy": calls.set_of(pageable | ends),
        "sync-copy": calls.set_of(is_copy & ~later),
        "sync": calls.set_of((sync & ~ends) | (is_copy & later & calls.are(STAGED))),
    }
    intervals, _, _ = classes["pageable-copy"]
    _, name, count = calls.set_of(pageable)
    return classes | {"pageable-copy": (intervals, name, count)}


def _follow(calls: Calls, rows: Flags) -> Flags:
    following = np.zeros(len(rows), np.bool_)
    for thread in np.unique(calls.thread[rows]).tolist():
        own = calls.thread == thread
        ends = np.sort(calls.end[rows & own])
        at = np.searchsorted(ends, calls.start, "right") - 1
        following |= own & (at >= 0) & (calls.start - ends[np.maximum(at, 0)] <= _FOLLOWING_NS)
    return following


class _Named:
    def __init__(self, rank: Rank, calls: Calls) -> None:
        self._rank, self._calls, self._silence = rank, calls, calls.silence
        self._tables: dict[str, tuple[Int64, Int64, Int64, Int64, tuple[str, ...]]] = {}

    def data(self, blocking: Merged) -> tuple[Merged, str, int]:
        """When the program waited for data or read some."""
        sets = [
            self._set("ranges", patterns.WAITING),
            self._set("ranges", patterns.WAITING_QUEUES, others=False),
            self._set("frames", patterns.WAITING_FRAMES, others=False),
            self._set("ranges", patterns.NAMED_DATA, others=False, holds_launches=False, but=blocking),
            self._set("ranges", patterns.LOADING, holds_launches=False),
            self._set("osrt", patterns.OS_READS, others=False, but=blocking),
            self._os_waits(),
        ]
        return union([s for s, _, _ in sets]), next((text for s, text, _ in sets if len(s.starts)), ""), 0

    def _os_waits(self) -> tuple[Merged, str, int]:
        """The waits of launching threads in the operating system for what others prepare."""
        waits, name, count = self._set("osrt", patterns.OS_WAITS, others=False)
        waits = intersection(waits, self._silence)
        if self._for_copies(waits).any():  # a lock there is the loader's
            locks = intersection(self._set("osrt", patterns.OS_CONDITIONS, others=False)[0], self._silence)
            loading = self._for_copies(locks)
            waits = union([waits, Merged(locks.starts[loading], locks.ends[loading])])
        return waits, name, count

    def _for_copies(self, waits: Merged) -> Flags:
        """After which waits a launching thread copies, such as a batch to the device, before it launches a kernel."""
        copies, launches = (
            np.append(np.sort(starts), np.iinfo(np.int64).max)
            for starts in (self._calls.start[self._calls.named(patterns.COPIES)], self._calls.launches)
        )
        copied, launched = (starts[np.searchsorted(starts, waits.ends)] for starts in (copies, launches))
        before: Flags = copied < launched
        return before

    def batches(self, data: Merged) -> Merged:
        """The waits of `data` for what others prepare: in a call that waits, or where other batches come at once.

        A host that loads its batches itself takes its time for each.
        """
        took = data.durations_ns
        if not len(took):
            return NOTHING
        reads, _, _ = self._set("osrt", patterns.OS_READS, others=False)
        waiting = 2 * overlap_ns(data.starts, data.ends, self._os_waits()[0]) >= took
        long = took > _AT_ONCE * took.max(initial=0)
        waiting |= long if (~long).mean() >= _SOME_AT_ONCE else False
        waiting &= long & (2 * overlap_ns(data.starts, data.ends, reads) < took)
        return Merged(data.starts[waiting], data.ends[waiting])

    def within(self, pauses: Merged) -> str:
        """The range, else the call of the operating system, of launching threads, that fills half of the pauses.

        Of several, such as one within another, the one that lasts the shortest in all. Ranges of a name that last twice
        as long as the pauses in them, or have a large part of all launches, such as those of steps, say nothing of a
        pause.
        """
        for table in ("ranges", "osrt"):
            start, end, thread, codes, texts = self._read(table)
            rows = self._calls.of_launching(thread) & (codes >= 0) & (end > start)
            rows[rows] = overlap_ns(start[rows], end[rows], pauses) > 0
            if not rows.any():
                continue
            rows &= ~np.isin(codes, self._holding_launches(start[rows], end[rows], codes[rows]))
            named_ns = np.bincount(codes[rows], overlap_ns(start[rows], end[rows], pauses), len(texts))
            lasting_ns = np.bincount(codes[rows], (end - start)[rows], len(texts))
            filling = np.flatnonzero(2 * named_ns >= np.maximum(lasting_ns, max(pauses.total_ns, 1)))
            if len(filling):
                return texts[int(filling[lasting_ns[filling].argmin()])]
        return ""

    def compilation(self) -> tuple[Merged, str, int]:
        """When the program compiled code, and how often."""
        calls = self._calls.set_of(self._calls.named(patterns.COMPILING_CALLS))
        parts = (
            self._set("ranges", (*patterns.COMPILING, *patterns.COMPILING_FUNCTIONS), others=False),
            self._set("frames", patterns.COMPILING_FUNCTIONS, others=False),
            self._first_runs(),
            self._before_loads(),
            calls,
        )
        whole = union([s for s, _, _ in parts])
        return whole, next((text for _, text, _ in parts if text), ""), len(whole.starts)

    def _first_runs(self) -> tuple[Merged, str, int]:
        """The host's silence, and its loading of code, in compiled regions that load code."""
        regions, name, _ = self._set("ranges", patterns.COMPILED_REGIONS, others=False)
        loads = self._calls.named(patterns.CODE_CALLS)
        start, end = self._calls.start[loads], self._calls.end[loads]
        loading = np.unique(containing(regions, start))
        loading = loading[loading >= 0]
        loaded = Merged(regions.starts[loading], regions.ends[loading])
        whole = intersection(loaded, union((self._silence, merge(start, end))))
        return whole, name if len(loading) else "", len(loading)

    def _before_loads(self) -> tuple[Merged, str, int]:
        """The host's silence until it loads code, which it compiled, with the loading; at least as long."""
        loads = self._calls.named(patterns.CODE_CALLS)
        start, end = self._calls.start[loads], self._calls.end[loads]
        at = np.searchsorted(self._silence.ends, start, "right") - 1
        silent_ns, ended = np.append(self._silence.durations_ns, -1)[at], np.append(self._silence.ends, 0)[at]
        follows = (start - ended <= _FOLLOWING_NS) & (silent_ns >= end - start)
        name = mostly(self._calls.codes[loads][follows], (end - start)[follows], self._calls.texts)
        return merge(self._silence.starts[at[follows]], end[follows]), name, int(follows.sum())

    def module_loading(self) -> tuple[Merged, str, int]:
        calls = self._calls.set_of(self._calls.named(patterns.MODULE_CALLS))
        first = self._calls.set_of(self._calls.first_launches())
        overheads = self._set("overheads", patterns.MODULE_OVERHEADS, threads=False)
        parts = (calls, (first[0], "first launches of kernels" if first[2] else "", first[2]), overheads)
        named = max(parts, key=lambda p: p[0].total_ns)[1]
        return union([s for s, _, _ in parts]), named, sum(count for _, _, count in parts)

    def _set(
        self,
        table: str,
        wanted: tuple[Pattern, ...],
        *,
        others: bool = True,
        threads: bool = True,
        holds_launches: bool = True,
        but: Merged = NOTHING,
    ) -> tuple[Merged, str, int]:
        start, end, thread, codes, texts = self._read(table)
        # open rows and rows without duration have no information
        rows = having_name(codes, texts, wanted) & (end > start)
        if not rows.any():
            return NOTHING, "", 0
        if not holds_launches:
            rows &= ~np.isin(codes, self._holding_launches(start[rows], end[rows], codes[rows]))
        own = self._calls.of_launching(thread) if threads else np.ones(len(rows), np.bool_)
        sets = [merge(start[rows & own], end[rows & own])]
        if others:
            sets.append(intersection(merge(start[rows & ~own], end[rows & ~own]), self._silence))
        else:
            rows &= own
        return difference(union(sets), but), mostly(codes[rows], (end - start)[rows], texts), int(rows.sum())

    def _holding_launches(self, start: Int64, end: Int64, codes: Int64) -> list[int]:
        launches = self._calls.launches
        holding = []
        for code in np.unique(codes).tolist():
            whole = merge(start[codes == code], end[codes == code])
            low, high = (np.searchsorted(launches, times) for times in whole)
            if (high - low).sum() > _MOST_LAUNCHES * len(launches):
                holding.append(code)
        return holding

    def _read(self, table: str) -> tuple[Int64, Int64, Int64, Int64, tuple[str, ...]]:
        if table not in self._tables:
            start, end, thread, name = whole_columns(
                self._rank, (table,), {"start": 0, "end": 0, "thread": -1, "name": -1}
            )
            self._tables[table] = (start, end, thread, *named_ids(self._rank, name))
        return self._tables[table]
