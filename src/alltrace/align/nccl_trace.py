"""NCCL as the profiler traces it (nsys 2025.6 and later): operations of the GPU, with sequence numbers, per channel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alltrace.align.nccl_calls import NOT_KNOWN, Calls, Contexts, Kernels
from alltrace.align.nccl_names import NOTHING, SEND_RECV, SENT, numbered, operation_of, parse_payload
from alltrace.trace.arrays import Int64, coded, integers
from alltrace.trace.distinct import distinct_rows, folded


class Traced(NamedTuple):
    """The operations that the profiler traced on the device."""

    calls: Calls | None  # of operations; those of a unit share a kernel. None if it traced no work
    unit: Int64  # of each of the rank's kernels and copies, -1 for those of no operation
    superseded: Any  # which ranges need not be read any more


class _Operations(NamedTuple):
    """Traced operations, arrays of n values."""

    process: Int64
    member: Int64  # number of the member, which is one device's, of a communicator
    op: Int64  # index in `names`
    number: Int64  # among those of the member and name, or 0
    start: Int64  # ns; likewise `end`
    end: Int64
    names: list[str]


def read_trace(ranges: Any, kernels: Kernels, contexts: Contexts) -> Traced:
    """The operations that the profiler traced on the device, of NCCL's ranges as `nccl_ranges` returns them.

    An operation is all rows of one communicator, member, name and number of which some name a channel: these are its
    work, the others its calls. Those without such a row are calls as NCCL's own ranges are (`read_calls`).
    """
    payloads, at = coded(ranges.column("payload"))
    told = [*map(parse_payload, payloads.to_pylist()), NOTHING]
    counts = [t.operation if t.sequence is None else t.sequence for t in told]
    traced = np.array([n is not None and t.communicator is not None for n, t in zip(counts, told, strict=True)])
    names, name_at = coded(ranges.column("text"))
    words, codes = numbered([*map(operation_of, names.to_pylist())], contexts.op)
    codes = codes[name_at]
    rows = np.flatnonzero(traced[at] & (codes >= 0) & ranges.column("end").is_valid().to_numpy())
    start, end = ranges.column("start").to_numpy()[rows], ranges.column("end").fill_null(0).to_numpy()[rows]
    process, thread = (integers(ranges.column(c), -1)[rows] for c in ("process", "thread"))
    op, payload = codes[rows], at[rows]

    def each(values: list[int | None]) -> Int64:
        return np.array([-1 if v is None else v for v in values], np.int64)[payload]

    communicator = numbered([t.communicator for t in told])[1][payload]
    member = _members(process, communicator, each([t.group_rank for t in told]))
    on_device = each([t.channel for t in told]) >= 0
    keys, operation = distinct_rows(process, communicator, member, op, each(counts), each([t.peer for t in told]))
    known = np.bincount(operation, on_device, keys.shape[1]) > 0
    superseded = np.zeros(ranges.num_rows, np.bool_)
    superseded[rows[known[operation]]] = True
    superseded |= _named_twice(ranges, rows[~known[operation]], codes, named_by_nccl=~traced[at])
    if not known.any():
        return Traced(None, np.full(len(kernels.start), -1), superseded)
    count = keys.shape[1]
    first = folded(np.minimum, operation, np.arange(len(rows)), count, len(rows))
    began, ended = _extents(operation[on_device], start[on_device], end[on_device], count)
    called, returned = _extents(operation[~on_device], start[~on_device], end[~on_device], count)
    mine = np.flatnonzero(known)
    members = distinct_rows(process, communicator, member)[1][first]
    number = np.where(each([t.sequence for t in told])[first] >= 0, keys[4], 0)
    unit_of_op, unit = _units(
        _Operations(keys[0][mine], members[mine], keys[3][mine], number[mine], began[mine], ended[mine], words), kernels
    )
    order = np.lexsort((keys[4][mine], began[mine], unit_of_op))
    mine = mine[order]
    units = len(np.unique(unit_of_op))
    context, nothing = np.full(units, -1, np.int64), np.full(units, -1, np.int64)
    owned = np.flatnonzero(unit >= 0)
    launched = kernels.api_start[owned]
    context[unit[owned]] = contexts.named_around(words, kernels.thread[owned], launched, launched)
    calls = Calls(
        called[mine], returned[mine], keys[0][mine], thread[first][mine], keys[3][mine], payload[first][mine],
        unit_of_op[order], nothing, nothing, nothing, context, words, told, work=(began[mine], ended[mine]),
    )  # fmt: skip
    return Traced(calls, unit, superseded)


def _members(process: Int64, communicator: Int64, told: Int64) -> Int64:
    """The member of each row; where a row does not say it, the one that others of its process and communicator say."""
    groups, group = distinct_rows(process, communicator)
    known, count = told >= 0, groups.shape[1]
    lowest = folded(np.minimum, group[known], told[known], count, np.iinfo(np.int64).max)
    highest = folded(np.maximum, group[known], told[known], count, -1)
    return np.where(~known & (lowest == highest)[group], highest[group], told)


def _extents(of: Int64, start: Int64, end: Int64, count: int) -> tuple[Int64, Int64]:
    """The earliest start and latest end of each operation, `NOT_KNOWN` for one without rows."""
    low = folded(np.minimum, of, start, count, np.iinfo(np.int64).max)
    high = folded(np.maximum, of, end, count, NOT_KNOWN)
    return np.where(high == NOT_KNOWN, NOT_KNOWN, low), high


def _named_twice(ranges: Any, calls: Int64, op: Int64, *, named_by_nccl: Any) -> Any:
    """Which ranges NCCL itself wrote of traced calls: those that share time with one on its thread."""
    found = np.zeros(len(op), np.bool_)
    thread, start = (integers(ranges.column(c), -1) for c in ("thread", "start"))
    end = integers(ranges.column("end"), np.iinfo(np.int64).max)
    for one in np.unique(thread[calls]):
        mine = calls[thread[calls] == one]
        mine = mine[np.argsort(start[mine], kind="stable")]
        rows = np.flatnonzero((thread == one) & (op >= 0) & named_by_nccl)
        at = np.searchsorted(start[mine], end[rows]) - 1
        found[rows] = (at >= 0) & (end[mine[at]] > start[rows]) & (op[mine[at]] == op[rows])
    return found


def _units(ops: _Operations, kernels: Kernels) -> tuple[Int64, Int64]:
    """The unit of each operation, and of each kernel and copy: those of one unit belong together.

    An operation's kernel is the one of its process and kind that it shares most time with, on the stream that its
    member's operations have most of their kernels on; several operations that NCCL grouped share one. A copy is part of
    the operation that it shares most time with among those that have no kernel.
    """
    many, found = len(kernels.start), _most_shared(ops, kernels)
    unit = np.full(many, -1, np.int64)
    unit_of_op = np.where(found >= 0, found, many + np.arange(len(found)))
    unit[found[found >= 0]] = found[found >= 0]
    of, copy, share = _shared(ops, kernels, np.flatnonzero(kernels.copied), np.flatnonzero(found < 0))
    order = np.argsort(share, kind="stable")
    unit[copy[order]] = many + of[order]  # the last one counts
    numbers = np.unique(unit_of_op)
    return np.searchsorted(numbers, unit_of_op), np.where(unit < 0, -1, np.searchsorted(numbers, unit))


def _shared(ops: _Operations, kernels: Kernels, rows: Int64, some: Int64) -> tuple[Int64, Int64, Any]:
    """Pairs of operations and kernels of a process that share time, and that as a share of both together."""
    pairs = [(rows[:0], rows[:0])]
    tracks, track = distinct_rows(kernels.process[rows], kernels.device[rows], kernels.stream[rows])
    for number in range(tracks.shape[1]):
        mine = rows[track == number]  # by start
        own = some[ops.process[some] == tracks[0, number]]
        low = np.searchsorted(np.maximum.accumulate(kernels.end[mine]), ops.start[own], side="right")
        width = np.maximum(np.searchsorted(kernels.start[mine], ops.end[own]) - low, 0)
        place = np.repeat(low - np.cumsum(width) + width, width) + np.arange(width.sum())
        pairs.append((np.repeat(own, width), mine[place]))
    of, kernel = (np.concatenate(p) for p in zip(*pairs, strict=True))
    start, end = kernels.start[kernel], kernels.end[kernel]
    both = np.minimum(ops.end[of], end) - np.maximum(ops.start[of], start)
    return of, kernel, both / np.maximum(np.maximum(ops.end[of], end) - np.minimum(ops.start[of], start), 1)


def _most_shared(ops: _Operations, kernels: Kernels) -> Int64:
    """The kernel of each operation, -1 for none."""
    found = np.full(len(ops.process), -1, np.int64)
    of, kernel, share = _shared(ops, kernels, np.flatnonzero(~kernels.copied), np.arange(len(found)))
    words = [*kernels.ops, None]  # a kernel of sends and receives does what is composed of these
    table = np.array([[k is None or k == o or (k == SEND_RECV and o in SENT) for k in words] for o in ops.names])
    fits = table[ops.op[of], kernels.op[kernel]]
    homes, home = distinct_rows(ops.member[of], kernels.device[kernel], kernels.stream[kernel])
    weight = np.bincount(home, share * fits, homes.shape[1])
    most = folded(np.maximum, homes[0], weight, int(ops.member.max(initial=0)) + 1, 0.0)
    at_home = (weight >= most[homes[0]])[home] & (weight[home] > 0)
    kept = np.flatnonzero(fits | at_home)  # what NCCL grouped is in one kernel, with the name of one of its operations
    kept = kept[np.lexsort((share[kept], fits[kept], at_home[kept]))]
    found[of[kept]] = kernel[kept]  # the last one counts
    kinds, kind = distinct_rows(ops.member, ops.op)
    for one in range(kinds.shape[1]):
        mine = np.flatnonzero((kind == one) & (found >= 0))
        mine = mine[np.lexsort((ops.start[mine], ops.number[mine]))]
        if (np.diff(found[mine]) <= 0).any():
            _spread(found, mine, kernels)
    return found


def _spread(found: Int64, mine: Int64, kernels: Kernels) -> None:
    """Gives operations of a member and name a kernel each, where times put them out of order or two into one."""
    here = np.arange(found[mine].min(), found[mine].max() + 1)
    free = ~kernels.copied[here] & (np.isin(here, found[mine]) | ~np.isin(here, found))
    for column in (kernels.process, kernels.device, kernels.stream, kernels.op):
        free &= np.isin(column[here], np.unique(column[found[mine]]))
    if free.sum() == len(mine):
        found[mine] = here[free]
