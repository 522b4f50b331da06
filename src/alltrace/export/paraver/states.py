"""The state of each thread over time: disjoint and complete, from intervals that may overlap and nest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from alltrace.core.paraver import OWNER_SHIFT, QUERY_SHIFT, TRACK_SHIFT, strongest
from alltrace.export.sorted_rows import RowSorter
from alltrace.readers.paraver import labels as ev
from alltrace.trace.arrays import Int64

Columns = tuple[Int64, Int64, Int64, Int64]

STRONGEST_FIRST = (
    ev.MPI_RECEIVE, ev.MPI_SEND, ev.MPI_WAIT, ev.MPI_ISEND, ev.MPI_IRECEIVE, ev.MPI_SENDRECV, ev.MPI_OTHER, ev.RUNNING,
    ev.SYNCHRONISATION, ev.GROUP, ev.MEMORY,
)  # fmt: skip
"""Where intervals overlap, the first of these is the state:
compute hides communication, and that hides copies."""

STATES = (*STRONGEST_FIRST, ev.IDLE)
"""The states, by strength."""

_STRENGTHS = np.full(64, -1, np.int64)
_STRENGTHS[list(STATES)] = np.arange(len(STATES))


class StateBuilder:
    """Takes the intervals of one task in any order and returns the state of each thread, and what waits waited for.

    `points`: where to sort, of three columns.
    """

    def __init__(self, points: RowSorter) -> None:
        self._points = points

    def add(self, tracks: Int64, starts: Int64, ends: Int64, states: Int64) -> None:
        """Add n intervals with their states; intervals with a negative state or without length are ignored."""
        rows = np.flatnonzero((states >= 0) & (ends > starts) & (tracks >= 0))
        codes = tracks[rows] << TRACK_SHIFT | _STRENGTHS[states[rows]] << 1
        self._points.add(starts[rows], codes | 1, 0)
        self._points.add(ends[rows], codes, 0)

    def ask(self, tracks: Int64, since: Int64, until: Int64, owners: Int64) -> None:
        """Ask for the last end on each track from `since` to `until`; `owners` are the tracks that waited for it."""
        self._points.add(until, tracks << TRACK_SHIFT | 1 << QUERY_SHIFT | owners << OWNER_SHIFT, since)

    def sweep(self, background: list[int], end_ns: int) -> Iterator[tuple[Columns, Columns]]:
        """The states from 0 to the end, without gaps, and the answers to the queries, block by block.

        `background`: for each track the state of what no interval covers. Yields int64 arrays: tracks, starts,
        ends, states as places in `STATES`; and tracks, the last ends on them, the ends of the waits and their
        tracks.
        """
        count = len(background)
        rest = _STRENGTHS[np.array(background, np.int64)]
        open_ = np.zeros((count, len(STRONGEST_FIRST)), np.int64)
        since, states, ended = np.zeros(count, np.int64), rest.copy(), np.full(count, -1, np.int64)
        for times, codes, more in self._points.blocks():
            out: Any = [np.empty(len(times), np.int64) for _ in range(6)]
            changed, answered = strongest(times, codes, more, end_ns, rest, open_, since, states, ended, *out)
            tracks, starts, ends, shown = (c[:changed] for c in out[:4])
            rows, last = (c[:answered] for c in out[4:])
            queries = codes[rows]
            owners = queries >> OWNER_SHIFT & 0xFFFF
            yield (tracks, starts, ends, shown), (queries >> TRACK_SHIFT, last, times[rows], owners)
        left, none = np.full(count, end_ns, np.int64), np.empty(0, np.int64)
        yield (np.arange(count), since, left, states), (none, none, none, none)


def state_of_call(name: str) -> int:
    """The state of a host thread in a CUDA call, -1 for one that only launches."""
    if "ynchronize" in name:
        return ev.SYNCHRONISATION
    return ev.MEMORY if "emcpy" in name or "emset" in name else -1


def state_of_mpi(name: str, kind: str) -> int:
    if kind == "collective":
        return ev.GROUP
    if kind == "start-wait" or "Wait" in name:
        return ev.MPI_WAIT
    states = {
        "MPI_Send": ev.MPI_SEND, "MPI_Recv": ev.MPI_RECEIVE, "MPI_Isend": ev.MPI_ISEND, "MPI_Irecv": ev.MPI_IRECEIVE,
        "MPI_Sendrecv": ev.MPI_SENDRECV, "MPI_Probe": ev.MPI_RECEIVE,
    }  # fmt: skip
    return states.get(name, ev.MPI_OTHER)
