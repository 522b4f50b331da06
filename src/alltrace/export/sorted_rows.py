"""Puts any number of rows of whole numbers into order in bounded memory."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.core.text import columns_in_order
from alltrace.run.sorted_runs import DiskSorter, RunFile, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from alltrace.trace.arrays import Int64

_HELD_ROWS = 1 << 18
_ALONE_ROWS = 1 << 13
_FEW_EQUAL = 32


class RowSorter(DiskSorter):
    """Takes rows of integers, and returns them in the order of their first one; equal ones stay in input order.

    Args:
        path: As in `DiskSorter`.
        columns: The numbers of a row, two or more.
    """

    def __init__(self, path: Path, columns: int) -> None:
        super().__init__(path)
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
        """All rows, block by block: int64 arrays (n, columns) and of n places of its rows in order.

        Rows with equal first numbers are in one block.
        """
        yield from self._in_order()

    def blocks(self) -> Iterator[tuple[Int64, ...]]:
        """The columns in the order of the first two, in blocks; wholly equal rows as they came.

        Rows with equal first numbers are in one block.
        """
        for rows, order in self.ordered():
            columns = np.empty((self._columns, len(rows)), np.int64)
            if columns_in_order(rows, order, _FEW_EQUAL, columns):
                columns[:] = np.take(rows, order, axis=0).T
                _settle(columns)
            yield tuple(columns)

    def _run_file(self, path: Path) -> RunFile:
        return _RunFile(path)

    def _runs_of(self, file: int | str, places: list[Any]) -> list[_Run]:
        return [_Run(file, self._columns, *place) for place in places]

    def _ordered(self, parts: list[Int64]) -> tuple[Int64, Int64]:
        """The rows of all parts, and their places in the order of the keys."""
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(parts) == 1 and _sorted(rows):
            return rows, np.arange(len(rows))
        return rows, np.argsort(np.ascontiguousarray(rows[:, 0]), kind="stable")

    def _part(self, block: tuple[Int64, Int64]) -> Int64:
        rows, order = block
        return np.take(rows, order, axis=0)


class _RunFile(RunFile):
    def add(self, parts: Iterable[Int64]) -> None:
        first, start, count = 0, self.end, 0
        for rows in parts:
            first = first if count else int(rows[0, 0])
            count += len(rows)
            self.write(rows.reshape(-1).view(np.uint8).data)
        if count:
            self.places.append((first, start, count))


class _Run:
    """A sorted run; see `SortedRun`."""

    def __init__(self, file: int | str, columns: int, first: int, start: int, count: int) -> None:
        self.first = first
        self._file, self._next, self._left = file, start, count
        self._rows = np.empty((0, columns), np.int64)
        self.keys = self._rows[:, 0]

    @property
    def unread(self) -> bool:
        return self._left > 0

    @property
    def head(self) -> int:
        return int(self.keys[0])

    @property
    def last(self) -> int:
        return int(self.keys[-1])

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, room: int) -> None:
        count = min(room - len(self._rows), self._left)
        if count <= 0:
            return
        columns = self._rows.shape[1]
        rows = read_bytes(self._file, 8 * columns * count, self._next).view(np.int64).reshape(count, columns)
        self._next += 8 * columns * count
        self._left -= count
        self._rows = np.concatenate((self._rows, rows)) if len(self._rows) else rows
        self.keys = self._rows[:, 0]

    def take(self, bound: int | None) -> Int64:
        count = len(self.keys) if bound is None else bisect.bisect_left(self.keys, bound)
        taken, self._rows = self._rows[:count], self._rows[count:]
        self.keys = self._rows[:, 0]
        return taken


def _sorted(rows: Int64) -> bool:
    return bool(np.all(rows[1:, 0] >= rows[:-1, 0]))


def _settle(columns: Int64) -> None:
    """Sort by the second column within equal values of the first."""
    keys, second = columns[:2]
    equal = keys[1:] == keys[:-1]
    rows = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    columns[:, rows] = columns[:, rows[np.lexsort((second[rows], keys[rows]))]]
