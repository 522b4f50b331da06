"""When a job's steps ended, by the times in its training log: for NCCL's logs without steps' lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from alltrace.run.log_files import nothing_in
from alltrace.trace.errors import InputError, UsageError, path_text
from alltrace.trace.number_text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.readers.nccl_log.read import LogPart
    from alltrace.trace.arrays import Int64

_NOT_OF_NCCL = ("foreign", "step")


@dataclass(frozen=True)
class StepTimes:
    """The ends of a job's steps."""

    path: str  # the training log
    # when the line of each step was written, ascending, ns since 1970: by its zone, else as if local time were UTC
    end_ns: Int64
    steps: Int64
    zoned: bool  # whether the times have a zone


def read_step_times(path: Path, patterns: Sequence[str] = ()) -> StepTimes:
    """The ends of steps in a training log. Raises `InputError`: unreadable, no step with a time, or times go back."""
    from alltrace.readers.training_log.read import read_training

    log = read_training(str(path), patterns=patterns)
    if not log.written:
        problem = f"{counted(len(log.steps), 'step')} in {counted(log.lines, 'line')}, none of them with a time"
        raise nothing_in([log], problem, expected="a training log with a date and a time in its step lines")
    if len(log.zones) > 1:
        raise InputError(path, found=f"times of {len(log.zones)} time zones", expected="times of one")
    zone = next(iter(log.zones))
    offset = datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").utcoffset()
    ahead_ns = 0 if offset is None else round(offset.total_seconds()) * 1_000_000_000
    end_ns = np.array([time for time, _ in log.written], np.int64) - ahead_ns
    if (np.diff(end_ns) < 0).any():
        raise InputError(
            path, found="the times of its step lines go backwards", expected="times that increase from line to line"
        )
    return StepTimes(str(path), end_ns, np.array([step for _, step in log.written], np.int64), bool(zone))


def training_log_beside(parts: Sequence[LogPart]) -> StepTimes | None:
    """The ends of steps in the only log with steps but no NCCL; None without. Raises `UsageError`: several."""
    times = []
    for part in parts:
        if not any(n for kind, n in part.records.counts.items() if kind not in _NOT_OF_NCCL):
            try:
                times.append(read_step_times(Path(part.path)))
            except InputError:  # any other file of the folder
                continue
    if len(times) > 1:
        names = " and ".join(path_text(its.path) for its in times[:2])
        raise UsageError(f"{names} both have step lines with times; choose one with --training-log")
    return times[0] if times else None
