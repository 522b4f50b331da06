"""When the NVTX ranges of a name were, over ranks: the window that an export of a range has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alltrace.export.columns import GPU_TABLES, UNKNOWN, call_keys, numbers
from alltrace.run.manifest import RankRecord
from alltrace.run.rank import Rank
from alltrace.run.store import Run
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError
from alltrace.trace.range_selector import RangeName


def window_of(run: Run, ranks: Sequence[RankRecord], wanted: RangeName) -> tuple[int, int]:
    """From the first start of the ranges to the last end of them, or of work that calls of their threads launched in them.

    `ranks`: the ranks; one without such a range counts for nothing. `wanted`: which ranges; an index counts the
    ranges of each rank. Returns start and end, ns on the run's aligned clock. Raises `UsageError`: no rank has such
    a range.
    """
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
    """Threads, starts and ends of a rank's ranges that are named, in the order of their starts; an open one ends with the run."""
    parts = [np.empty((3, 0), np.int64)]
    for batch in stored.batches("ranges", ["start", "end", "thread", "name", "domain"]):
        keys = np.stack([numbers(batch, "domain"), numbers(batch, "name")])
        kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
        import pyarrow as pa

        domains, names = (run.texts(pa.array(k)).to_pylist() for k in kinds)
        mine = [wanted.names(n, None if k == UNKNOWN else d) for n, d, k in zip(names, domains, kinds[0].tolist(), strict=True)]
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
