"""Puts any number of rows of whole numbers into order in bounded memory."""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.core.text import columns_in_order
from alltrace.export.external_sort import merged, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]

_HELD_ROWS = 1 << 18
_ALONE_ROWS = 1 << 13
_MOST_RUNS = 4_000
_FEW_EQUAL = 32


class RowSorter:
    """Takes rows of whole numbers, and gives them in the order of their first one; equal ones as they came.

    Args:
        path: A file to keep sorted runs in; it and those that its name is the beginning of are removed at the end of the block.
        columns: The numbers of a row, two or more.
    """

    def __init__(self, path: Path, columns: int) -> None:
        self._path, self._columns = path, columns
        self._held: list[Int64] = []
        self._size = 0
        self._levels: list[_Level] = []  # runs, then runs of merged runs, and so on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for level in self._levels:
            level.close()

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
            self._level(0).add([rows])
            self._merge_runs(0)
            return
        self._held.append(rows)
        self._size += len(rows)
        if self._size >= _HELD_ROWS:
            self._flush()

    def ordered(self) -> Iterator[tuple[Int64, Int64]]:
        """All rows, block by block: int64 arrays (n, columns) and of n places of its rows in order.

        Rows whose first number is equal are in one block.
        """
        if not self._levels:
            if self._held:
                yield _ordered(self._taken())
            return
        self._flush()
        yield from merged([run for level in reversed(self._levels) for run in level.runs()], _ordered)

    def blocks(self) -> Iterator[tuple[Int64, ...]]:
        """The columns in the order of the first two, in blocks; wholly equal rows as they came.

        Rows whose first number is equal are in one block.
        """
        for rows, order in self.ordered():
            columns = np.empty((self._columns, len(rows)), np.int64)
            if columns_in_order(rows, order, _FEW_EQUAL, columns):
                columns[:] = np.take(rows, order, axis=0).T
                _settle(columns)
            yield tuple(columns)

    def _taken(self) -> list[Int64]:
        held, self._held, self._size = self._held, [], 0
        return held

    def _flush(self) -> None:
        """Make a run of what is held."""
        if self._held:
            rows, order = _ordered(self._taken())
            self._level(0).add([np.take(rows, order, axis=0)])
            self._merge_runs(0)

    def _level(self, number: int) -> _Level:
        if number == len(self._levels):
            self._levels.append(_Level(self._path.with_name(f"{self._path.name}.{number}"), self._columns))
        return self._levels[number]

    def _merge_runs(self, number: int) -> None:
        """Make one run of a level's runs once they are too many to be read at once."""
        level = self._levels[number]
        if len(level.places) < _MOST_RUNS:
            return
        self._level(number + 1).add(np.take(rows, order, axis=0) for rows, order in merged(level.runs(), _ordered))
        level.clear()
        self._merge_runs(number + 1)


class _Level:
    """A file of sorted runs."""

    def __init__(self, path: Path, columns: int) -> None:
        self._path, self._columns = path, columns
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = 0
        self.places: list[tuple[int, int, int]] = []  # the first key of a run, where it starts in the file, its rows

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def runs(self) -> list[_Run]:
        return [_Run(self._file, self._columns, *place) for place in self.places]

    def add(self, parts: Any) -> None:
        """Append a run that is given in parts."""
        first, start, count = None, self._end, 0
        for rows in parts:
            first = int(rows[0, 0]) if first is None else first
            count += len(rows)
            view = rows.reshape(-1).view(np.uint8).data
            self._end += len(view)
            while len(view):
                view = view[os.write(self._file, view) :]
        if first is not None:
            self.places.append((first, start, count))

    def clear(self) -> None:
        self.places = []
        self._end = 0
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)


class _Run:
    """A sorted run, whose first key is `first`, with the rows of it that are in memory."""

    def __init__(self, file: int, columns: int, first: int, start: int, count: int) -> None:
        self.first = first
        self._file, self._next, self._left = file, start, count
        self._rows = np.empty((0, columns), np.int64)
        self.keys = self._rows[:, 0]

    @property
    def unread(self) -> bool:
        return self._left > 0

    @property
    def last(self) -> int:
        """The last key that is held."""
        return int(self.keys[-1])

    def read(self, room: int) -> None:
        """Read on until `room` rows are held."""
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
        """The held rows with keys below `bound`, which are then no longer held; all of them for None."""
        count = len(self.keys) if bound is None else bisect.bisect_left(self.keys, bound)
        taken, self._rows = self._rows[:count], self._rows[count:]
        self.keys = self._rows[:, 0]
        return taken


def _sorted(rows: Int64) -> bool:
    return bool(np.all(rows[1:, 0] >= rows[:-1, 0]))


def _ordered(parts: Sequence[Int64]) -> tuple[Int64, Int64]:
    """The rows of all parts, and their places in the order of the keys."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(parts) == 1 and _sorted(rows):
        return rows, np.arange(len(rows))
    return rows, np.argsort(np.ascontiguousarray(rows[:, 0]), kind="stable")


def _settle(columns: Int64) -> None:
    """Sort by the second column where the first is equal."""
    keys, second = columns[:2]
    equal = keys[1:] == keys[:-1]
    rows = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    columns[:, rows] = columns[:, rows[np.lexsort((second[rows], keys[rows]))]]
