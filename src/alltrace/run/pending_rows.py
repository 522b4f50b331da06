"""Rows that wait in memory to be sorted: held batches, copied into one as they arrive.

A batch of a reader can keep much more memory alive than its rows need, and many small arrays would have to be copied
together before a sort anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.run.columns import HeldColumns
from alltrace.trace.reusable_buffers import Block, Blocks

_BLOCKS = Blocks(12 << 20)
_SLACK_ROWS = 1 << 16  # the last batch goes past what is expected


class Rows:
    """Held rows of one table, copied into one.

    `held`: the form of the table's rows in memory. `expected_bytes`: about how many bytes arrive before the rows
    are taken.
    """

    def __init__(self, held: HeldColumns, expected_bytes: int) -> None:
        self.count: int = 0  # the number of rows
        self.nbytes: int = 0  # about what they take
        self._held = held
        self._expected_bytes = expected_bytes
        self._capacity = 0
        self._columns: list[_Column] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a held batch."""
        total = self.count + batch.num_rows
        if not self.count:
            self._columns = [_Column(field.type) for field in self._held.plain]
            # memory that is never written to costs nothing
            self._capacity = (
                _SLACK_ROWS + batch.num_rows + int(self._expected_bytes / max(1.0, batch.nbytes / batch.num_rows))
            )
        elif total > self._capacity:
            self._capacity = max(total, 2 * self._capacity)
        for column, values in zip(self._columns, batch.columns, strict=True):
            column.append(values, self.count, self._capacity)
        self.count = total
        self.nbytes += batch.nbytes

    def look(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns of all rows, at least one, held; they stay here, the batch must be released first."""
        columns = [self._columns[self._held.schema.get_field_index(n)] for n in names]
        return pa.RecordBatch.from_arrays([c.array(self.count) for c in columns], names=list(names))

    def take(self, permutation: NDArray[np.intp] | None = None) -> pa.RecordBatch:
        """All rows, at least one, as one held batch, in the order of `permutation`; afterwards there are none."""
        columns, self._columns = self._columns, []
        count = self.count
        self.count = self.nbytes = 0
        arrays = [c.array(count) if permutation is None else c.taken(permutation) for c in columns]
        return pa.RecordBatch.from_arrays(arrays, names=self._held.schema.names)


class _Column:
    """One column: values and whether they are valid; or, where values have no fixed width, the arrays as they came."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._fixed = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        # by name: to_pandas_dtype needs pandas in some releases
        self._dtype = np.dtype(str(kind).replace("double", "float64")) if self._fixed else np.dtype(np.uint8)
        self._block: Block | None = None
        self._values: NDArray[Any] | None = None
        self._valid: NDArray[np.bool_] | None = None
        self._parts: list[pa.Array] = []

    def append(self, values: pa.Array, before: int, capacity: int) -> None:
        if not self._fixed:
            self._parts.append(values)
            return
        end = before + len(values)
        absent = pa.types.is_null(values.type)
        if self._values is None:
            if absent:
                return
            self._block, self._values = _lent(capacity, self._dtype)
            if before:
                self._values[:before] = 0
                self._valid = _flags(capacity, 0)
        elif end > len(self._values):
            used = self._values[:before]
            self._block, self._values = _lent(capacity, self._dtype)
            self._values[:before] = used
            self._valid = None if self._valid is None else _grown(self._valid, before, capacity)
        if absent or values.null_count:
            if self._valid is None:
                self._valid = _flags(capacity, before)
            self._valid[before:end] = False if absent else pc.is_valid(values).to_numpy(zero_copy_only=False)
        elif self._valid is not None:
            self._valid[before:end] = True
        if absent:
            self._values[before:end] = 0
        else:
            data = np.frombuffer(values.buffers()[1], self._values.dtype)
            self._values[before:end] = data[values.offset : values.offset + len(values)]

    def array(self, count: int) -> pa.Array:
        if not self._fixed:
            return self._joined()
        if self._block is None:
            return pa.nulls(count)
        bits = None if self._valid is None else pa.py_buffer(np.packbits(self._valid[:count], bitorder="little"))
        return pa.Array.from_buffers(self._kind, count, [bits, self._block.buffer(0, count * self._dtype.itemsize)])

    def taken(self, permutation: NDArray[np.intp]) -> pa.Array:
        count = len(permutation)
        if not self._fixed or self._values is None:
            return self.array(count) if self._fixed else pc.take(self._joined(), pa.array(permutation))
        block, values = _lent(count, self._dtype)
        # "clip", because checking every index takes a copy of the values; a permutation has none that are wrong
        self._values[:count].take(permutation, out=values, mode="clip")
        bits = None if self._valid is None else pa.py_buffer(np.packbits(self._valid[permutation], bitorder="little"))
        return pa.Array.from_buffers(self._kind, count, [bits, block.buffer(0, count * self._dtype.itemsize)])

    def _joined(self) -> pa.Array:
        if all(pa.types.is_null(p.type) for p in self._parts):
            return pa.nulls(sum(len(p) for p in self._parts))
        return pa.concat_arrays([pc.cast(p, self._kind) for p in self._parts])


def _lent(count: int, kind: np.dtype[Any]) -> tuple[Block, NDArray[Any]]:
    """A block, and space for `count` values in it."""
    block = _BLOCKS.lend(count * kind.itemsize)
    return block, block.bytes[: count * kind.itemsize].view(kind)


def _flags(capacity: int, valid: int) -> NDArray[np.bool_]:
    """Space for flags, the first `valid` of them set."""
    flags = np.zeros(capacity, np.bool_)
    flags[:valid] = True
    return flags


def _grown(values: NDArray[Any], used: int, capacity: int) -> NDArray[Any]:
    grown = np.empty(capacity, values.dtype)
    grown[:used] = values[:used]
    return grown
