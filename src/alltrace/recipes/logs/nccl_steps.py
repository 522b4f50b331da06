"""Which training step a call of NCCL's logs is of.

A training log prints a step's line at its end, so a step's calls are those before its line. Logs without these lines,
as in jobs with a file per rank of which only one prints, are matched with those that have them: the n-th collective
call of a communicator is in the same step on all its ranks. Otherwise the times of a training log of the same run are
used (`nccl_step_times`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from alltrace.recipes.logs.nccl_step_times import StepsByTime
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError, path_text
from alltrace.trace.nccl_words import OPERATIONS, POINT_TO_POINT
from alltrace.trace.number_text import counted
from alltrace.trace.spans import Span

Marks = dict[int | None, tuple[Int64, Int64]]
"""Lines at which steps end, and the steps, by rank of a prefix or by process; None means all."""

FROM_CALL = 4
"""The bit of `flags` of a call that a CALL record describes."""
_NONE = (np.zeros(0, np.int64), np.zeros(0, np.int64))
_COLLECTIVE = np.array([name not in POINT_TO_POINT for name in OPERATIONS], bool)


class StepFinder:
    """Which step a call is of.

    If the lines state their rank, a rank's calls are compared with its own lines; otherwise with the first line of each step.

    `any`: Whether any log has a step's line. `notes`: What a reader must know of logs that have none. `span`: The steps
    wanted, or None for all. Raises `UsageError`: a span is set, and no log has a step line, or none in the span, or no
    call belongs to a step.
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
                "--steps needs a log in which a step's lines (such as `iteration 45/100`) are between NCCL's; none has one; "
                "name the training's own log with --training-log"
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
                f"{files} have no step's line: their steps are by the order of the calls that they share with logs that have"
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
                else "--steps needs a log in which a step's lines are between NCCL's; "
                "the files with a step's line have no call of NCCL"
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

        Left out are logs with steps that go back, as after a restart, logs not from the start, and those on which ranks differ.
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
