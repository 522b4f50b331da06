"""The columns of one batch while they are filled by compiled loops, and the Arrow batch that they become."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.core import sqlite as core
from alltrace.trace.arrays import Int64
from alltrace.trace.names import text_of_bytes
from alltrace.trace.reusable_buffers import Blocks

_BLOCKS = Blocks(8 << 20)
_ALIGN = 64
_MOST_TEXT = 2**31 - 1  # of one column of one batch: Arrow's offsets are 32-bit

KINDS = {
    pa.int8(): (core.INT8, 1), pa.int16(): (core.INT16, 2), pa.int32(): (core.INT32, 4), pa.int64(): (core.INT64, 8),
    pa.float64(): (core.FLOAT64, 8), pa.string(): (core.BYTES, 0), pa.binary(): (core.BYTES, 0),
}  # fmt: skip


class Columns:
    """The columns of one batch of at most `capacity` rows, in one block of memory.

    `types`: the Arrow type of each column, by name, in order. `capacity`: the most rows. `rows`: how many there are so
    far. `outputs`: shape (columns, 3): what each takes (`INT8` to `BYTES` of `alltrace.core.sqlite`); where its values
    begin in the block, in items of its type, or which text column it is; the byte at which its validity bits begin.
    `views`: the block as integers of 8, 16, 32 and 64 bits, and as bytes. `nulls`: how many nulls each has so far.
    """

    def __init__(self, types: Mapping[str, pa.DataType], capacity: int) -> None:
        self._types = dict(types)
        self.capacity = capacity
        self.rows = 0
        self.outputs: Int64 = np.zeros((len(types), 3), np.int64)
        self._begins: list[tuple[int, int]] = []
        size = texts = 0
        for column, wanted in enumerate(types.values()):
            kind, width = KINDS[wanted]
            bits_at = size
            size += _padded((capacity + 7) // 8)
            values_at = size
            # One line more: columns that begin a power of two apart would compete for the same lines of the cache
            size += _padded(capacity * width) + _ALIGN
            place = texts if kind == core.BYTES else values_at // width
            texts += kind == core.BYTES
            self.outputs[column] = kind, place, bits_at
            self._begins.append((bits_at, values_at))
        self._lent = _BLOCKS.lend(size)
        block = self._lent.bytes[:size]
        for bits_at, _ in self._begins:
            block[bits_at : bits_at + (capacity + 7) // 8] = 0xFF
        self.views: tuple[NDArray[Any], ...] = (
            block.view(np.int8),
            block.view(np.int16),
            block.view(np.int32),
            block.view(np.int64),
            block,
        )
        self.nulls: Int64 = np.zeros(len(types), np.int64)
        self._texts = [_Text(capacity) for _ in range(texts)]

    def text_bytes(self) -> int:
        """Bytes of text so far, of all columns."""
        return sum(text.used for text in self._texts)

    def room_for(self, sizes: Int64) -> bool:
        """Whether text of `sizes` bytes, one for each text column, still fits."""
        return all(text.used + int(size) <= _MOST_TEXT for text, size in zip(self._texts, sizes, strict=True))

    def take_text(self, buffer: NDArray[np.uint8], at: Int64, size: Int64, count: int) -> None:
        """Copy the text of the `count` rows after `rows` out of `buffer`.

        `buffer`: the bytes. `at`: where each value begins; shape (text columns, at least count). `size`: the bytes of
        each; the same shape. `count`: rows.
        """
        for index, text in enumerate(self._texts):
            text.take(buffer, at[index], size[index], count, self.rows)

    def batch(self) -> pa.RecordBatch:
        """The rows so far; nothing may be added afterwards."""
        arrays = []
        for column, wanted in enumerate(self._types.values()):
            bits_at, values_at = self._begins[column]
            valid = None
            if self.nulls[column]:
                valid = self._lent.buffer(bits_at, (self.rows + 7) // 8)
            if self.outputs[column, 0] == core.BYTES:
                text = self._texts[self.outputs[column, 1]]
                arrays.append(text.array(wanted, self.rows, valid))
            else:
                values = self._lent.buffer(values_at, self.rows * KINDS[wanted][1])
                arrays.append(pa.Array.from_buffers(wanted, self.rows, [valid, values]))
        return pa.RecordBatch.from_arrays(arrays, names=list(self._types))


class _Text:
    def __init__(self, capacity: int) -> None:
        self.used = 0
        self._offsets = np.zeros(capacity + 1, np.int32)
        self._data = np.empty(0, np.uint8)
        self._ascii = True

    def take(self, buffer: NDArray[np.uint8], at: Int64, size: Int64, count: int, row: int) -> None:
        more = int(size[:count].sum())
        if self.used + more > len(self._data):
            grown = np.empty(max(self.used + more, min(2 * len(self._data), _MOST_TEXT)), np.uint8)
            grown[: self.used] = self._data[: self.used]
            self._data = grown
        self._ascii &= core.gather(buffer, at, size, count, self._offsets, row, self._data)
        self.used += more

    def array(self, wanted: pa.DataType, rows: int, valid: Any) -> pa.Array:
        offsets, data = pa.py_buffer(self._offsets[: rows + 1]), pa.py_buffer(self._data[: self.used])
        texts = pa.Array.from_buffers(wanted, rows, [valid, offsets, data])
        if wanted == pa.binary() or self._ascii:
            return texts
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raw = pa.Array.from_buffers(pa.binary(), rows, [valid, offsets, data])
            return as_text(raw.to_pylist())
        return texts


def as_text(values: list[bytes | None]) -> pa.Array:
    """A string column of `values`, with what is not UTF-8 escaped."""
    return pa.array([None if value is None else text_of_bytes(value) for value in values], pa.string())


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
