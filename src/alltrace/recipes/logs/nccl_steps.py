"""Which training step a call of NCCL's logs is of.

A training log prints a step's line at its end, so a step's calls are those before its line. Logs without these lines,
as in jobs with a file per rank of which only one prints, are matched with those that have them: the n-th collective
call of a communicator is in the same step on all its ranks. Otherwise the times of a training log of the same run are
used (`nccl_step_times`).
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from alltrace.core.nccl_log import ABSENT
from alltrace.run.nccl_logs import NcclLogs
from alltrace.run.step_times import StepTimes
from alltrace.trace.arrays import Flags, Int64
from alltrace.trace.errors import UsageError, path_text
from alltrace.trace.nccl_words import OPERATIONS, POINT_TO_POINT
from alltrace.trace.number_text import counted
from alltrace.trace.spans import Span

# The step of a call in NCCL's logs, by the time stamps of a training log of the same run. A step's line is written at
# the step's end, so the calls of a step are those between two lines. Both logs are of one host and one clock. A stamp
# in whole seconds covers its whole second: a call with an ambiguous step gets none.

_UNITS_NS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_BACK_NS = 60_000_000_000
"""Lines of threads change places by less; a clock that was set back, as at the end of summer time, goes by more."""


class StepsByTime:
    """The steps of calls in some logs, by time, of `span` if it is given; `which`: the logs with times of calls.

    `refused`: why times cannot determine the steps. `note`: what a reader must know of calls without a step.
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

    def wanted(self, log: int, batch: Any) -> Flags:
        """Which calls of a batch are of the wanted steps for sure, of whichever of them."""
        return self._wanted(log, batch)[0]

    def _wanted(self, log: int, batch: Any) -> tuple[Flags, Flags]:
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
        # without a time it may be of any
        return np.where(time == ABSENT, 0, first), np.where(time == ABSENT, behind, last)

    def _batches(self) -> Iterator[tuple[int, Any]]:
        return ((log, batch) for log, batch in self._logs.calls() if log in self.which)

    def _why_not(self) -> str | None:
        name = path_text(self._times.path)
        parts = self._logs.parts
        hosts = {
            parts[log].records.processes[process].host
            for log in self.which
            for process, _tid, _dev in parts[log].tokens
        }
        if len(hosts) > 1:
            return (
                f"NCCL's logs are of {len(hosts)} hosts, whose clocks may differ; give those of the host that wrote"
                f" {name}"
            )
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


Marks = dict[int | None, tuple[Int64, Int64]]
"""Lines at which steps end, and the steps, by rank of a prefix or by process; None means all."""

FROM_CALL = 4  # the bit of `flags` of a call that a CALL record describes
_NONE = (np.zeros(0, np.int64), np.zeros(0, np.int64))
_COLLECTIVE = np.array([name not in POINT_TO_POINT for name in OPERATIONS], bool)


