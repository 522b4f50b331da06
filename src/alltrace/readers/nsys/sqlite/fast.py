"""Rows of a table by decoding its pages."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.core import sqlite as core
from alltrace.readers.nsys.sqlite.columns import Columns
from alltrace.readers.nsys.sqlite.pages import PROBLEMS, TreePages
from alltrace.readers.nsys.sqlite.schema import Table
from alltrace.trace.arrays import Int64

_FLUSH_BYTES = 64 << 20  # of text in a batch, or of long rows at a time
_FEW_ROWS_OF_A_PAGE = 8


class Scan:
    """One pass over a table.

    `tree`: its pages. `table`: its columns. `types`: the columns wanted, with the type to deliver. `batch_rows`: the
    most rows of a batch. `stopped`: after `batches` has ended: whether a row came that only SQLite can read.
    `last_rowid`: the number of the last row handed out; None before the first.
    """

    def __init__(self, tree: TreePages, table: Table, types: Mapping[str, pa.DataType], batch_rows: int) -> None:
        self.stopped: bool = False
        self.last_rowid: int | None = None
        self._tree = tree
        self._types = types
        self._batch_rows = batch_rows
        self._rowid_output = -1
        self._columns: Columns
        wanted = [table.columns[name] for name in types]
        # For each field of a record: the column that it goes to, or -1; whether it has a default; whether it may not be
        # null
        self._fields = np.full((table.fields, 3), (-1, 0, 0), np.int64)
        for column in table.columns.values():
            self._fields[column.field] = -1, column.has_default, column.not_null and not column.is_rowid
        for output, column in enumerate(wanted):
            if column.is_rowid:
                self._rowid_output = output
            else:
                self._fields[column.field, 0] = output

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, until the end or the first that only SQLite can read. Raises `InputError`: the table is corrupt."""
        tree, header = self._tree, self._tree.header
        leaves, bounds = tree.leaves()
        alone = len(leaves) == 1 and tree.root_kind() != core.INTERIOR
        most = (header.usable - 8) // 6
        capacity = min(self._batch_rows, len(leaves) * most)
        # who wants few rows at a time may want no more of them
        at_once = max(1, min(tree.chunk_pages, len(leaves), self._batch_rows // _FEW_ROWS_OF_A_PAGE))
        rows = np.empty((4, at_once * most), np.int64)
        start, size, rowid, overflow = rows
        self._columns = Columns(self._types, capacity)
        info = tree.info
        info[:] = 0
        done = 0
        for pages, buffer in tree.chunks(leaves, at_once):
            count = core.cells(
                buffer,
                len(pages),
                header.page_size,
                header.usable,
                alone,
                bounds[done:],
                start,
                size,
                rowid,
                overflow,
                info,
            )
            if count < 0:
                raise tree.corrupt_page(pages)
            done += len(pages)
            low = 0
            while low < count:
                high, whole = self._with_overflow(buffer, start, size, overflow, low, count)
                yield from self._decode(whole, start, size, rowid, low, high)
                if self.stopped:
                    return
                low = high
        if self._columns.rows:
            yield self._columns.batch()

    def _with_overflow(
        self,
        buffer: NDArray[np.uint8],
        start: Int64,
        size: Int64,
        overflow: Int64,
        low: int,
        count: int,
    ) -> tuple[int, NDArray[np.uint8]]:
        """Assemble the long rows from `low` on, up to some size.

        Returns one past the last row that is now whole, and the buffer with them, into which their `start` points.
        """
        long = np.flatnonzero(overflow[low:count]) + low
        if not len(long):
            return count, buffer
        parts, used, high = [buffer], len(buffer), count
        for row in long.tolist():
            length, begin = int(size[row]), int(start[row])
            if used > len(buffer) and used - len(buffer) + length > _FLUSH_BYTES:
                high = row
                break
            local = core.local_size(length, self._tree.header.usable)
            whole = self._tree.overflowing(buffer[begin : begin + local], length, int(overflow[row]))
            parts.append(np.frombuffer(whole, np.uint8))
            start[row] = used
            used += length
        return high, np.concatenate(parts)

    def _decode(
        self,
        buffer: NDArray[np.uint8],
        start: Int64,
        size: Int64,
        rowid: Int64,
        low: int,
        high: int,
    ) -> Iterator[pa.RecordBatch]:
        info = self._tree.info
        texts = int((self._columns.outputs[:, 0] == core.BYTES).sum())
        text_at, text_size = np.empty((2, texts, min(high - low, self._columns.capacity)), np.int64)
        while low < high:
            columns = self._columns
            end = min(high, low + columns.capacity - columns.rows)
            fields = np.hstack((self._fields, columns.outputs[self._fields[:, 0]]))
            rowid_kind, rowid_begin = columns.outputs[self._rowid_output, :2] if self._rowid_output >= 0 else (-1, 0)
            done = core.decode(
                buffer, start, size, rowid, low, end, fields, rowid_kind, rowid_begin, columns.rows,
                text_at, text_size, columns.nulls, info, *columns.views,
            )  # fmt: skip
            stopped = done < end - low
            if stopped and info[0] != core.SURPRISE:
                raise self._tree.corrupt(f"row {rowid[low + done]} {PROBLEMS[int(info[0])]}")
            if done and not columns.room_for(text_size[:, :done].sum(axis=1)):
                # a batch with nothing in it has room: a chunk and its long rows are fewer bytes than Arrow can count
                yield from self._flush()
                continue
            columns.take_text(buffer, text_at, text_size, done)
            columns.rows += done
            if done:
                self.last_rowid = int(rowid[low + done - 1])
            low += done
            self.stopped = stopped
            if columns.rows == columns.capacity or columns.text_bytes() >= _FLUSH_BYTES or self.stopped:
                yield from self._flush()
            if self.stopped:
                return

    def _flush(self) -> Iterator[pa.RecordBatch]:
        full = self._columns
        if full.rows:
            yield full.batch()
        self._columns = Columns(self._types, full.capacity)
