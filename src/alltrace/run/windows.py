"""What the reports of one rank are of: windows of one process, or attempts of the process.

A profiler that repeats its schedule, or `--capture-range-end=repeat`, writes a report for each window, or one of all.
In that, the profiler paused where nothing at all is between two steps of PyTorch's schedule, which follow each other at
once, for as long as a step takes; or between the program's calls to stop the profiler and to start it. A process that
was started again in its container has its host and its id, but counts its launches from the start and does its steps
again: of its attempts the last one is taken.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.pieces import Piece
from alltrace.run.plausibility import PROFILER_STEP
from alltrace.run.row_times import times_of
from alltrace.trace.arrays import Int64, integers

_SWITCH = "(?:cuda|cu|hip)Profiler(?:Start|Stop)"
_OFF = "ProfilerStop"
_LEAST_NS = 1_000_000

Spans = tuple[tuple[int, int], ...]


class _Counted(NamedTuple):
    """The least and the largest of some numbers."""

    least: int
    most: int


def last_attempt(pieces: Sequence[Piece]) -> int:
    """Where the last attempt begins among the pieces of a rank, which are in order of time."""
    calls = [_correlations(p) for p in pieces]
    steps = [_steps(p) for p in pieces]
    begin = 0
    for n in range(1, len(pieces)):
        before, now, before_step, now_step = calls[n - 1], calls[n], steps[n - 1], steps[n]
        if before is None or now is None or before_step is None or now_step is None:
            continue
        if now.least <= before.least and now_step.least <= before_step.most:
            begin = n
    return begin


def windows_of(piece: Piece) -> Spans:
    """The spans of time that one report recorded, if its profiler paused between them; else none."""
    off = [*_off_between_steps(piece), *_off_between_calls(piece)]
    if not off or piece.start_ns is None or piece.end_ns is None:
        return ()
    from alltrace.trace.intervals import clip, gaps, merge, union

    tables = [times for name in piece.rows if (times := times_of(piece, name)) is not None]
    pauses = []
    for start, end, least_ns in off:
        parts = (part for times in tables for part in times.parts())
        inside = ((starts, ends, (starts < end) & (ends > start)) for starts, ends in parts)
        events = union(merge(starts[rows], np.maximum(ends, starts + 1)[rows]) for starts, ends, rows in inside)
        empty = gaps(clip(events, start, end), start, end)
        pauses += [(int(a), int(b)) for a, b in zip(empty.starts, empty.ends, strict=True) if b - a >= least_ns]
    edges = [piece.start_ns, *(t for pause in merged_spans(pauses) for t in pause), piece.end_ns]
    return recorded_windows(zip(edges[::2], edges[1::2], strict=True))


def recorded_windows(spans: Iterable[tuple[int, int]]) -> Spans:
    """The spans of time that reports are of, ascending, those that overlap as one; none if that is one."""
    windows = merged_spans(spans)
    return windows if len(windows) > 1 else ()


def merged_spans(spans: Iterable[tuple[int, int]]) -> Spans:
    """Spans in order, those that overlap or touch as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return tuple(merged)


def between(windows: Spans) -> Spans:
    """The time between windows."""
    return tuple((before[1], behind[0]) for before, behind in pairwise(windows))


def _correlations(piece: Piece) -> _Counted | None:
    if not piece.rows.get("api"):
        return None
    extremes = pc.min_max(piece.read("api", ["correlation"]).column("correlation")).as_py()
    return None if extremes["min"] is None else _Counted(extremes["min"], extremes["max"])


def _steps(piece: Piece) -> _Counted | None:
    numbers = [int(text.partition("#")[2]) for text in piece.named("ranges", PROFILER_STEP).values()]
    return _Counted(min(numbers), max(numbers)) if numbers else None


def _times_named(piece: Piece, table: str, names: Iterable[int]) -> tuple[Int64, Int64]:
    """The starts and ends of the rows of a table with some names."""
    ids = pa.array(list(names), pa.int64())
    parts = piece.parts(table, ["name", "start", "end"])
    its = pa.concat_tables([part.filter(pc.is_in(part.column("name"), value_set=ids)) for part in parts])
    start = integers(its.column("start"))
    return start, integers(pc.coalesce(its.column("end"), its.column("start")))


def _off_between_steps(piece: Piece) -> Iterator[tuple[int, int, int]]:
    """The times between steps, and how long nothing has to be in each; steps follow each other at once."""
    names = piece.named("ranges", PROFILER_STEP)
    if len(names) > 1:
        from alltrace.trace.intervals import gaps, merge

        starts, ends = _times_named(piece, "ranges", names)
        least_ns = max(_LEAST_NS, int(np.median(ends - starts)))
        apart = gaps(merge(starts, ends))
        yield from (
            (a, b, least_ns)
            for a, b in zip(apart.starts.tolist(), apart.ends.tolist(), strict=True)
            if b - a >= least_ns
        )


def _off_between_calls(piece: Piece) -> Iterator[tuple[int, int, int]]:
    """The times between the program's calls to stop the profiler and to start it, likewise."""
    names = piece.named("api", _SWITCH)
    stop = [i for i, name in names.items() if _OFF in name]
    if stop:
        _, stopped = _times_named(piece, "api", stop)
        started, _ = _times_named(piece, "api", names.keys() - stop)
        for end in stopped.tolist():
            later = started[started >= end]
            if len(later):
                yield end, int(later.min()), _LEAST_NS