class StepFinder:
    """Which step a call is of. Raises `UsageError`: a span is set, and no log has a step line or call in it.

    A rank's calls are compared with its own lines if these state their rank, otherwise with the first line of each
    step. `any`: whether any log has a step's line. `notes`: what a reader must know of logs that have none.
    """

    def __init__(self, logs: NcclLogs, span: Span | None) -> None:
        self._span = span
        self._logs = logs
        self._marks: list[Marks] = []
        self._key: list[Int64] = []
        numbers = set()
        for part in logs.parts:
            by_rank: dict[int | None, list[tuple[int, int]]] = {}
            for line, step, rank in part.records.steps:
                numbers.add(step)
                for key in {rank, None}:
                    marks = by_rank.setdefault(key, [])
                    if not marks or marks[-1][1] != step:
                        marks.append((line, step))
            if len(by_rank) <= 2:  # one rank alone, or none, prints the steps: its lines are everybody's
                by_rank = {None: by_rank.get(None, [])}
            self._marks.append(
                {
                    rank: (np.array([m[0] for m in marks], np.int64), np.array([m[1] for m in marks], np.int64))
                    for rank, marks in by_rank.items()
                }
            )
            ranks = [part.records.processes[process].prefix_rank for process, _tid, _dev in part.tokens]
            self._key.append(np.array([-1 if r is None else r for r in ranks] or [-1], np.int64))
        self._by_time: StepsByTime | None = None
        self._timed: set[int] = set()
        if logs.step_times is not None:
            numbers.update(logs.step_times.steps.tolist())
        self.any: bool = bool(numbers)
        if span is not None and not numbers:
            raise UsageError(
                "--steps needs a log in which a step's lines (such as `iteration 45/100`) are between NCCL's; none has "
                "one; name the training's own log with --training-log"
            )
        if span is not None and not any(map(span.holds, numbers)):
            raise UsageError(f"--steps is {span}; the logs have steps {min(numbers)} to {max(numbers)}")
        self.notes = self._without_lines() if numbers else ()

    def steps(self, log: int, batch: Any) -> Any:
        """The step of each call of a batch; -1 after the last step line, and if a time is ambiguous."""
        if log in self._timed and self._by_time is not None:
            return self._by_time.steps(log, batch)
        lines, tokens = batch.column("line").to_numpy(), batch.column("token").to_numpy()
        marks = self._marks[log]
        out = np.full(len(lines), -1, np.int64)
        keys = self._key[log][tokens]
        for key in np.unique(keys).tolist() if set(marks) != {None} else [None]:
            at, step = marks.get(key, marks.get(None, _NONE))
            mine = slice(None) if key is None else keys == key
            place = np.searchsorted(at, lines[mine], side="right")
            padded = np.append(step, -1)
            out[mine] = padded[place]
        return out

    def wanted(self, log: int, batch: Any) -> Any:
        """Which calls of a batch are of the wanted steps."""
        if self._span is None:
            return np.ones(len(batch), bool)
        if log in self._timed and self._by_time is not None:
            return self._by_time.wanted(log, batch)
        steps = self.steps(log, batch)
        return (steps >= 0) & self._span.holds(steps)

    def _without_lines(self) -> tuple[str, ...]:
        """Find the steps of logs without steps' lines, and say which those are."""
        parts = self._logs.parts
        there = [log for log, part in enumerate(parts) if part.records.counts["COLL"] + part.records.counts["CALL"]]
        without = [log for log in there if not parts[log].records.steps]
        if not without:
            return ()
        completed = self._by_sequence(set(there) - set(without), set(without))
        notes = []
        if completed:
            files = f"{counted(len(completed), 'log')} of {len(there)} with calls"
            notes.append(
                f"{files} have no step's line: their steps are by the order of the calls that they share with logs that"
                " have"
            )
        left = set(without) - completed
        refused = None
        if left and self._logs.step_times is not None:
            by_time = StepsByTime(self._logs, set(left), self._logs.step_times, self._span)
            refused = by_time.refused
            if refused is None:
                self._by_time, self._timed = by_time, by_time.which
                left -= self._timed
                notes.append(
                    f"{counted(len(self._timed), 'log')} of {len(there)} with calls: the steps are by the times of "
                    f"{path_text(self._logs.step_times.path)}, as one host has one clock"
                )
                notes += [by_time.note] if by_time.note else []
            else:
                refused = f"the times of a training log do not show the steps: {refused}"
        if len(left) == len(there) and self._span is not None:
            raise UsageError(
                f"--steps: {refused}"
                if refused
                else (
                    "--steps needs a log in which a step's lines are between NCCL's; "
                    "the files with a step's line have no call of NCCL"
                )
            )
        if refused:
            notes.append(refused)
        if left and self._span is not None:
            why = "and share no communicator from its INIT on with logs that have"
            notes.append(
                f"{len(left)} of {len(there)} logs with calls have no step's line {why}, "
                "so none of their calls is counted with --steps"
            )
        return tuple(notes)

    def _by_sequence(self, marked: set[int], without: set[int]) -> set[int]:
        """Make lines at which steps end for logs without any; the logs for which that could be done.

        On each communicator the calls of a step are counted in a log with lines. In another log a step ends with its
        last call, by that number, on any of these communicators.
        """
        logs = self._logs
        ends = self._numbers(marked)
        if not ends:
            return set()
        seen: dict[int, int] = defaultdict(int)
        last: dict[int, dict[int, dict[int, int]]] = {log: defaultdict(dict) for log in without}
        for log, members, lines, tokens in self._collectives(without):
            processes = np.array([p for p, _tid, _dev in logs.parts[log].tokens] or [0], np.int64)[tokens]
            for member in np.unique(members).tolist():
                ends_of_steps = ends.get(logs.members[member].communicator)
                mine = np.flatnonzero(members == member)
                numbers = seen[member] + np.arange(len(mine))
                seen[member] += len(mine)
                if ends_of_steps is None or not logs.members[member].from_start:
                    continue
                reach, steps = ends_of_steps
                place = np.searchsorted(reach, numbers, side="right")
                inside = place < len(steps)
                for step in np.unique(steps[place[inside]]).tolist():
                    rows = mine[inside][steps[place[inside]] == step]
                    own = last[log][int(processes[rows[0]])]
                    own[step] = max(own.get(step, -1), int(lines[rows[-1]]))
        completed = {log for log in without if last[log]}
        for log in completed:
            marks: Marks = {}
            for process, its in last[log].items():
                ordered = sorted(its)
                at = np.maximum.accumulate(np.array([its[s] + 1 for s in ordered], np.int64))
                marks[process] = at, np.array(ordered, np.int64)
            self._marks[log] = marks
            self._key[log] = np.array([p for p, _tid, _dev in logs.parts[log].tokens] or [-1], np.int64)
        return completed

    def _numbers(self, marked: set[int]) -> dict[str, tuple[Int64, Int64]]:
        """For each communicator how many collective calls a rank has made when a step ends, and the steps.

        Left out are logs with steps that go back, as after a restart, logs not from the start, and those on which ranks
        differ.
        """
        logs = self._logs
        counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        wrong: set[int] = set()
        for log, batch in logs.calls():
            if log not in marked:
                continue
            members, _lines, _tokens, rows = self._of(log, batch)
            steps = self.steps(log, batch)[rows]
            for member in np.unique(members).tolist():
                own = steps[members == member]
                own = own[own >= 0]
                if len(own) and ((np.diff(own) < 0).any() or (counts[member] and own[0] < max(counts[member]))):
                    wrong.add(member)
                values, many = np.unique(own, return_counts=True)
                for value, n in zip(values.tolist(), many.tolist(), strict=True):
                    counts[member][value] += n
        by_communicator: dict[str, dict[int, int] | None] = {}
        for member, its in counts.items():
            about = logs.members[member]
            usable = about.from_start and about.identified != "alone" and member not in wrong
            before = by_communicator.setdefault(about.communicator, dict(its) if usable else None)
            if before != dict(its):
                by_communicator[about.communicator] = None
        ends = {}
        for name, each in by_communicator.items():
            if each:
                ordered = sorted(each)
                ends[name] = np.cumsum([each[s] for s in ordered]), np.array(ordered, np.int64)
        return ends

    def _collectives(self, wanted: set[int]) -> Any:
        for log, batch in self._logs.calls():
            if log in wanted:
                members, lines, tokens, _rows = self._of(log, batch)
                yield log, members, lines, tokens

    def _of(self, log: int, batch: Any) -> tuple[Int64, Int64, Int64, Int64]:
        """Member, line and token of the collective calls of a batch, and their rows."""
        flags = batch.column("flags").to_numpy()
        keep = ((flags & FROM_CALL) != 0) == self._logs.uses_calls_of_trace
        keep &= _COLLECTIVE[batch.column("operation").to_numpy()]
        rows = np.flatnonzero(keep)
        member_of = np.array(self._logs.member_of[log] or [0], np.int64)
        columns = [batch.column(n).to_numpy()[rows] for n in ("instance", "line", "token")]
        return member_of[columns[0]], columns[1], columns[2], rows
