"""The step of a call in NCCL's logs, by the time stamps of a training log of the same run.

A step's line is written at the step's end, so the calls of a step are those between two lines. Both logs are of one
host and one clock. A stamp in whole seconds covers its whole second: a call with an ambiguous step gets none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.core.nccl_log import ABSENT
from alltrace.run.nccl_logs import NcclLogs
from alltrace.run.step_times import StepTimes
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import counted
from alltrace.trace.spans import Span

_UNITS_NS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_BACK_NS = 60_000_000_000
"""Lines of threads change places by less; a clock that was set back, as at the end of summer time, goes by more."""


class StepsByTime:
    """The steps of calls in some logs, by time.

    `which`: The logs with times of calls. `refused`: Why times cannot determine the steps; None if they can. `note`:
    What a reader must know of the calls without a step. `span`: The steps wanted, or None for all.
    """

    def __init__(self, logs: NcclLogs, which: set[int], times: StepTimes, span: Span | None) -> None:
        self._logs, self.which, self._times = logs, which, times
        self._call_ns: dict[int, int] = {}
        self._end_ns = resolution_ns(times.end_ns)
        self._padded = np.append(times.steps, -1)
        wanted = (self._padded >= 0) & (True if span is None else span.holds(self._padded))
        self._before = np.append(0, np.cumsum(wanted))
        self.note: str | None = None
        self.refused = self._why_not()
        if self.refused is None:
            self._look(span)

    def steps(self, log: int, batch: Any) -> Int64:
        """The step of each call of a batch; -1 after the last step, without a time, and if the time is ambiguous."""
        first, last = self._places(log, batch)
        return np.where(first == last, self._padded[first], -1)

    def wanted(self, log: int, batch: Any) -> NDArray[np.bool_]:
        """Which calls of a batch are of the wanted steps for sure, of whichever of them."""
        return self._wanted(log, batch)[0]

    def _wanted(self, log: int, batch: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which calls are of the wanted steps for sure, and which may be."""
        first, last = self._places(log, batch)
        among = self._before[last + 1] - self._before[first]
        return among == last - first + 1, among > 0

    def _places(self, log: int, batch: Any) -> tuple[Int64, Int64]:
        """The indexes of the first and the last step line that may be the next one after each call."""
        time = batch.column("time_ns").fill_null(ABSENT).to_numpy()
        first = np.searchsorted(self._times.end_ns + (self._end_ns - 1), time, side="right")
        last = np.searchsorted(self._times.end_ns, time + (self._call_ns[log] - 1), side="right")
        behind = len(self._times.end_ns)
        return np.where(time == ABSENT, 0, first), np.where(time == ABSENT, behind, last)  # without a time it may be of any

    def _batches(self) -> Iterator[tuple[int, Any]]:
        return ((log, batch) for log, batch in self._logs.calls() if log in self.which)

    def _why_not(self) -> str | None:
        name = path_text(self._times.path)
        parts = self._logs.parts
        hosts = {parts[log].records.processes[process].host for log in self.which for process, _tid, _dev in parts[log].tokens}
        if len(hosts) > 1:
            return f"NCCL's logs are of {len(hosts)} hosts, whose clocks may differ; give those of the host that wrote {name}"
        if not set().union(*(parts[log].records.zoned for log in self.which)) <= {self._times.zoned}:
            zones = ("with", "without") if self._times.zoned else ("without", "with")
            return f"the times of {name} are {zones[0]} a time zone, and those of NCCL's lines {zones[1]} one"
        latest: dict[int, int] = {}
        for log, batch in self._batches():
            time = batch.column("time_ns").drop_null().to_numpy()
            if len(time):
                reached = np.maximum.accumulate(np.append(latest.get(log, time[0]), time))
                if (reached[1:] - time).max() > _BACK_NS:
                    return f"the times of {path_text(parts[log].path)} go back by more than {_BACK_NS // 10**9} s"
                latest[log] = int(reached[-1])
                self._call_ns[log] = min(self._call_ns.get(log, 10**9), resolution_ns(time))
        self.which &= set(latest)
        if not latest:
            return "NCCL's calls have no times, which NCCL writes with NCCL_DEBUG_TIMESTAMP_LEVELS=ALL"
        return None

    def _look(self, span: Span | None) -> None:
        between = sure = untold = 0
        for log, batch in self._batches():
            time = batch.column("time_ns").drop_null().to_numpy()
            between += int(((time >= self._times.end_ns[0]) & (time <= self._times.end_ns[-1])).sum())
            if span is None:
                first, last = self._places(log, batch)
                certain, possible = first == last, np.ones(len(first), bool)
            else:
                certain, possible = self._wanted(log, batch)
            sure += int(certain.sum())
            untold += int((possible & ~certain).sum())
        if not between:  # of another job or another time zone: all would be of the first step, or of none
            name = path_text(self._times.path)
            self.refused = f"no call of NCCL was written between the first and the last step's line of {name}"
        elif untold and not sure:
            self.refused = (
                "times as coarse as these do not show the step of any call; "
                "NCCL_DEBUG_TIMESTAMP_FORMAT='[%F %T.%6f] ' has NCCL write finer ones"
            )
        elif untold:
            what = "of which step they are" if span is None else "whether they are of these steps"
            self.note = f"{counted(untold, 'call')} left out: times as coarse as these, or none, do not show {what}"


def resolution_ns(times: Int64) -> int:
    """The longest of 1 s, 100 ms and so on to 1 ns of which all times are multiples: the time that one stamp covers."""
    return max(unit for unit in _UNITS_NS if not (times % unit).any())
