"""Sweeps over sorted ranges, written so that they run on lists as they are and on arrays when compiled.

Times must lie within +-2**62, so that differences fit into 64 bits; the callers clip them.

The frontier of a sweep holds the ranges that can still be the shortest enclosing one of something that starts later. A range
falls out when it has ended, or when a later one ends no earlier and is no longer. So by descending end the durations descend as
well, and the shortest range that encloses [start, end) is the last one of the frontier that ends no earlier than `end`. On nested
ranges the frontier is the stack of open ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Numbers = Any


def place(
    size: int, start: int, end: int, row: int, depth: int, f_start: Numbers, f_end: Numbers, f_row: Numbers, f_depth: Numbers
) -> int:
    """Put a range into the frontier; its new size. No earlier range may start after it."""
    low = size
    while low > 0 and f_end[low - 1] <= end:
        low -= 1
    high = low
    while high < size and start - f_start[high] >= end - f_end[high]:
        high += 1
    shift = low + 1 - high
    if shift > 0:
        for i in range(size - 1, high - 1, -1):
            f_start[i + shift] = f_start[i]
            f_end[i + shift] = f_end[i]
            f_row[i + shift] = f_row[i]
            f_depth[i + shift] = f_depth[i]
    elif shift < 0:
        for i in range(high, size):
            f_start[i + shift] = f_start[i]
            f_end[i + shift] = f_end[i]
            f_row[i + shift] = f_row[i]
            f_depth[i + shift] = f_depth[i]
    f_start[low] = start
    f_end[low] = end
    f_row[low] = row
    f_depth[low] = depth
    return size + shift


def nest(
    wanted: Numbers,
    tracks: Numbers,
    starts: Numbers,
    ends: Numbers,
    first_row: int,
    f_start: Numbers,
    f_end: Numbers,
    f_row: Numbers,
    f_depth: Numbers,
    state: Numbers,
    depths: Numbers,
    parents: Numbers,
) -> None:
    """Depth and parent (-1 for none) of every wanted range; rows by (track, start, -end), numbered from `first_row`.

    `state` is (size of the frontier, track) and carries on from call to call, as the frontier does, which must have room for
    all rows of the call.
    """
    size = state[0]
    track = state[1]
    for i in range(len(starts)):
        depths[i] = -1
        parents[i] = -1
        if not wanted[i]:
            continue
        if tracks[i] != track:
            track = tracks[i]
            size = 0
        start = starts[i]
        end = ends[i]
        while size > 0 and f_end[size - 1] < start:
            size -= 1
        at = size
        while at > 0 and f_end[at - 1] < end:
            at -= 1
        depth = 0
        if at > 0:
            parents[i] = f_row[at - 1]
            depth = f_depth[at - 1] + 1
        depths[i] = depth
        size = place(size, start, end, first_row + i, depth, f_start, f_end, f_row, f_depth)
    state[0] = size
    state[1] = track


def innermost(
    r_tracks: Numbers,
    r_starts: Numbers,
    r_ends: Numbers,
    q_tracks: Numbers,
    q_starts: Numbers,
    q_ends: Numbers,
    f_start: Numbers,
    f_end: Numbers,
    f_row: Numbers,
    f_depth: Numbers,
    state: Numbers,
    found: Numbers,
) -> None:
    """The shortest range that encloses each query, or -1; both sorted by (track, start), the ranges then by -end.

    `state` is (size of the frontier, track, next range, next query). The sweep stops early when the frontier is full: the caller
    gives it more room and calls again.
    """
    size = state[0]
    track = state[1]
    j = state[2]
    room = len(f_start)
    for i in range(state[3], len(q_starts)):
        wanted = q_tracks[i]
        start = q_starts[i]
        end = q_ends[i]
        while j < len(r_starts) and (r_tracks[j] < wanted or (r_tracks[j] == wanted and r_starts[j] <= start)):
            if r_tracks[j] == wanted:
                if track != wanted:
                    track = wanted
                    size = 0
                while size > 0 and f_end[size - 1] < r_starts[j]:
                    size -= 1
                if size == room:
                    state[0] = size
                    state[1] = track
                    state[2] = j
                    state[3] = i
                    return
                size = place(size, r_starts[j], r_ends[j], j, 0, f_start, f_end, f_row, f_depth)
            j += 1
        if track != wanted:
            track = wanted
            size = 0
        while size > 0 and f_end[size - 1] < start:
            size -= 1
        at = size
        while at > 0 and f_end[at - 1] < end:
            at -= 1
        found[i] = f_row[at - 1] if at > 0 else -1
    state[3] = len(q_starts)


def enclosing(
    r_tracks: Numbers,
    r_starts: Numbers,
    r_ends: Numbers,
    q_tracks: Numbers,
    q_starts: Numbers,
    q_ends: Numbers,
    a_end: Numbers,
    a_row: Numbers,
    state: Numbers,
    out_query: Numbers,
    out_range: Numbers,
) -> None:
    """Every (query, range) with the range enclosing the query, by query and then by the range's row; sorted as for `innermost`.

    `state` is (ranges at hand, track, next range, next query, pairs written). The sweep stops when the room for the ranges
    at hand, or for the pairs of the next query, may not do.
    """
    size = state[0]
    track = state[1]
    j = state[2]
    written = 0
    room = len(a_end)
    i = state[3]
    while i < len(q_starts):
        wanted = q_tracks[i]
        start = q_starts[i]
        end = q_ends[i]
        if track != wanted:
            track = wanted
            size = 0
        while j < len(r_starts) and (r_tracks[j] < wanted or (r_tracks[j] == wanted and r_starts[j] <= start)):
            if r_tracks[j] == wanted:
                while size > 0 and a_end[size - 1] < r_starts[j]:
                    size -= 1
                if size == room:
                    break
                a_end[size] = r_ends[j]
                a_row[size] = j
                size += 1
            j += 1
        kept = 0
        for k in range(size):
            if a_end[k] >= start:
                a_end[kept] = a_end[k]
                a_row[kept] = a_row[k]
                kept += 1
        size = kept
        if j < len(r_starts) and r_tracks[j] == wanted and r_starts[j] <= start:
            break  # no room for the next range
        if size > len(out_query) - written:
            break
        for k in range(size):
            if a_end[k] >= end:
                out_query[written] = i
                out_range[written] = a_row[k]
                written += 1
        i += 1
    state[0] = size
    state[1] = track
    state[2] = j
    state[3] = i
    state[4] = written
