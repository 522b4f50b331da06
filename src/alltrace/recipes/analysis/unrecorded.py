"""Time that was recorded, and time with possibly lost records, for the `merge` of questions about idle devices."""

import numpy as np

from alltrace.recipes.base import RunFacts
from alltrace.run.manifest import Manifest, RankRecord
from alltrace.run.windows import between
from alltrace.trace.errors import InputError
from alltrace.trace.intervals import Merged, clip, difference, merge

_MOST = 0.01
"""A replay that counts up to this share of a rank's time as idle that may not have been has a note."""


def session_ns(manifest: Manifest, rank: RankRecord) -> int | None:
    """From the start of the session of a rank's first report to the end of its last one's; None if unknown."""
    reports = [manifest.reports[n] for n in rank.reports]
    if len(reports) == 1:
        return reports[0].session_ns
    spans = [(r.utc_ns, r.utc_ns + r.session_ns) for r in reports if r.utc_ns is not None and r.session_ns is not None]
    return None if len(spans) < len(reports) else max(end for _, end in spans) - min(start for start, _ in spans)


def unrecorded_of(run: RunFacts) -> dict[int, Merged]:
    """When each rank may have done work that has no record, aligned ns; ranks with all their records are left out."""
    by_rank = {}
    for rank in run.ranks:
        if rank.unrecorded:
            times = run.clock(rank).apply(np.array(rank.unrecorded, np.int64).reshape(-1))
            by_rank[rank.rank] = merge(times[::2].copy(), times[1::2].copy())
    return by_rank


def refuse_unrecorded(run: RunFacts, ranks: set[int]) -> None:
    """Refuse to take time without records for waits. Raises `InputError`: it may be over 1 % of a rank's time."""
    for rank in run.ranks:
        spans = unrecorded_of(run).get(rank.rank) if rank.rank in ranks else None
        if spans is None or rank.start_ns is None or rank.end_ns is None:
            continue
        clock, (first, last) = run.clock(rank), run.span_ns
        if rank.windows:  # nothing is known to be lost between them
            times = clock.apply(np.array(between(rank.windows), np.int64).reshape(-1))
            spans = difference(spans, merge(times[::2].copy(), times[1::2].copy()))
        begin, end = max(clock.apply_one(rank.start_ns), first), min(clock.apply_one(rank.end_ns), last)
        if clip(spans, begin, end).total_ns > _MOST * (end - begin):
            lost = next(m for m in rank.missing_records if m.what != "launches")
            raise InputError(
                getattr(run, "path", "the run"),
                found=f"rank {rank.rank} has no record of what {lost.number:,} of {lost.of:,} launches ran",
                expected="the records of all kernels, because a wait cannot be distinguished from a missing kernel",
                advice=(
                    "capture the rank again, or choose --steps or --ranks with complete records (see `alltrace info`)"
                ),
            )
