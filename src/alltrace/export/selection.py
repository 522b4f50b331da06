"""What of a run is exported: ranks, tables and a window of time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from alltrace.align.aligned import Aligned
from alltrace.export.columns import GPU_TABLES, UNKNOWN, call_keys, numbers
from alltrace.run.manifest import RankRecord
from alltrace.run.rank import Rank
from alltrace.run.store import Run, SentRun
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError
from alltrace.trace.range_selector import RangeName
from alltrace.trace.schema import EVENT_TABLES, TABLES
from alltrace.trace.spans import Span


@dataclass(frozen=True)
class Selection:
    run: Run
    ranks: tuple[RankRecord, ...]  # its ranks wanted, ascending
    tables: frozenset[str]  # the event tables wanted
    # start and end on the run's aligned clock, which events are clipped to. None for the whole run
    window_ns: tuple[int, int] | None = None

    @property
    def zero_ns(self) -> int:
        """The time that becomes 0 in the export: the start of the window, or of the first event of the run."""
        return self.run.span_ns[0] if self.window_ns is None else self.window_ns[0]

    @property
    def end_ns(self) -> int:
        """Where the export ends on the run's aligned clock: the end of the window, or the last end of the run."""
        return self.run.span_ns[1] if self.window_ns is None else self.window_ns[1]

    def distinct(self, rank: RankRecord, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """The values of columns of whole numbers in the wanted rows of a rank's table."""
        # Yields `pyarrow.Table`s, as `batches`; a piece with only identical, selected rows is reduced to one row.
        import pyarrow as pa

        if table not in self.tables:
            return
        stored = self.run.rank(rank.rank)
        order = TABLES[table].order or "start"
        schema = TABLES[table].arrow_schema(columns)
        read: list[int] = []
        seen: set[tuple[int, ...]] = set()
        pieces = stored.pieces(table) if self.window_ns is None and table != "collectives" else []
        for piece in pieces:
            values = tuple(stored.constant(table, piece.group, c) for c in columns)
            constants = tuple(v for v in values if v is not None)
            if piece.start_ns is None or len(constants) < len(columns):
                read.append(piece.group)
            else:
                seen.add(constants)
        if len(read) == len(pieces):
            yield from self.batches(rank, table, columns)
            return
        for constants in sorted(seen):
            yield pa.table([pa.array([v], f.type) for v, f in zip(constants, schema, strict=True)], schema=schema)
        for group in read:
            yield from self._wanted(stored.piece(table, group, list(dict.fromkeys((*columns, order)))), order, table)

    def batches(self, rank: RankRecord, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """The wanted rows of a rank's table, as non-empty `pyarrow.Table`s; times are on the run's aligned clock."""
        # `start` and `end` are clipped to the window. Rows without a start are left out, but for collectives of which
        # only the call is known, if `api_start` is among the columns.
        if table not in self.tables:
            return
        order = TABLES[table].order or "start"
        names = TABLES[table].column_names
        further = ("end",) if self.window_ns is not None and "end" in names else ()
        for batch in self.run.rank(rank.rank).batches(table, list(dict.fromkeys((*columns, order, *further)))):
            yield from self._wanted(batch, order, table)

    def _wanted(self, batch: Any, order: str, table: str) -> Iterator[Any]:
        rows = batch
        if self.window_ns is not None:
            rows = self._clipped(batch, order, table, *self.window_ns)
        elif batch.column(order).null_count:
            rows = batch.filter(pc.is_valid(_starts(batch, order)))
        if rows.num_rows:
            yield rows

    def _clipped(self, batch: Any, order: str, table: str, since: int, until: int) -> Any:
        """The rows that reach into a window, with the part of each that is in it."""
        starts = _starts(batch, order)
        if "end" not in batch.column_names:
            return batch.filter(pc.and_(pc.greater_equal(starts, since), pc.less(starts, until)))
        ends = batch.column("end")
        # a range without an end is open to the end of the run; other work without one takes no time
        reach = pc.fill_null(ends, self.run.span_ns[1]) if table == "ranges" else pc.coalesce(ends, starts)
        begun = pc.or_(pc.greater_equal(starts, since), pc.greater(reach, since))
        rows = batch.filter(pc.and_(begun, pc.less(starts, until)))
        for name, limit in (("start", pc.max_element_wise), ("end", pc.min_element_wise)):
            bound = since if name == "start" else until
            clipped = limit(rows.column(name), bound, skip_nulls=False)
            rows = rows.set_column(rows.column_names.index(name), name, clipped)
        return rows


# `selection`: the selection in this process.
class SentSelection:
    """A selection that is sent to other processes, where its run is opened once (see `SentRun`)."""

    def __init__(self, selection: Selection) -> None:
        self._sent = SentRun(selection.run)
        self._ranks = [r.rank for r in selection.ranks]
        self._what = selection.tables, selection.window_ns
        self.selection = selection

    @cached_property
    def selection(self) -> Selection:
        run = self._sent.run
        return Selection(run, tuple(run.rank(number).record for number in self._ranks), *self._what)

    @property
    def needs(self) -> tuple[Path, ...]:
        return self._sent.needs

    def __getstate__(self) -> dict[str, Any]:
        return {"_sent": self._sent, "_ranks": self._ranks, "_what": self._what}


def _starts(batch: Any, order: str) -> Any:
    """When the rows of a batch start: on a device, or else their calls."""
    starts = batch.column(order)
    return pc.coalesce(starts, batch.column("api_start")) if "api_start" in batch.column_names else starts


def select(
    run: Run,
    *,
    ranks: Sequence[int] | None = None,
    only: Collection[str] | None = None,
    window_ns: Span | None = None,
    steps: Span | None = None,
    aligned: Aligned | None = None,
    within: RangeName | None = None,
) -> Selection:
    """A selection of a run."""
    # `ranks`: the ranks wanted; None for all. `only`: the event tables wanted; None for all. `window_ns`: start and
    # end, relative to the first event of the run. `steps`: the selected steps; the window goes from their first start
    # on any rank to the last end, including the work launched in them. `aligned`: the alignment, for `steps`. `within`:
    # the NVTX range wanted, instead of `window_ns` and `steps`: from its first start on any rank to the last end, that
    # of the work launched in it among them. Raises `UsageError`: the rank, table, step or range does not exist, or the
    # window is empty.
    for number in ranks or ():
        run.rank(number)
    for name in only or ():
        if name not in EVENT_TABLES:
            raise UsageError.unknown("table for --only", name, EVENT_TABLES)
    chosen = set(ranks or ())
    wanted = run.ranks if ranks is None else tuple(r for r in run.ranks if r.rank in chosen)
    zero = run.span_ns[0]
    window = None
    if window_ns is not None:
        first, end = window_ns
        window = zero + (first or 0), run.span_ns[1] + 1 if end is None else zero + end
    if steps is not None and aligned is not None:
        window = _of_steps(aligned, steps, [r.rank for r in wanted])
    if within is not None:
        window = window_of(run, wanted, within)
    if window is not None and window[1] <= window[0]:
        raise UsageError(f"the window ends at {window[1] - zero} ns, before or at its start at {window[0] - zero} ns")
    return Selection(run, wanted, frozenset(EVENT_TABLES if only is None else only), window)


def _of_steps(aligned: Aligned, steps: Span, ranks: Sequence[int]) -> tuple[int, int]:
    import pyarrow as pa

    table = aligned.steps
    numbers = table.column("step")
    mine = pc.is_in(table.column("rank"), pa.array(ranks, pa.int32()))
    rows = table.filter(pc.and_(mine, pa.array(steps.holds(numbers.to_numpy()))))
    if not rows.num_rows:
        extremes = pc.min_max(numbers).as_py()
        there = (
            "no steps were found in the run"
            if extremes["min"] is None
            else f"there are {extremes['min']} to {extremes['max']}"
        )
        raise UsageError(f"--steps is {steps}; {there}")
    lasts = [pc.max(rows.column(c)).as_py() for c in ("end", "device_end")]
    return pc.min(rows.column("start")).as_py(), max(e for e in lasts if e is not None)


def window_of(run: Run, ranks: Sequence[RankRecord], wanted: RangeName) -> tuple[int, int]:
    """From the first start of ranges to the last end of them or of work that their threads' calls launched in them."""
    # `ranks`: the ranks; one without such a range counts for nothing. `wanted`: which ranges; an index counts the
    # ranges of each rank. Returns start and end, ns on the run's aligned clock. Raises `UsageError`: no rank has such a
    # range.
    firsts, lasts = [], []
    for rank in ranks:
        stored = run.rank(rank.rank)
        threads, starts, ends = _spans(run, stored, wanted)
        if len(starts):
            firsts.append(int(starts.min()))
            lasts.append(max(int(ends.max()), _last_work(stored, _calls_in(stored, threads, starts, ends))))
    if not firsts:
        index = "" if wanted.index is None else f" with index {wanted.index}"
        domain = "the default domain" if wanted.domain is None else f"domain {wanted.domain!r}"
        advice = "`alltrace recipe nvtx_sum RUN` lists the ranges of all domains"
        raise UsageError(f"--range: no rank has an NVTX range {wanted.name!r}{index} in {domain}; {advice}")
    return min(firsts), max(lasts)


def _spans(run: Run, stored: Rank, wanted: RangeName) -> tuple[Int64, Int64, Int64]:
    """Threads, starts and ends of a rank's named ranges, in order of start; an open one ends with the run."""
    parts = [np.empty((3, 0), np.int64)]
    for batch in stored.batches("ranges", ["start", "end", "thread", "name", "domain"]):
        keys = np.stack([numbers(batch, "domain"), numbers(batch, "name")])
        kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
        import pyarrow as pa

        domains, names = (run.texts(pa.array(k)).to_pylist() for k in kinds)
        mine = [
            wanted.names(n, None if k == UNKNOWN else d)
            for n, d, k in zip(names, domains, kinds[0].tolist(), strict=True)
        ]
        columns = (numbers(batch, "thread"), numbers(batch, "start"), numbers(batch, "end", run.span_ns[1]))
        parts.append(np.stack(columns)[:, np.array(mine, bool)[inverse.reshape(-1)]])
    ranges = np.concatenate(parts, axis=1)
    ranges = ranges[:, np.argsort(ranges[1], kind="stable")]
    if wanted.index is not None:
        ranges = ranges[:, wanted.index : wanted.index + 1]
    return ranges[0], ranges[1], np.maximum(ranges[2], ranges[1])


def _calls_in(stored: Rank, threads: Int64, starts: Int64, ends: Int64) -> Int64:
    """The keys of the calls that begin in the ranges, on their threads; ascending."""
    keys = [np.empty(0, np.int64)]
    for batch in stored.batches("api", ["start", "thread", "process", "correlation"]):
        begun, owners, correlations = (numbers(batch, c) for c in ("start", "thread", "correlation"))
        within = np.zeros(len(begun), bool)
        for thread in np.unique(threads).tolist():
            mine = threads == thread
            reach = np.maximum.accumulate(ends[mine])
            before = np.searchsorted(starts[mine], begun, "right") - 1
            within |= (owners == thread) & (before >= 0) & (begun < reach[before])
        within &= correlations > 0
        keys.append(call_keys(numbers(batch, "process"), correlations)[within])
    return np.unique(np.concatenate(keys))


def _last_work(stored: Rank, calls: Int64) -> int:
    """The last end of work that these calls launched; before all times if there is none."""
    last = np.iinfo(np.int64).min
    for table in GPU_TABLES if len(calls) else ():
        for batch in stored.batches(table, ["start", "end", "process", "correlation"]):
            keys = call_keys(numbers(batch, "process"), numbers(batch, "correlation"))
            mine = calls[np.minimum(np.searchsorted(calls, keys), len(calls) - 1)] == keys
            last = max(last, int(numbers(batch, "end", last)[mine].max(initial=last)))
    return int(last)
