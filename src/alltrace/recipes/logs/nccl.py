"""What the views of NCCL's logs share: sizes in bytes, steps, and calls counted by size."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.logs.nccl_steps import FROM_CALL, StepFinder
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace.errors import UsageError
from alltrace.trace.nccl_words import DATATYPES, OPERATIONS, PER_RANK_SHARE, REDUCTIONS
from alltrace.trace.number_text import number_ranges
from alltrace.trace.spans import Span

_SIZES = np.array([size for _name, size in DATATYPES] + [0], np.int64)


@dataclass(frozen=True)
class NcclOptions:
    steps: Span | None = None  # the steps; None for everything
    # upper edges in bytes of the histogram's classes, or None for those of `preset`
    edges: tuple[int, ...] | None = None
    preset: str = "powers"  # name of a list of edges
    ranks: frozenset[int] | None = None  # the ranks wanted, or None for all


def refuse_a_choice(view: str, options: NcclOptions) -> None:
    """Refuse steps and ranks for a view that is of all of them. Raises `UsageError`: steps or ranks are set."""
    for value, option in ((options.steps, "--steps"), (options.ranks, "--ranks")):
        if value is not None:
            raise UsageError(f"{option} is not for the view {view}, which covers all ranks and steps")


def check_ranks(logs: NcclLogs, options: NcclOptions) -> None:
    """Check that some of the selected ranks are in the logs. Raises `UsageError`: None of them is."""
    there = {rank_of(logs, n) for n in range(len(logs.members))} - {None}
    if options.ranks is not None and not options.ranks & there:
        present = number_ranges(sorted(r for r in there if r is not None))
        raise UsageError(
            f"--ranks: none of these ranks is in the logs, which have {f'ranks {present}' if present else 'none'}"
        )


def datatype_name(code: int) -> str:
    """The name of NCCL's datatype number; the number itself if NCCL has none."""
    return DATATYPES[code][0] if 0 <= code < len(DATATYPES) else str(code)


def reduction_name(code: int) -> str:
    """The name of NCCL's reduction number; numbers from 5 on are the program's own."""
    return REDUCTIONS[code] if 0 <= code < len(REDUCTIONS) else f"user{code}"


def datatype_bytes(codes: Any) -> Any:
    """Bytes of an element by an array of datatype numbers; 0 if the number is not known."""
    valid = (codes >= 0) & (codes < len(DATATYPES))
    return _SIZES[np.where(valid, codes, len(DATATYPES))]


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
    """The calls by member, operation, count and datatype. Raises `UsageError`: no log has the steps, or the ranks."""
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
        rows.append(
            SizeRow(
                member, OPERATIONS[op], count, datatype_name(datatype), None if size is None else size * count, calls
            )
        )
    return rows


def rank_of(logs: NcclLogs, member: int) -> int | None:
    """The rank of a communicator's end: of its process in the job if known, else in the communicator."""
    its = logs.members[member]
    return its.rank if its.global_rank is None else its.global_rank


def _grouped(logs: NcclLogs, options: NcclOptions) -> Iterator[tuple[int, int, int, int, int]]:
    if logs.calls_to is None:
        for log, part in enumerate(logs.parts):
            table = part.sizes
            columns = [
                table.column(n).to_numpy() for n in ("instance", "operation", "count", "datatype", "flags", "calls")
            ]
            for instance, op, count, datatype, flags, calls in zip(*(c.tolist() for c in columns), strict=True):
                if bool(flags & FROM_CALL) == logs.uses_calls_of_trace:
                    yield logs.member_of[log][instance], op, count, datatype, calls
        return
    steps = StepFinder(logs, options.steps)
    logs.notes += steps.notes
    for log, batch in logs.calls():
        columns = [batch.column(n).to_numpy() for n in ("instance", "operation", "count", "datatype")]
        keep = ((batch.column("flags").to_numpy() & FROM_CALL) != 0) == logs.uses_calls_of_trace
        keep &= steps.wanted(log, batch)
        if not keep.any():
            continue
        rows, calls = np.unique(np.column_stack(columns)[keep], axis=0, return_counts=True)
        for (instance, op, count, datatype), n in zip(rows.tolist(), calls.tolist(), strict=True):
            yield logs.member_of[log][instance], op, count, datatype, n


def payload_bytes(op: str, size: int | None, nranks: int | None) -> int | None:
    """The bytes that nccl-tests calls the size of a call: `size`, times the ranks if the count is one rank's share.

    Source: nccl-tests doc/PERFORMANCE.md and each test's `getBuffSize`.
    """
    if size is None or (op in PER_RANK_SHARE and nranks is None):
        return None
    return size * nranks if op in PER_RANK_SHARE and nranks is not None else size
