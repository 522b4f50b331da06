"""The tracks that viewers draw: of a thread one for each kind of call or range, of a stream one for each kind of work.

Slices of one track nest. A slice that crosses another one goes to a further track of the same name, so that no slice is
cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alltrace.core.intervals import lanes
from alltrace.export.selection import Selection
from alltrace.export.tracks import Tracks
from alltrace.trace.arrays import Int64

MOST_TOGETHER = 60
"""The most slices that start together on a track, each within the one before it."""

_FIRST_INVENTED = 1 << 22  # no Linux process has a greater id
_ROOM = 64


class Track(NamedTuple):
    base: int  # the thread or stream, a number in the rank's tracks
    label: str  # what it shows; empty for a stream's kernels
    lane: int  # its number among the tracks of that name, from 0


class ViewerTracks:
    def __init__(self) -> None:
        self.tracks: list[Track] = []  # the tracks, by number
        self.beside: int = 0  # how many slices crossed another one and are on a further track
        self._numbers: dict[Track, int] = {}
        self._groups: dict[tuple[int, str, int], int] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        self._taken: set[int] = set()
        self._first = np.full(0, -1, np.int64)
        self._known = np.zeros((2, 0), np.int64)
        self._open = np.zeros((4, 0), np.int64)
        self._state = np.array([0, 0, -1], np.int64)

    def number(self, base: int, label: str, lane: int = 0) -> int:
        track = Track(base, label, lane)
        number = self._numbers.get(track)
        if number is None:
            number = self._numbers[track] = len(self.tracks)
            self.tracks.append(track)
        return number

    def numbers(self, bases: Int64, kinds: Int64, labels: Sequence[str]) -> Int64:
        """The first track of each row: of n bases, with n kinds that are places in `labels`."""
        keys, inverse = np.unique(np.stack((bases, kinds)), axis=1, return_inverse=True)
        return np.array([self.number(b, labels[k]) for b, k in keys.T.tolist()], np.int64)[inverse.reshape(-1)]

    def place(
        self, bases: Int64, kinds: Int64, labels: Sequence[str], owners: Int64, starts: Int64, ends: Int64
    ) -> tuple[Int64, Int64]:
        """Give n slices tracks on which they nest."""
        # Slices of one base, label and owner come in the order of their starts, here and from call to call; of those
        # that start together the longest first. `bases`: int64 array of n threads or streams. `kinds`: int64 array of n
        # places in `labels`. `labels`: what the places show. `owners`: int64 array of n processes, with separate tracks
        # for each. Returns two int64 arrays of n: numbers of tracks; and how many slices that start with this one hold
        # it.
        keys, inverse = np.unique(np.stack((bases, kinds, owners)), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        names = [(b, labels[k], o) for b, k, o in keys.T.tolist()]
        codes = np.array([self._groups.setdefault(name, len(self._groups)) for name in names], np.int64)
        self._make_room(len(starts))
        of_slice, orders = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
        groups = codes[inverse]
        lanes(groups, starts, ends, MOST_TOGETHER, self._first, self._known, self._open, self._state, of_slice, orders)
        self.beside += int(np.count_nonzero(of_slice))
        both, which = np.unique(np.stack((inverse, of_slice)), axis=1, return_inverse=True)
        rows = [self._of_lane(int(codes[group]), names[group], lane) for group, lane in both.T.tolist()]
        return np.array(rows, np.int64)[which.reshape(-1)], orders

    def in_order(self) -> list[int]:
        """The numbers of all tracks, with tracks of a thread or stream next to each other, in order of first use."""
        return sorted(
            range(len(self.tracks)), key=lambda n: (self.tracks[n].base, self._first_of(n), self.tracks[n].lane)
        )

    def _first_of(self, number: int) -> int:
        return self._numbers[self.tracks[number]._replace(lane=0)]

    def _of_lane(self, group: int, name: tuple[int, str, int], lane: int) -> int:
        """The track of a group's lane: the one with its number, or a new one if another owner's slices are there."""
        track = self._lanes.get((group, lane))
        if track is None:
            base, label, _ = name
            free = lane
            while (number := self.number(base, label, free)) in self._taken:
                free += 1
            track = self._lanes[group, lane] = number
            self._taken.add(number)
        return track

    def _make_room(self, rows: int) -> None:
        self._first = np.concatenate((self._first, np.full(max(0, len(self._groups) - len(self._first)), -1, np.int64)))
        for name, used in (("_known", int(self._state[0])), ("_open", int(self._state[1]))):
            array = getattr(self, name)
            if array.shape[1] < used + rows:
                larger = np.zeros((len(array), 2 * (used + rows) + _ROOM), np.int64)
                larger[:, : array.shape[1]] = array
                setattr(self, name, larger)


def process_ids(selection: Selection) -> dict[int, int]:
    """A process id for each rank: its own, or, if several ranks have it, one that no process has."""
    own = {r.rank: r.pids[0] if r.pids else 0 for r in selection.ranks}
    times = Counter(own.values())
    return {rank: pid if pid > 0 and times[pid] == 1 else _FIRST_INVENTED + 1 + rank for rank, pid in own.items()}


def thread_ids(tracks: Tracks, taken: set[int]) -> list[int]:
    """A thread id for each thread: its own, or an unused one if it has none or another thread in `taken` has it."""
    # `taken`: the ids that other ranks' threads have; these are added.
    ids = []
    for thread in tracks.threads:
        number = tracks.thread_ids.get(thread, 0)
        if number <= 0 or number in taken:
            number = _FIRST_INVENTED + 1 + len(taken)
            while number in taken:
                number += 1
        taken.add(number)
        ids.append(number)
    return ids
