"""NCCL's calls as NVTX shows them, with their groups and payloads, and the kernels and copies that communicate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.nccl_names import (
    NOTHING,
    Payload,
    datatype_of_kernel,
    numbered,
    operation_of,
    operation_of_kernel,
    parse_payload,
)
from alltrace.run.collecting import file_pieces
from alltrace.run.launch_matching import CALLS, match_launches
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import EXCHANGE
from alltrace.trace.distinct import folded, rows_by
from alltrace.trace.kernel_rules import COMMUNICATION
from alltrace.trace.schema import TABLES

_GROUP_START, _GROUP_END, _INIT, _CONTEXT = "ncclGroupStart", "ncclGroupEnd", "ncclCommInit", "nccl:"
_PREFIX = "nccl"
_DOMAIN = "NCCL"
_COLUMNS = ["start", "end", "process", "thread", "payload"]
NOT_KNOWN = np.iinfo(np.int64).min
_KERNEL_COLUMNS = ["start", "end", "process", "device", "stream", "correlation"]
OPEN = np.iinfo(np.int64).max
"""The end of a range that was open at the end of the capture."""


@dataclass
class Calls:
    """The operations called through NCCL's API, by thread and time, and the units they were launched in.

    A unit is a single call, or all calls between an outermost `ncclGroupStart` and its `ncclGroupEnd`; its kernels are
    launched at its end. Times are ns, `NOT_KNOWN` if only the work is known.
    """

    start: Int64
    end: Int64
    process: Int64
    thread: Int64
    op: Int64  # index in `ops`
    payload: Int64  # index in `payloads`
    unit: Int64
    unit_start: Int64
    unit_end: Int64
    unit_thread: Int64
    unit_context: Int64  # index in `ops` of the operation that a framework's range around the unit names, or -1
    ops: list[str]
    payloads: list[Payload]
    # of each communicator the process's number in it, by the thread that joined it, None if several did; and its size
    members: dict[str, tuple[dict[int, int | None], int | None]] = field(default_factory=dict)
    # when the profiler traced each call's work on the device
    work: tuple[Int64, Int64] | None = None


@dataclass
class Contexts:
    """The ranges that a framework names an operation with, such as `nccl:all_to_all`, by thread and start."""

    thread: Int64  # row of `threads`
    start: Int64
    end: Int64
    op: list[str]

    def named_around(self, ops: Sequence[str], thread: Int64, start: Int64, end: Int64) -> Int64:
        """The operation of the range that holds each span of time, by its place among `ops`, or -1."""
        around = spans_around((self.thread, self.start, self.end), (thread, start, end))
        return np.array([*map(ops.index, self.op), -1], np.int64)[around]


def spans_around(spans: tuple[Int64, Int64, Int64], inner: tuple[Int64, Int64, Int64]) -> Int64:
    """The span that each inner one is in, if the last that begins before it on its thread holds it, or -1.

    Both are thread, start and end; on each thread, spans ascend.
    """
    (threads, starts, ends), (thread, start, end) = spans, inner
    place, own = np.full(len(thread), -1, np.int64), rows_by(threads)
    for one, rows in rows_by(thread).items():
        mine = own.get(one, rows[:0])
        at = np.searchsorted(starts[mine], start[rows], side="right") - 1
        inside = np.flatnonzero(at >= 0)
        inside = inside[ends[mine[at[inside]]] >= end[rows[inside]]]
        place[rows[inside]] = mine[at[inside]]
    return place


def nccl_ranges(rank: Rank) -> pa.Table:
    """The rank's ranges of NCCL, with columns `start`, `end`, `process`, `thread`, `text` and `payload`.

    NCCL's own are in its domain or, where the capture missed the domain's creation, in none; frameworks' begin with
    `nccl:`.
    """
    masks: dict[int, pa.Array] = {}
    for number, piece in enumerate(file_pieces(rank, "ranges", ["name", "domain"]) if rank.has("ranges") else ()):
        keep = np.zeros(piece.num_rows, np.bool_)
        for column, wanted in (("name", _is_nccl), ("domain", lambda t: t.upper() == _DOMAIN)):
            ids, at = coded(piece.column(column))
            keep |= _flags(rank.texts(ids).to_pylist(), wanted)[at]
        if keep.any():
            masks[number] = pa.array(keep)
    parts = [TABLES["ranges"].arrow_schema([*_COLUMNS, "name"]).empty_table()]
    for number, piece in enumerate(file_pieces(rank, "ranges", [*_COLUMNS, "name"]) if masks else ()):
        if number in masks:
            parts.append(piece.filter(masks[number]))
    table = pa.concat_tables(parts)
    table = table.drop_columns("name").append_column("text", rank.texts(table.column("name").combine_chunks()))
    return table.filter(pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("thread"))))


def _is_nccl(text: str) -> bool:
    return text.startswith(_PREFIX) and (text[4:5].isupper() or text.startswith(_CONTEXT))


def read_contexts(ranges: pa.Table) -> Contexts:
    """The ranges of a framework among NCCL's ranges, as `nccl_ranges` returns them."""
    words, text_at = coded(ranges.column("text"))
    texts = words.to_pylist()
    ops = [*(operation_of(t) if t is not None and t.startswith(_CONTEXT) else None for t in texts), None]
    rows = np.flatnonzero(np.array([o is not None for o in ops])[text_at])
    start, thread = (integers(ranges.column(c), -1)[rows] for c in ("start", "thread"))
    end = integers(ranges.column("end"), OPEN)[rows]
    order = np.lexsort((start, thread))
    return Contexts(thread[order], start[order], end[order], [ops[text_at[rows[i]]] or "" for i in order.tolist()])


