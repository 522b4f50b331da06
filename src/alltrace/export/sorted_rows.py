"""Puts any number of rows of whole numbers into order in bounded memory."""

import bisect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.core.text import columns_in_order
from alltrace.run.sorted_runs import DiskSorter, Form, read_bytes
from alltrace.trace.arrays import Int64

_HELD_ROWS = 1 << 18
_ALONE_ROWS = 1 << 13
_FEW_EQUAL = 32


# `path`: as in `DiskSorter`. `columns`: the numbers of a row, two or more.
class RowSorter(DiskSorter):
    """Takes rows of integers, and returns them in the order of their first one; equal ones stay in input order."""

    def __init__(self, path: Path, columns: int) -> None:
        super().__init__(path, _Rows(columns))
        self._columns = columns

    def add(self, *columns: Any) -> None:
        """Add n rows: int64 arrays of n, all but the first may be one number for all."""
        rows = np.empty((len(columns[0]), self._columns), np.int64)
        for n, column in enumerate(columns):
            rows[:, n] = column
        self.add_rows(rows)

    def add_rows(self, rows: Int64) -> None:
        """Add the rows of an int64 array (n, columns), which must not change later; many in order are the cheapest."""
        if not len(rows):
            return
        if len(rows) >= _ALONE_ROWS and _sorted(rows):
            self._flush()
            self._add_run([rows])
            return
        self._held.append(rows)
        self._size += len(rows)
        if self._size >= _HELD_ROWS:
            self._flush()

    def ordered(self) -> Iterator[tuple[Int64, Int64]]:
        """All rows, block by block: int64 arrays (n, columns) and of n places of its rows in order."""
        # Rows with equal first numbers are in one block.
        yield from self._in_order()

    def blocks(self) -> Iterator[tuple[Int64, ...]]:
        """The columns in the order of the first two, in blocks; wholly equal rows as they came."""
        # Rows with equal first numbers are in one block.
        for rows, order in self.ordered():
            columns = np.empty((self._columns, len(rows)), np.int64)
            if columns_in_order(rows, order, _FEW_EQUAL, columns):
                columns[:] = np.take(rows, order, axis=0).T
                _settle(columns)
            yield tuple(columns)


class _Rows(Form):
    def __init__(self, columns: int) -> None:
        self._columns = columns

    def pack(self, block: Int64, at: int) -> tuple[tuple[int, int], Iterable[Any]]:
        return (at, len(block)), (np.ascontiguousarray(block),)

    def read(self, file: int | str, place: tuple[int, int], room: int) -> tuple[Int64, tuple[int, int] | None]:
        start, left = place
        count, width = min(room, left), 8 * self._columns
        rows = read_bytes(file, width * count, start).view(np.int64).reshape(count, self._columns)
        return rows, (start + width * count, left - count) if count < left else None

    def key(self, block: Int64, record: int) -> int:
        return int(block[record, 0])

    def count(self, block: Int64) -> int:
        return len(block)

    def before(self, block: Int64, bound: int) -> int:
        return bisect.bisect_left(block[:, 0], bound)

    def cut(self, block: Int64, first: int, last: int) -> Int64:
        return block[first:last]

    def ordered(self, blocks: list[Int64]) -> tuple[Int64, Int64]:
        """The rows of all blocks, and their places in the order of the keys."""
        rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        if len(blocks) == 1 and _sorted(rows):
            return rows, np.arange(len(rows))
        return rows, np.argsort(np.ascontiguousarray(rows[:, 0]), kind="stable")

    def blocks(self, ordered: tuple[Int64, Int64]) -> list[Int64]:
        rows, order = ordered
        return [np.take(rows, order, axis=0)]


def _sorted(rows: Int64) -> bool:
    return bool(np.all(rows[1:, 0] >= rows[:-1, 0]))


def _settle(columns: Int64) -> None:
    """Sort by the second column within equal values of the first."""
    keys, second = columns[:2]
    equal = keys[1:] == keys[:-1]
    rows = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    columns[:, rows] = columns[:, rows[np.lexsort((second[rows], keys[rows]))]]
