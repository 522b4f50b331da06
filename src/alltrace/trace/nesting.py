"""Nested ranges: which range encloses which, and which ranges enclose a call.

A range encloses [start, end) of its track when it starts no later and ends no earlier. The innermost enclosing one is
the shortest; of equally short ones the last by (start, -end, row). That is what nsys' report `nvtx_pushpop_trace` calls
the parent: minimising the sum of the distances between the starts and between the ends minimises the length of the
parent. Ranges may interleave, as those of different domains on one thread do.

Times beyond +-2**62 ns (146 years) are taken as that bound.
"""

import numpy as np

from alltrace.core import intervals as core
from alltrace.trace.arrays import Flags, Int64

_FAR = 1 << 62
_ROOM = 1024
_SLACK_NS = 1_000
"""Recorders round times to microseconds, so ranges that cross by less may be nested."""


class NestingSweep:
    """Depth and parent of ranges that come in blocks, sorted by (track, start, descending end, order of the source)."""

    def __init__(self) -> None:
        self._row = 0
        self._frontier = np.zeros((4, 0), np.int64)
        self._state = np.zeros(2, np.int64)
        # whether each of the last ranges begins in an earlier one and ends after it
        self.crosses = np.zeros(0, np.bool_)

    def step(self, wanted: Flags, tracks: Int64, starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
        # `wanted`: bool array of n: which rows take part; the others only count as rows. `ends`: int64 array of n ends,
        # ns; one before its start counts as the start. Returns two int64 arrays of n. The depth is the length of the
        # chain of parents: 0 for a range without one. The parent is a row number, counted from the first row of the
        # first block. Both are -1 if a row does not take part, the parent also if there is none.
        count = len(starts)
        starts, ends = _clipped(starts, ends)
        size = int(self._state[0])
        frontier = np.zeros((4, size + count), np.int64)
        frontier[:, :size] = self._frontier[:, :size]
        depths, parents = np.empty(count, np.int64), np.empty(count, np.int64)
        wanted = np.ascontiguousarray(wanted, np.bool_)
        tracks = np.ascontiguousarray(tracks, np.int64)
        crosses = np.empty(count, np.uint8)
        core.nest(wanted, tracks, starts, ends, self._row, frontier, self._state, depths, parents, crosses, _SLACK_NS)
        self.crosses = crosses.view(np.bool_)
        self._frontier = frontier[:, : int(self._state[0])].copy()
        self._row += count
        return depths, parents


def nest(tracks: Int64, starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
    """Depth and parent of n ranges in any order; of equal ones the earlier row is the outer one."""
    # Arguments and results are the same as for `NestingSweep.step`.
    (tracks, starts, ends), order = _sorted(tracks, starts, ends, longest_first=True)
    depths, parents = NestingSweep().step(np.ones(len(starts), np.bool_), tracks, starts, ends)
    return _unsorted(depths, None, order), _unsorted(parents, order, order)


def innermost(
    range_tracks: Int64, range_starts: Int64, range_ends: Int64, tracks: Int64, starts: Int64, ends: Int64 | None = None
) -> Int64:
    """The innermost range that encloses each call."""
    # `range_tracks`: int64 array of r track codes. `range_starts`: int64 array of r starts, ns. `range_ends`: int64
    # array of r ends, ns. `ends`: int64 array of n ends, ns; None to look up the points `starts`. Returns int64 array
    # of n: rows of the ranges, -1 for none. Inputs may have any order; they are fastest in that of a run's files.
    ranges, range_order = _sorted(range_tracks, range_starts, range_ends, longest_first=True)
    calls, call_order = _sorted(tracks, starts, starts if ends is None else ends, longest_first=False)
    count = len(calls[0])
    rows = np.full(count, -1, np.int64)
    state = np.zeros(4, np.int64)
    frontier = np.zeros((4, _ROOM), np.int64)
    core.innermost(*ranges, *calls, frontier, state, rows)
    while state[3] < count:
        frontier = np.concatenate((frontier, np.zeros_like(frontier)), axis=1)
        core.innermost(*ranges, *calls, frontier, state, rows)
    return _unsorted(rows, range_order, call_order)


def enclosing(
    range_tracks: Int64, range_starts: Int64, range_ends: Int64, tracks: Int64, starts: Int64, ends: Int64 | None = None
) -> tuple[Int64, Int64]:
    """Every range that encloses each call, for what counts a call under all of them."""
    # `range_tracks`: int64 array of r track codes. `range_starts`: int64 array of r starts, ns. `range_ends`: int64
    # array of r ends, ns. `ends`: int64 array of n ends, ns; None to look up the points `starts`. Returns two int64
    # arrays of one length: row of the call, row of the range. There are as many pairs as calls times enclosing ranges:
    # a caller with very many of both should pass the calls in portions. In order of the calls by (track, start), outer
    # ranges first.
    ranges, range_order = _sorted(range_tracks, range_starts, range_ends, longest_first=True)
    calls, call_order = _sorted(tracks, starts, starts if ends is None else ends, longest_first=False)
    count = len(calls[0])
    state = np.zeros(5, np.int64)
    queries: list[Int64] = [np.empty(0, np.int64)]
    rows: list[Int64] = [np.empty(0, np.int64)]
    active = np.zeros((2, _ROOM), np.int64)
    room = max(4 * count, active.shape[1])
    while state[3] < count:
        pairs = np.empty((2, room), np.int64)
        before = int(state[3])
        core.enclosing(*ranges, *calls, active, state, pairs)
        if state[3] == before:  # no call was done: what stopped it was room
            active = np.concatenate((active, np.zeros_like(active)), axis=1)
            room = max(room, active.shape[1])
        written = int(state[4])
        queries.append(pairs[0, :written].copy())
        rows.append(pairs[1, :written].copy())
    query, row = np.concatenate(queries), np.concatenate(rows)
    return (query if call_order is None else call_order[query], row if range_order is None else range_order[row])


def _clipped(starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
    starts = np.ascontiguousarray(starts, np.int64)
    ends = np.maximum(np.asarray(ends, np.int64), starts)
    return np.clip(starts, -_FAR, _FAR - 1), np.clip(ends, -_FAR, _FAR - 1)


def _sorted(
    tracks: Int64, starts: Int64, ends: Int64, *, longest_first: bool
) -> tuple[tuple[Int64, Int64, Int64], Int64 | None]:
    """Track, start and end by (track, start[, -end]), and the permutation, or None when they were so."""
    tracks = np.ascontiguousarray(tracks, np.int64)
    starts, ends = _clipped(starts, ends)
    same = tracks[1:] == tracks[:-1]
    early = (tracks[1:] < tracks[:-1]) | (same & (starts[1:] < starts[:-1]))
    if longest_first:
        early |= same & (starts[1:] == starts[:-1]) & (ends[1:] > ends[:-1])
    if not early.any():
        return (tracks, starts, ends), None
    order = np.lexsort((-ends, starts, tracks) if longest_first else (starts, tracks))
    return (tracks[order], starts[order], ends[order]), order.astype(np.int64, copy=False)


def _unsorted(rows: Int64, range_order: Int64 | None, call_order: Int64 | None) -> Int64:
    if range_order is not None and len(range_order):
        rows = np.where(rows < 0, -1, range_order[rows])
    if call_order is None:
        return rows
    result = np.empty_like(rows)
    result[call_order] = rows
    return result
