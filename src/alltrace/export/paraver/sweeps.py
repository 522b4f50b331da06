"""Sweeps over intervals in the order of time, block by block: which range is the innermost, which state the strongest."""

from __future__ import annotations

from typing import Any

from alltrace.trace.jit import plain_kernel

_I64 = "int64[:]"
_TABLE = "int64[:, :]"

TRACK_SHIFT, QUERY_SHIFT, OWNER_SHIFT = 40, 39, 16
"""Where a point's code has the track, whether it is a question, and who asks; below are the state and whether it begins."""


@plain_kernel(f"int64(int64, {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, {_TABLE}, {_TABLE}, {_I64}, {_I64}, {_I64}, {_I64}, {_I64})")
def innermost(
    first: Any, groups: Any, starts: Any, ends: Any, values: Any, depths: Any, stops: Any, kept: Any,
    out_groups: Any, out_times: Any, out_values: Any, out_depths: Any, out_count: Any,
) -> Any:  # fmt: skip
    """The changes of the innermost range of each group (a thread's ranges of one domain).

    Args:
        first: The row to begin with.
        groups: int64 array of n groups, numbered from 0.
        starts: int64 array of n starts, ascending, of equal ones the longest first.
        ends: int64 array of n ends; one that outlasts the range around it is taken to end with it.
        values: int64 array of n values.
        depths: int64 array of g: how many ranges of each group are open; goes on with the next call.
        stops: int64 array (g, d) of the ends of the open ranges.
        kept: int64 array (g, d) of their values.
        out_groups: int64 array with room for 2n and all open ranges, filled with groups.
        out_times: int64 array, filled with times.
        out_values: int64 array, filled with the value of the innermost range from then on, 0 outside of all.
        out_depths: int64 array, filled with the number of ranges that are open from then on.
        out_count: int64 array of one: how many changes there are.

    Returns:
        n, or the row that finds more than d ranges open.
    """
    at = out_count[0]
    for i in range(first, groups.size):
        group = groups[i]
        depth = depths[group]
        while depth > 0 and stops[group, depth - 1] <= starts[i]:
            depth -= 1
            out_groups[at] = group
            out_times[at] = stops[group, depth]
            out_values[at] = kept[group, depth - 1] if depth > 0 else 0
            out_depths[at] = depth
            at += 1
        depths[group] = depth
        if depth == stops.shape[1]:
            out_count[0] = at
            return i
        stop = ends[i]
        if depth > 0 and stops[group, depth - 1] < stop:
            stop = stops[group, depth - 1]
        stops[group, depth] = stop
        kept[group, depth] = values[i]
        depths[group] = depth + 1
        out_groups[at] = group
        out_times[at] = starts[i]
        out_values[at] = values[i]
        out_depths[at] = depth + 1
        at += 1
    out_count[0] = at
    return groups.size


@plain_kernel(
    f"void({_I64}, {_I64}, {_I64}, int64, {_I64}, {_TABLE}, {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, {_I64}, "
    f"{_I64}, {_I64}, {_I64})"
)
def strongest(
    times: Any, codes: Any, more: Any, end: Any, rest: Any, open_: Any, since: Any, states: Any, ended: Any,
    out_tracks: Any, out_starts: Any, out_ends: Any, out_states: Any, out_waits: Any, out_waited: Any, out_counts: Any,
) -> None:  # fmt: skip
    """The state of each track over time where intervals of several states may overlap, and what each wait waited for.

    Args:
        times: int64 array of n times of begins, ends and questions, ascending; equal ones by code.
        codes: int64 array of n codes; a question comes after the begins and ends of its track and time.
        more: int64 array of n: for a question the time since which work must have ended to have been waited for.
        end: Where time ends; it begins at 0.
        rest: int64 array of t: the state of each track where no interval covers it.
        open_: int64 array (t, s): how many intervals of each state are open, the strongest first; goes on with the next call.
        since: int64 array of t: when the state of each track began.
        states: int64 array of t: that state.
        ended: int64 array of t: the last end of an interval on each track, -1 for none.
        out_tracks: int64 array of n, filled with the tracks whose state ended.
        out_starts: int64 array of n, filled with its start.
        out_ends: int64 array of n, filled with its end.
        out_states: int64 array of n, filled with the state; neighbours on a track differ.
        out_waits: int64 array of n, filled with the rows of questions that have an answer.
        out_waited: int64 array of n, filled with the last end of an interval on their track.
        out_counts: int64 array of 2, filled with the numbers of states and of answers.
    """
    count = 0
    waits = 0
    i = 0
    while i < times.size:
        time = times[i]
        track = codes[i] >> TRACK_SHIFT
        if codes[i] >> QUERY_SHIFT & 1:
            if ended[track] >= more[i] and ended[track] >= 0:
                out_waits[waits] = i
                out_waited[waits] = ended[track]
                waits += 1
            i += 1
            continue
        while i < times.size and times[i] == time and codes[i] >> QUERY_SHIFT == track << (TRACK_SHIFT - QUERY_SHIFT):
            state = codes[i] >> 1 & 63
            if codes[i] & 1:
                open_[track, state] += 1
            else:
                open_[track, state] -= 1
                ended[track] = time
            i += 1
        if time >= end:
            continue
        found = rest[track]
        for s in range(open_.shape[1]):
            if open_[track, s] > 0:
                found = s
                break
        if found != states[track]:
            if time > since[track]:
                out_tracks[count] = track
                out_starts[count] = since[track]
                out_ends[count] = time
                out_states[count] = states[track]
                count += 1
                since[track] = time
            states[track] = found
    out_counts[0] = count
    out_counts[1] = waits


@plain_kernel(f"int64({_I64}, {_I64}, {_I64}, {_I64}, boolean[:])")
def overlapping(objects: Any, starts: Any, ends: Any, last: Any, out: Any) -> int:
    """Which intervals start while another one of the same object lasts, of those that were given before.

    Args:
        objects: int64 array of n objects.
        starts: int64 array of n starts.
        ends: int64 array of n ends.
        last: int64 array: the last end on each object so far; goes on with the next call.
        out: Boolean array of n, filled with whether they do.

    Returns:
        How many do.
    """
    count = 0
    for i in range(objects.size):
        out[i] = starts[i] < last[objects[i]]
        if out[i]:
            count += 1
        if ends[i] > last[objects[i]]:
            last[objects[i]] = ends[i]
    return count
