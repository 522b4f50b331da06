"""The times of a table's rows, and facts about them that show whether some may be suspect."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from alltrace.run.bounds import MOST_TIME_NS
from alltrace.run.pieces import Piece
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.schema import TABLES

OVERRUN_NS = 1_000
LATER = 3
LONG_NS = 10_000_000
"""Copies that take less than this are not compared with kernels, nor kernels with copies."""
SAMPLE = 4096
SERIAL = ("kernels", "copies")
UNIQUE = {
    "kernels": ("process", "device", "context", "stream", "correlation", "graph_node", "name"),
    "copies": tuple("process device context stream correlation graph_node kind bytes src_device dst_device".split()),
    "api": ("process", "thread", "correlation", "name"),
}
"""The tables that are looked through for rows that are recorded twice, and what is equal in these in addition to the
times."""


class RowTimes:
    """When the rows of a table begin and end; the end of a row without one is its start.

    Facts that show whether rows may be suspect are gathered part by part; the times of all rows are read where some may
    be.
    """

    def __init__(self, piece: Piece, name: str) -> None:
        self.rows = piece.rows[name]
        self.first, self.last, self.end_ns = (
            MOST_TIME_NS,
            -MOST_TIME_NS,
            -MOST_TIME_NS,
        )  # first and last start, last end
        self.at_first = 0  # how many rows begin at the first start, and end then if it is not 0
        self.instant = 0  # how many rows have no duration
        self.backward = self.crowded = (
            False  # whether any ends before it begins, or after the third behind it has begun
        )
        self._piece, self._name = piece, name
        self._columns = [c for c in (TABLES[name].order, "end") if c is not None and c in TABLES[name].column_names]
        every, row = max(1, self.rows // SAMPLE), 0
        gathered: list[tuple[Int64, ...]] = []
        tail = np.empty((2, 0), np.int64)
        for start, end in self.parts():
            length = end - start
            first, longest = int(start.min()), int(length.max())
            if first <= self.first:
                here = (start == first) & ((end == first) | (start == 0))
                self.at_first = int(np.count_nonzero(here)) + (self.at_first if first == self.first else 0)
                self.first = first
            self.last, self.end_ns = max(self.last, int(start.max())), max(self.end_ns, int(end.max()))
            self.backward |= int(length.min()) < 0
            self.instant += int(np.count_nonzero(length == 0))
            long = np.flatnonzero(length > LONG_NS) if longest > LONG_NS else tail[0, :0]
            both = np.concatenate((tail, (start, end)), axis=1) if row else np.stack((start, end))
            equal = np.flatnonzero((both[:, 1:] == both[:, :-1]).all(axis=0)) + 1 if name in UNIQUE else tail[0, :0]
            equal = row - tail.shape[1] + equal[equal >= tail.shape[1]]
            if name in SERIAL:
                behind = both[0, LATER:]
                self.crowded |= bool(((both[1, :-LATER] > behind + OVERRUN_NS) & (behind >= both[0, :-LATER])).any())
            few = slice(-row % every, None, every)
            gathered.append((start[few].copy(), length[few].copy(), equal, row + long, start[long], end[long]))
            tail, row = both[:, -LATER:].copy(), row + len(start)
        self.sample, self.lengths, self.equal, self.long, self.long_start, self.long_end = map(
            np.concatenate, zip(*gathered, strict=True)
        )

    def parts(self) -> Iterator[tuple[Int64, Int64]]:
        """The starts and ends of some rows at a time."""
        for part in self._piece.parts(self._name, self._columns):
            start, end = part.column(0), part.column(len(self._columns) - 1)
            starts = integers(start)
            yield (
                starts,
                integers(pc.coalesce(end, start) if end.null_count else end) if len(self._columns) == 2 else starts,
            )

    @cached_property
    def start(self) -> Int64:
        """The starts of all rows."""
        return self._piece.numbers(self._name, self._columns[0])

    @cached_property
    def end(self) -> Int64:
        """The ends of all rows."""
        return np.concatenate([end for _, end in self.parts()])


def times_of(piece: Piece, name: str) -> RowTimes | None:
    """The times of a table with rows; None if it has no single time of a row, such as that of sampled values."""
    table = TABLES[name]
    if not piece.rows.get(name) or name == "suspects" or table.order is None or table.track[-1:] == ("metric",):
        return None
    if piece.nulls(name, table.order):  # operations of which the call alone is known
        return None
    return RowTimes(piece, name)
