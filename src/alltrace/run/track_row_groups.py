"""Tracks that are written early: the rows of a busy track go into separate row groups while the source is still read.

Sources mostly hold the rows of each track in order of time, so that what a buffer holds of a track comes after all that
was seen of it before, and only the tracks are mixed. The rows of a busy track then need not wait on disk for a merge:
they are a lane of row groups, and only the order of the lanes is settled at the end. Rows of small tracks wait in
memory.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.columns import HeldColumns
from alltrace.run.row_groups import ROW_GROUP_ROWS, RowGroups
from alltrace.run.sorting import RowOrder, key_at

Track = tuple[int, ...]

MIN_ROWS = 8192  # a track with fewer rows in a buffer is not written ahead: small row groups are large and slow

HELD_BACK_ROWS = 2048  # how many rows of a track stay in memory, because rows of a source may arrive a little late


class Stretch(NamedTuple):
    """The rows [first, last) of a sorted batch, all of one track, and what the first is ordered by within it."""

    track: Track
    first: int
    last: int
    first_key: tuple[int, ...]


class _Lane:
    def __init__(self) -> None:
        self.last_key: tuple[int, ...] = ()
        self.groups: list[int] = []


class Lanes:
    """The lanes of one file. `order`: the order of the rows."""

    def __init__(self, order: RowOrder, held: HeldColumns) -> None:
        self.late: bool = False  # whether a row came that belongs before one that was written ahead
        nested = order.longest_first  # the depths of ranges are filled as rows pass in order
        # whether more may be written ahead
        self.open: bool = bool(order.tracks) and order.time is not None and not nested
        self._order = order
        self._held = held
        self._lanes: dict[Track, _Lane] = {}

    def __bool__(self) -> bool:
        """Whether anything was written ahead."""
        return bool(self._lanes)

    def stretches(self, keys: pa.RecordBatch) -> list[Stretch]:
        """The tracks of a sorted batch of the columns that decide the order; rows without a time are another."""
        tracks = self._order.track_keys(keys)
        change = np.zeros(keys.num_rows - 1, np.bool_)
        for values in tracks:
            if values.strides[0]:  # else all are equal
                change |= values[1:] != values[:-1]
        bounds = [0, *(np.flatnonzero(change) + 1).tolist(), keys.num_rows]
        firsts = self._order.keys(pc.take(keys, pa.array(np.array(bounds[:-1], np.int64))))
        first_keys, many = [key_at(firsts, n) for n in range(len(bounds) - 1)], len(tracks)
        return [
            Stretch(k[:many], first, last, k[many:])
            for k, (first, last) in zip(first_keys, pairwise(bounds), strict=True)
        ]

    def look(self, keys: pa.RecordBatch) -> list[Stretch]:
        """The tracks of the sorted rows that come next; sets `late`."""
        stretches = self.stretches(keys)
        self.late |= any(
            (lane := self._lanes.get(s.track)) is not None and s.first_key < lane.last_key for s in stretches
        )
        self.open &= not self.late
        return stretches

    def write(self, rows: pa.RecordBatch, stretches: list[Stretch], output: RowGroups) -> list[pa.RecordBatch]:
        """Write the sorted, held rows that can be written early; returns the other rows, in order."""
        rest = []
        done = 0
        for stretch in stretches:
            if stretch.last - stretch.first < MIN_ROWS:
                continue
            rest.append(rows.slice(done, stretch.first - done))
            done = stretch.last - HELD_BACK_ROWS
            lane = self._lanes.setdefault(stretch.track, _Lane())
            last = self._held.full(rows.slice(done - 1, 1).select(self._order.columns))
            lane.last_key = key_at(self._order.keys(last), 0)[len(stretch.track) :]
            size = -(-(done - stretch.first) // -(-(done - stretch.first) // ROW_GROUP_ROWS))
            for first in range(stretch.first, done, size):
                group = rows.slice(first, min(size, done - first))
                lane.groups.append(output.put(self._held.full(group)))
        rest.append(rows.slice(done))
        return [r for r in rest if r.num_rows]

    def weave(self, pieces: Iterator[list[pa.RecordBatch]], output: RowGroups) -> None:
        """Write the sorted rows that were not written ahead, and put the lanes where they belong among them."""
        waiting = sorted(self._lanes, reverse=True)
        for batches in pieces:
            for batch in batches:
                self._add(batch, waiting, output)
        while waiting:
            output.place(self._lanes[waiting.pop()].groups)

    def _add(self, batch: pa.RecordBatch, waiting: list[Track], output: RowGroups) -> None:
        if not waiting:
            output.add([batch])
            return
        done = 0
        for stretch in self.stretches(batch.select(self._order.columns)):
            while waiting and waiting[-1] <= stretch.track:
                output.add([batch.slice(done, stretch.first - done)])
                done = stretch.first
                output.place(self._lanes[waiting.pop()].groups)
        output.add([batch.slice(done)])

    def written(self) -> list[int]:
        """The row groups that were written ahead, in the order of their rows; forgets them."""
        groups = [g for track in sorted(self._lanes) for g in self._lanes[track].groups]
        self._lanes.clear()
        return groups
