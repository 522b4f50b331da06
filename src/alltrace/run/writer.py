"""Writes one canonical table of one rank to one Parquet file: sorted, compact, in bounded memory.

Rows are buffered. Of a full buffer, the rows of busy tracks are written at once (`alltrace.run.track_row_groups`);
where that does not help, it is sorted and spilled to disk, and at the end the sorted buffers are merged. Rows of a
table that fits into one buffer, or with tracks that each arrive in order of time, are written to disk only once.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.run.columns import HeldColumns
from alltrace.run.row_groups import RowGroups
from alltrace.run.sorting import RowOrder, TableSorter
from alltrace.run.track_row_groups import Lanes
from alltrace.trace.arrays import extremes
from alltrace.trace.schema import Table

DEFAULT_MEMORY_BYTES = 48 * 1024 * 1024


class TableStats(NamedTuple):
    """What was written."""

    rows: int  # rows of the file
    bytes: int  # size of the file
    # the earliest point in time of any row, in the file's own time; None without rows or times
    first_start_ns: int | None
    last_end_ns: int | None  # the latest
    crossing: bool = False  # of `ranges`: whether any ends after another one of its thread in which it began
    whole: pa.Table | None = None  # all rows as they were written, if they are one row group


class PendingRows:
    """Rows of one table that wait in memory to be sorted, as held batches, joined when they are taken.

    `held`: the form of the table's rows in memory.
    """

    def __init__(self, held: HeldColumns) -> None:
        self.count: int = 0  # the number of rows
        self.nbytes: int = 0  # about what they take
        self._held = held
        self._batches: list[pa.RecordBatch] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a held batch."""
        self._batches.append(batch)
        self.count += batch.num_rows
        self.nbytes += batch.nbytes

    def look(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns of all rows, at least one, held; they stay here."""
        return self._joined([batch.select(list(names)) for batch in self._batches])

    def take(self, permutation: NDArray[np.intp] | None = None) -> pa.RecordBatch:
        """All rows, at least one, as one held batch, in the order of `permutation`; afterwards there are none."""
        rows = self._joined(self._batches)
        self._batches, self.count, self.nbytes = [], 0, 0
        return rows if permutation is None else rows.take(pa.array(permutation))

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1:
            return batches[0]
        columns = []
        for name, parts in zip(batches[0].schema.names, zip(*(b.columns for b in batches), strict=True), strict=True):
            kind = self._held.plain.field(name).type
            none = [pa.types.is_null(part.type) for part in parts]
            full = [self._held.nulls(kind, len(p)) if is_null else p for p, is_null in zip(parts, none, strict=True)]
            columns.append(pa.nulls(sum(map(len, parts))) if all(none) else pa.concat_arrays(full))
        return pa.RecordBatch.from_arrays(columns, names=batches[0].schema.names)


class TableWriter:
    """Writes one canonical table of one rank to one Parquet file, sorted by its `sort_keys`.

    The sort is stable: rows of equal keys keep the order in which they were appended; nulls sort last. In `ranges`,
    rows of equal start are sorted by descending end, and `depth` and `parent` are filled. As a context manager, the
    writer is aborted when the block is left without `finish`. `path`: the Parquet file to write; its folder must exist.
    `spill_folder`: where sorted buffers wait; made when needed. Nothing is left there. `memory_bytes`: about how much
    memory rows may take. They are buffered up to half of it, because sorting needs a copy. `encoder`: where row groups
    are encoded, such as `alltrace.run.row_groups.one_thread()`; None for a separate thread.
    """

    def __init__(
        self,
        table: Table,
        path: Path,
        spill_folder: Path,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        encoder: ThreadPoolExecutor | None = None,
    ) -> None:
        self._encoder = encoder
        self._table = table
        self._path = path
        self._spill_folder = spill_folder
        self._limit_bytes = max(1, memory_bytes // 2)
        self._held = HeldColumns(table)
        self._order = RowOrder(table)
        self._lanes = Lanes(self._order, self._held)
        self._buffer = PendingRows(self._held)
        self._rows = 0
        self._extent: tuple[int, int] | None = None
        self._sorter = TableSorter(spill_folder / f"{os.urandom(16).hex()}.spill", self._order, self._held)
        self._file: RowGroups | None = None
        self._closed = False

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        `batch`: rows with the columns of the table's `arrow_schema`, in that order; every batch may bring its
        own dictionaries. Raises `ValueError`: the columns are others, or the writer is closed.
        """
        if self._closed:
            raise ValueError(f"{self._table.name}: the writer is closed")
        if not batch.num_rows:
            return
        rows = self._held.hold(batch)
        self._note_times(rows)
        self._rows += batch.num_rows
        self._buffer.append(rows)
        if self._buffer.nbytes >= self._limit_bytes:
            self._make_room()

    def finish(self, open_end_ns: int | None = None) -> TableStats:
        """Write the file.

        `open_end_ns`: for `ranges`: when ranges that were still open ended, as far as their nesting is
        concerned; at least the latest time of any row of the table is taken. None means that they never ended.
        Returns what was written. A table without rows gives a file without rows.
        """
        try:
            if self._lanes and self._buffer.count:
                self._look_at_rest()
            if self._lanes.late:
                self._unwrite()
            output = self._output()
            if self._table.name == "ranges":
                output.nesting = self._nesting(open_end_ns)
            self._lanes.weave(self._sorted(), output)
            output.close()
            self._sorter.close()
        except BaseException:
            self.abort()
            raise
        self._closed = True
        first, last = self._extent or (None, None)
        crossing = output.nesting is not None and output.nesting.crossing
        return TableStats(self._rows, self._path.stat().st_size, first, last, crossing, output.whole)

    def abort(self) -> None:
        """Give up: remove what was written. Does nothing after `finish`."""
        if self._closed:
            return
        self._closed = True
        self._buffer = PendingRows(self._held)
        if self._file is not None:
            self._file.abandon()
            self._path.unlink(missing_ok=True)
        self._sorter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _output(self) -> RowGroups:
        if self._file is None:
            self._file = RowGroups(self._table, self._path, self._held, self._encoder)
        return self._file

    def _nesting(self, open_end_ns: int | None) -> Any:
        from alltrace.run.range_parents import Nesting

        if open_end_ns is not None and self._extent is not None:
            open_end_ns = max(open_end_ns, self._extent[1])
        return Nesting(self._held.code("kind", "pushpop"), open_end_ns)

    def _note_times(self, batch: pa.RecordBatch) -> None:
        for name in self._table.time_columns():
            low, high = extremes(batch.column(name))
            if low is None or high is None:
                continue
            first, last = self._extent or (low, high)
            self._extent = min(first, low), max(last, high)

    def _make_room(self) -> None:
        """Write of a full buffer what can be written ahead, and put the rest aside if it is much."""
        rows = self._sorted_buffer()
        if self._lanes or self._lanes.open:
            stretches = self._lanes.look(self._keys(rows))
            if self._lanes.open:
                for rest in self._lanes.write(rows, stretches, self._output()):
                    self._buffer.append(rest)
                if self._buffer.nbytes <= self._limit_bytes // 2:
                    return
                self._lanes.open = False  # a lane could overtake the spilled rows
                rows = self._sorted_buffer()
        self._spill_folder.mkdir(parents=True, exist_ok=True)
        self._sorter.add(rows)

    def _look_at_rest(self) -> None:
        """See whether the rows that are left are late for a lane."""
        rows = self._sorted_buffer()
        self._lanes.look(self._keys(rows))
        self._buffer.append(rows)

    def _keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._held.full(rows.select(self._order.columns))

    def _unwrite(self) -> None:
        """Take what was written ahead back, to be merged with the rows that came late."""
        self._output().close()
        self._file = None
        self._spill_folder.mkdir(parents=True, exist_ok=True)
        moved = self._path.rename(self._spill_folder / f"{os.urandom(16).hex()}.parquet")
        self._sorter.add_file(moved, self._lanes.written())

    def _sorted_buffer(self) -> pa.RecordBatch:
        """The buffered rows, in order, as one batch; empties the buffer."""
        permutation = self._order.permutation(self._held.full(self._buffer.look(self._order.columns)))
        return self._buffer.take(permutation)

    def _sorted(self) -> Iterator[list[pa.RecordBatch]]:
        rows = self._sorted_buffer() if self._buffer.count else None
        if not self._sorter.has_rows:
            if rows is not None:
                yield [self._held.full(rows)]
            return
        if rows is not None:
            self._sorter.add(rows)
        yield from self._sorter.blocks()
