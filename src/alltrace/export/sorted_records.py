"""Puts any number of records of bytes into order in bounded memory."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.core.text import gather_records
from alltrace.export.record_bytes import Records
from alltrace.run.sorted_runs import DiskSorter, Form, read_bytes
from alltrace.trace.arrays import Int64

_Block = tuple[Int64, NDArray[np.int32], NDArray[np.uint8]]  # keys, lengths, bytes
_Place = tuple[int, int, int, int]  # records in all, records read, start of the keys, start of the bytes to come

_HELD_BYTES = 8 << 20
_ALONE_RECORDS = 1 << 13


class Sorter(DiskSorter):
    """Takes records with keys, and returns their bytes in the order of the keys; equal keys stay in input order."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Records())

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
        """The bytes of all records, in order, in blocks of whole records."""
        # `most_bytes`: the greatest size of a block of more than one record; None for as many as come at once.
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


class _Records(Form):
    def pack(self, block: _Block, at: int) -> tuple[_Place, Iterable[Any]]:
        keys, lengths, data = block
        return (len(keys), 0, at, at + 12 * len(keys)), (np.ascontiguousarray(keys), lengths, data)

    def read(self, file: int | str, place: _Place, room: int) -> tuple[_Block, _Place | None]:
        whole, done, start, at = place
        count = min(room, whole - done)
        keys = read_bytes(file, 8 * count, start + 8 * done).view(np.int64)
        lengths = read_bytes(file, 4 * count, start + 8 * whole + 4 * done).view(np.int32)
        size = int(lengths.sum())
        data = read_bytes(file, size, at)
        return (keys, lengths, data), (whole, done + count, start, at + size) if done + count < whole else None

    def key(self, block: _Block, record: int) -> int:
        return int(block[0][record])

    def count(self, block: _Block) -> int:
        return len(block[0])

    def before(self, block: _Block, bound: int) -> int:
        return int(np.searchsorted(block[0], bound))

    def cut(self, block: _Block, first: int, last: int) -> _Block:
        keys, lengths, data = block
        start = int(lengths[:first].sum())
        end = start + int(lengths[first:last].sum())
        return keys[first:last], lengths[first:last], data[start:end]

    def ordered(self, blocks: list[_Block]) -> _Block:
        """Keys, lengths and bytes of all blocks, in the order of the keys."""
        if len(blocks) == 1 and np.all(blocks[0][0][1:] >= blocks[0][0][:-1]):
            return blocks[0]
        keys, lengths, text = (np.concatenate([b[i] for b in blocks]) for i in range(3))
        order = np.argsort(keys, kind="stable")
        out = np.empty(len(text), np.uint8)
        gather_records(text, np.cumsum(lengths, dtype=np.int64) - lengths, lengths, order, out)
        return keys[order], lengths[order], out