def read_calls(ranges: pa.Table, contexts: Contexts) -> Calls:
    """The calls among NCCL's ranges, as `nccl_ranges` returns them, within those of a framework."""
    words, text_at = coded(ranges.column("text"))
    texts = words.to_pylist()
    raw, payload_at = coded(ranges.column("payload"))
    payloads = [*map(parse_payload, raw.to_pylist()), NOTHING]
    start, thread, process = (integers(ranges.column(c), -1) for c in ("start", "thread", "process"))
    end = integers(ranges.column("end"), OPEN)
    context = _flags(texts, lambda t: t.startswith(_CONTEXT))[text_at]
    starts_group = _flags(texts, lambda t: t == _GROUP_START)[text_at]
    ends_group = _flags(texts, lambda t: t == _GROUP_END)[text_at]
    ops, codes = numbered([operation_of(t) for t in texts], contexts.op)
    op = codes[text_at]
    is_call = (op >= 0) & ~context
    none, units = np.empty(0, np.int64), 0
    parts: list[tuple[Int64, ...]] = [(none, none, none, none, none)]
    for one in np.unique(thread):
        rows = np.flatnonzero((thread == one) & (is_call | starts_group | ends_group))
        rows = rows[np.argsort(start[rows], kind="stable")]
        mine, unit, *of_units = _units(rows, start, end, op, starts_group, ends_group)
        parts.append((mine, units + unit, *of_units))
        units += len(of_units[0])
    rows, unit, unit_start, unit_end, unit_rows = map(np.concatenate, zip(*parts, strict=True))
    unit_thread = thread[unit_rows]
    unit_context = contexts.named_around(ops, unit_thread, unit_start, unit_end)
    members: dict[str, tuple[dict[int, int | None], int | None]] = {}
    for index in np.flatnonzero(_flags(texts, lambda t: t.startswith(_INIT))[text_at]).tolist():
        told = payloads[payload_at[index]]
        if told.communicator is not None:
            of_thread, _ = members.get(told.communicator, ({}, None))
            joining = int(thread[index])
            of_thread[joining] = told.group_rank if of_thread.get(joining, told.group_rank) == told.group_rank else None
            members[told.communicator] = of_thread, told.group_size
    return Calls(
        start[rows], end[rows], process[rows], thread[rows], op[rows], payload_at[rows], unit, unit_start, unit_end,
        unit_thread, unit_context, ops, payloads, members,
    )  # fmt: skip


def _flags(texts: Sequence[str | None], test: Any) -> Flags:
    return np.array([*(t is not None and test(t) for t in texts), False], np.bool_)


def _units(
    rows: Int64, start: Int64, end: Int64, op: Int64,
    starts_group: Flags, ends_group: Flags,
) -> tuple[Int64, Int64, Int64, Int64, Int64]:  # fmt: skip
    """The calls of one thread with their units: rows of calls, unit of each, and of each unit start, end, first row."""
    depth = _nesting(starts_group[rows], ends_group[rows])
    call = op[rows] >= 0
    # a unit opens at a call outside of groups and at an outermost group's start
    inside = depth > 0
    before = np.concatenate((np.zeros(1, np.int64), depth))[: len(depth)]
    opens = (call & ~inside) | (inside & (before == 0))
    number = np.cumsum(opens) - 1
    # the end that closes an outermost group has depth 0 and belongs to the unit before it
    belongs = call | inside | (ends_group[rows] & (before > 0))
    kept = belongs & (number >= 0)
    unit_start = start[rows[opens]]
    unit_end = folded(np.maximum, number[kept], end[rows[kept]], len(unit_start), np.iinfo(np.int64).min)
    mine = kept & call
    return rows[mine], number[mine], unit_start, unit_end, rows[opens]


