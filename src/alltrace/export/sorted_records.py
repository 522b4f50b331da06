"""Puts any number of records of bytes into order in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.core.text import gather_records
from alltrace.run.sorted_runs import DiskSorter, RunFile, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from alltrace.export.record_bytes import Records
    from alltrace.trace.arrays import Int64

    Int32 = NDArray[np.int32]
    Bytes = NDArray[np.uint8]

_HELD_BYTES = 8 << 20
_ALONE_RECORDS = 1 << 13


class Sorter(DiskSorter):
    """Takes records with keys in any order, and returns their bytes in the order of the keys; equal keys stay in input order."""

    def add(self, keys: Int64, records: Records) -> None:
        """Add n records with their int64 keys; many that are in order already are the cheapest."""
        if not len(keys):
            return
        part = keys, records.lengths.astype(np.int32), records.data
        if len(keys) >= _ALONE_RECORDS and np.all(keys[1:] >= keys[:-1]):
            self._flush()
            self._add_run([part])
            return
        self._held.append(part)
        self._size += len(records.data) + 12 * len(keys)
        if self._size >= _HELD_BYTES:
            self._flush()

    def blocks(self, most_bytes: int | None = None) -> Iterator[memoryview]:
        """The bytes of all records, in order, in blocks of whole records.

        Args:
            most_bytes: The greatest size of a block of more than one record; None for as many as come at once.
        """
        for _, lengths, data in self._in_order():
            if most_bytes is None or len(data) <= most_bytes:
                yield data.data
                continue
            ends = np.cumsum(lengths, dtype=np.int64)
            first = 0
            while first < len(data):
                one, fitting = np.searchsorted(ends, (first, first + most_bytes), "right").tolist()
                end = int(ends[max(one, fitting - 1)])
                yield data[first:end].data
                first = end

    def _run_file(self, path: Path) -> RunFile:
        return _RunFile(path)

    def _runs_of(self, file: int | str, places: list[Any]) -> list[_Run]:
        return [_Run(file, first, blocks) for first, blocks in places]

    def _ordered(self, parts: list[tuple[Int64, Int32, Bytes]]) -> tuple[Int64, Int32, Bytes]:
        """Keys, lengths and bytes of all parts, in the order of the keys."""
        if len(parts) == 1 and np.all(parts[0][0][1:] >= parts[0][0][:-1]):
            return parts[0]
        keys, lengths, text = (np.concatenate([p[i] for p in parts]) for i in range(3))
        order = np.argsort(keys, kind="stable")
        out = np.empty(len(text), np.uint8)
        gather_records(text, np.cumsum(lengths, dtype=np.int64) - lengths, lengths, order, out)
        return keys[order], lengths[order], out


class _RunFile(RunFile):
    """A run is one or more blocks of keys, lengths and bytes."""

    def add(self, parts: Iterable[tuple[Int64, Int32, Bytes]]) -> None:
        first, blocks = 0, list[tuple[int, int]]()
        for keys, lengths, data in parts:
            first = first if blocks else int(keys[0])
            blocks.append((len(keys), self.end))
            for part in (np.ascontiguousarray(keys), lengths, data):
                self.write(part.view(np.uint8).data)
        if blocks:
            self.places.append((first, blocks))


class _Run:
    """A sorted run; see `SortedRun`."""

    def __init__(self, file: int | str, first: int, blocks: list[tuple[int, int]]) -> None:
        self.first = first
        self._file, self._blocks = file, blocks
        self._block = self._next = self._data = 0
        self.keys = np.empty(0, np.int64)
        self.lengths = np.empty(0, np.int32)
        self.text = np.empty(0, np.uint8)

    @property
    def unread(self) -> bool:
        return self._block < len(self._blocks)

    @property
    def head(self) -> int:
        return int(self.keys[0])

    @property
    def last(self) -> int:
        return int(self.keys[-1])

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, room: int) -> None:
        while len(self.keys) < room and self.unread:
            whole, start = self._blocks[self._block]
            count = min(room - len(self.keys), whole - self._next)
            keys = read_bytes(self._file, 8 * count, start + 8 * self._next).view(np.int64)
            lengths = read_bytes(self._file, 4 * count, start + 8 * whole + 4 * self._next).view(np.int32)
            size = int(lengths.sum())
            text = read_bytes(self._file, size, start + 12 * whole + self._data)
            self._next += count
            self._data += size
            if self._next == whole:
                self._block, self._next, self._data = self._block + 1, 0, 0
            if len(self.keys):
                keys, lengths = np.concatenate((self.keys, keys)), np.concatenate((self.lengths, lengths))
                text = np.concatenate((self.text, text))
            self.keys, self.lengths, self.text = keys, lengths, text

    def take(self, bound: int | None) -> tuple[Int64, Int32, Bytes]:
        count = len(self.keys) if bound is None else int(np.searchsorted(self.keys, bound))
        size = int(self.lengths[:count].sum())
        taken = self.keys[:count], self.lengths[:count], self.text[:size]
        self.keys, self.lengths, self.text = self.keys[count:], self.lengths[count:], self.text[size:]
        return taken
