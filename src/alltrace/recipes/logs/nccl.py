"""What the views of NCCL's logs share: sizes in bytes, steps, and calls counted by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.trace.errors import UsageError
from alltrace.trace.nccl_words import DATATYPES, OPERATIONS, PER_RANK_SHARE, REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alltrace.run.nccl_logs import NcclLogs
    from alltrace.trace.spans import Span

FROM_CALL = 4
_SIZES = np.array([size for _name, size in DATATYPES] + [0], np.int64)


@dataclass(frozen=True)
class NcclOptions:
    """What a view may be asked.

    Attributes:
        steps: The steps; None for everything.
        edges: Upper edges in bytes of the histogram's classes, or None for those of `preset`.
        preset: Name of a list of edges.
        ranks: The ranks wanted, or None for all.
    """

    steps: Span | None = None
    edges: tuple[int, ...] | None = None
    preset: str = "powers"
    ranks: frozenset[int] | None = None


def refuse_a_choice(view: str, options: NcclOptions) -> None:
    """Refuse steps and ranks for a view that is of all of them.

    Raises:
        UsageError: Steps or ranks are given.
    """
    for given, option in ((options.steps, "--steps"), (options.ranks, "--ranks")):
        if given is not None:
            raise UsageError(f"{option} has no meaning for the view {view}, which is of all ranks and steps")


def check_ranks(logs: NcclLogs, options: NcclOptions) -> None:
    """See that some of the ranks asked for are in the logs.

    Raises:
        UsageError: None of them is.
    """
    there = {rank_of(logs, n) for n in range(len(logs.members))} - {None}
    if options.ranks is not None and not options.ranks & there:
        from alltrace.run.store import number_ranges

        known = number_ranges(sorted(r for r in there if r is not None))
        raise UsageError(f"--ranks: none of these ranks is in the logs, which have {f'ranks {known}' if known else 'none'}")


def datatype_name(code: int) -> str:
    """The name of NCCL's datatype number; the number itself where NCCL has none."""
    return DATATYPES[code][0] if 0 <= code < len(DATATYPES) else str(code)


def reduction_name(code: int) -> str:
    """The name of NCCL's reduction number; numbers from 5 on are the program's own."""
    return REDUCTIONS[code] if 0 <= code < len(REDUCTIONS) else f"user{code}"


def datatype_bytes(codes: Any) -> Any:
    """Bytes of an element by an array of datatype numbers; 0 where the number is not known."""
    known = (codes >= 0) & (codes < len(DATATYPES))
    return _SIZES[np.where(known, codes, len(DATATYPES))]


@dataclass(frozen=True)
class SizeRow:
    """How often a rank made a call of one size; `bytes` is None for a datatype that is not known."""

    member: int
    op: str
    count: int
    datatype: str
    bytes: int | None
    calls: int


def size_rows(logs: NcclLogs, options: NcclOptions) -> list[SizeRow]:
    """The calls counted by member, operation, count and datatype.

    Raises:
        UsageError: Steps are asked for and no log has a step's line, or none of those asked for; or none of the ranks is there.
    """
    check_ranks(logs, options)
    totals: dict[tuple[int, int, int, int], int] = {}
    for member, op, count, datatype, calls in _grouped(logs, options):
        key = member, op, count, datatype
        totals[key] = totals.get(key, 0) + calls
    rows = []
    for (member, op, count, datatype), calls in totals.items():
        if options.ranks is not None and rank_of(logs, member) not in options.ranks:
            continue
        size = DATATYPES[datatype][1] if 0 <= datatype < len(DATATYPES) else None
        rows.append(SizeRow(member, OPERATIONS[op], count, datatype_name(datatype), None if size is None else size * count, calls))
    return rows


def rank_of(logs: NcclLogs, member: int) -> int | None:
    """The rank of a communicator's end: of its process in the job where known, else in the communicator."""
    its = logs.members[member]
    return its.rank if its.global_rank is None else its.global_rank