def _nesting(starts: Flags, ends: Flags) -> Int64:
    """Open groups after each row; a start without an end, or an end without a start, does not count."""
    change = starts.astype(np.int64) - ends
    depth = np.cumsum(change)
    lowest = np.minimum(np.concatenate(([0], np.minimum.accumulate(depth)[:-1])), 0)
    change[ends & (depth < lowest)] = 0
    depth = np.cumsum(change)
    later = np.concatenate((np.minimum.accumulate(depth[::-1])[::-1][1:], [np.iinfo(np.int64).max]))
    change[starts & (later >= depth)] = 0
    result: Int64 = np.cumsum(change)
    return result


@dataclass
class Kernels:
    """Communication kernels and copies by start; -1 is unknown, of times `NOT_KNOWN`."""

    start: Int64
    end: Int64
    process: Int64
    device: Int64
    stream: Int64
    thread: Int64  # that launched it
    op: Int64  # index in `ops`
    datatype: Int64  # index in `datatypes`
    api_start: Int64  # of the launching call, `NOT_KNOWN` if unknown; likewise `api_end`
    api_end: Int64
    copied: Flags  # a copy, with unknown operation and type
    exchanging: Flags  # waits for peers inside (class `exchange`)
    ops: list[str]
    datatypes: list[str]


def read_kernels(rank: Rank) -> Kernels:
    """The communication kernels of a rank, by the kernel rules, and its copies that communicate."""
    wanted = [*_KERNEL_COLUMNS, "name", "kind"]
    none = TABLES["kernels"].arrow_schema(wanted).empty_table()
    pieces = file_pieces(rank, "kernels", wanted) if rank.has("kernels") else ()
    parts = [piece.filter(pa.array(is_one_of(piece.column("kind"), COMMUNICATION))) for piece in pieces]
    copies = rank.table("copies", [*_KERNEL_COLUMNS, "collective"])
    copies = copies.filter(pa.array(is_true(copies.column("collective"))))
    table = pa.concat_tables([none, *parts, copies], promote_options="default")  # copies have no name and no kind
    table = table.filter(pc.and_(pc.is_valid(table.column("start")), pc.is_valid(table.column("end"))))
    table = table.take(pc.sort_indices(table.column("start"))).combine_chunks()
    ids, at = coded(table.column("name"))
    texts = rank.texts(ids).to_pylist()
    named = [operation_of_kernel(t) for t in texts]
    ops, op = numbered(named)
    datatypes, datatype = numbered([datatype_of_kernel(t, o) for t, o in zip(texts, named, strict=True)])
    columns: dict[str, Any] = {c: integers(table.column(c), -1) for c in _KERNEL_COLUMNS}
    launches = _launches(rank, columns["process"], columns.pop("correlation"))
    columns |= zip(("thread", "api_start", "api_end"), launches, strict=True)
    copied, exchanging = is_true(table.column("collective")), is_one_of(table.column("kind"), (EXCHANGE,))
    columns |= {"copied": copied, "exchanging": exchanging}
    return Kernels(**columns, op=op[at], datatype=datatype[at], ops=ops, datatypes=datatypes)


def _launches(rank: Rank, process: Int64, correlation: Int64) -> tuple[Int64, Int64, Int64]:
    """Thread, start and end of the call that launched each kernel, by process and correlation."""
    count = len(correlation)
    thread, start, end = np.full(count, -1), np.full(count, NOT_KNOWN), np.full(count, NOT_KNOWN)
    calls = file_pieces(rank, "api", CALLS) if rank.has("api") else ()
    # a call without a process launched work without one; of several calls the first counts, which is written last
    launches = match_launches(calls, np.maximum(process, 0), correlation)
    call, op = launches.call_of_pair()[::-1], launches.op[::-1]
    thread[op], start[op], end[op] = launches.thread[call], launches.start[call], launches.end[call]
    return thread, start, np.where(end < 0, NOT_KNOWN, end)
