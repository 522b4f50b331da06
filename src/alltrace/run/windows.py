"""What several reports of one rank are of: windows of one process, between which nothing was recorded, or attempts of the process.

A profiler that repeats its schedule, or `--capture-range-end=repeat`, writes a report for each window. A process that was started
again in its container has its host and its id, but counts its launches from the start and does its steps again: of its attempts the
last one is taken.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from alltrace.run.manifest import NAMES
from alltrace.run.names import Names
from alltrace.run.parquet import read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from alltrace.run.pieces import Piece

_STEP = re.compile(r"ProfilerStep#(\d{1,15})$")

Spans = tuple[tuple[int, int], ...]


class _Counted(NamedTuple):
    """The least and the largest of some numbers."""

    least: int
    most: int


def last_attempt(pieces: Sequence[Piece]) -> int:
    """Where the last attempt begins among the pieces of a rank, which are in order of time."""
    calls = [_correlations(p.folder) for p in pieces]
    steps = [_steps(p.folder) for p in pieces]
    begin = 0
    for n in range(1, len(pieces)):
        before, now, before_step, now_step = calls[n - 1], calls[n], steps[n - 1], steps[n]
        if before is None or now is None or before_step is None or now_step is None:
            continue
        if now.least <= before.least and now_step.least <= before_step.most:
            begin = n
    return begin


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


def _correlations(folder: Path) -> _Counted | None:
    path = folder / "api.parquet"
    if not path.is_file():
        return None
    extremes = pc.min_max(read_parquet(path, ["correlation"]).column("correlation")).as_py()
    return None if extremes["min"] is None else _Counted(extremes["min"], extremes["max"])


def _steps(folder: Path) -> _Counted | None:
    path, names = folder / "ranges.parquet", folder / NAMES
    if not path.is_file() or not names.is_file():
        return None
    texts = Names(lambda: [names]).texts(pc.unique(read_parquet(path, ["name"]).column("name"))).to_pylist()
    numbers = [int(m[1]) for text in texts if text and (m := _STEP.match(text))]
    return _Counted(min(numbers), max(numbers)) if numbers else None