def _grouped(logs: NcclLogs, options: NcclOptions) -> Iterator[tuple[int, int, int, int, int]]:
    if logs.calls_to is None:
        for log, part in enumerate(logs.parts):
            table = part.sizes
            columns = [table.column(n).to_numpy() for n in ("instance", "operation", "count", "datatype", "flags", "calls")]
            for instance, op, count, datatype, flags, calls in zip(*(c.tolist() for c in columns), strict=True):
                if bool(flags & FROM_CALL) == logs.uses_calls_of_trace:
                    yield logs.member_of[log][instance], op, count, datatype, calls
        return
    steps = StepFinder(logs, options.steps)
    for log, batch in logs.calls():
        columns = [batch.column(n).to_numpy() for n in ("instance", "operation", "count", "datatype")]
        keep = ((batch.column("flags").to_numpy() & FROM_CALL) != 0) == logs.uses_calls_of_trace
        keep &= steps.wanted(log, batch)
        if not keep.any():
            continue
        rows, calls = np.unique(np.column_stack(columns)[keep], axis=0, return_counts=True)
        for (instance, op, count, datatype), n in zip(rows.tolist(), calls.tolist(), strict=True):
            yield logs.member_of[log][instance], op, count, datatype, n


class StepFinder:
    """Which step a call is of: a training log prints a step's line at its end, so a step's calls are those before its line.

    Where the lines tell their rank, a rank's calls are held against its own lines; else against the first line of each step.

    Args:
        logs: The logs.
        span: The steps wanted, or None for all.

    Raises:
        UsageError: A span is given and no log has a step's line, or none of the span.
    """

    def __init__(self, logs: NcclLogs, span: Span | None) -> None:
        self._span = span
        self._marks: list[dict[int | None, tuple[Any, Any]]] = []
        self._prefix: list[Any] = []
        found = set()
        for part in logs.parts:
            by_rank: dict[int | None, list[tuple[int, int]]] = {}
            for line, step, rank in part.records.steps:
                found.add(step)
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
            self._prefix.append(np.array([-1 if r is None else r for r in ranks] or [-1], np.int64))
        self.any: bool = bool(found)
        if span is not None and not found:
            raise UsageError(
                "--steps needs a log in which a step's lines (such as `iteration 45/100`) stand between NCCL's; none has one"
            )
        if span is not None and not any(map(span.holds, found)):
            raise UsageError(f"--steps is {span}; the logs have steps {min(found)} to {max(found)}")

    def steps(self, log: int, batch: Any) -> Any:
        """The step of each call of a batch, -1 behind the last step's line."""
        lines, tokens = batch.column("line").to_numpy(), batch.column("token").to_numpy()
        marks = self._marks[log]
        out = np.full(len(lines), -1, np.int64)
        prefix = self._prefix[log][tokens]
        for rank in np.unique(prefix).tolist() if len(marks) > 1 else [None]:
            at, step = marks.get(rank, marks.get(None, (np.zeros(0, np.int64),) * 2))
            mine = slice(None) if rank is None else prefix == rank
            place = np.searchsorted(at, lines[mine], side="right")
            padded = np.append(step, -1)
            out[mine] = padded[place]
        return out

    def wanted(self, log: int, batch: Any) -> Any:
        """Which calls of a batch are of the wanted steps."""
        if self._span is None:
            return np.ones(len(batch), bool)
        steps = self.steps(log, batch)
        return (steps >= 0) & self._span.holds(steps)


def without_steps(logs: NcclLogs) -> str | None:
    """What a reader must know of logs whose calls are of no step, as their files have no step's line; None where there are none.

    Raises:
        UsageError: The logs with steps' lines have no call.
    """
    calls = [part.records.counts["COLL"] + part.records.counts["CALL"] for part in logs.parts]
    marked = [bool(part.records.steps) for part in logs.parts]
    there = sum(c > 0 for c in calls)
    lost = sum(c > 0 and not m for c, m in zip(calls, marked, strict=True))
    if lost and lost == there:
        raise UsageError(
            "--steps needs a log in which a step's lines stand between NCCL's; the files with a step's line have no call of NCCL"
        )
    if not lost:
        return None
    return f"{lost} of {there} logs with calls have no step's line, so none of their calls is counted with --steps"


def payload_bytes(op: str, size: int | None, nranks: int | None) -> int | None:
    """The bytes that nccl-tests calls the size of a call: `size`, times the ranks where the count is one rank's share.

    Source: nccl-tests doc/PERFORMANCE.md and each test's `getBuffSize`.
    """
    if size is None or (op in PER_RANK_SHARE and nranks is None):
        return None
    return size * nranks if op in PER_RANK_SHARE and nranks is not None else size


def whole_numbers(values: list[int | None]) -> Any:
    """Exact integers as an Arrow array: int64, or decimals where they do not fit."""
    if all(v is None or -(1 << 63) <= v < 1 << 63 for v in values):
        return pa.array(values, pa.int64())
    return pa.array(values, pa.decimal128(38, 0))
