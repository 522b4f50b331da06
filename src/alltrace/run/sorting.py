"""The order of rows in a file of a run: keys, a cheap stable sort, and the sorter of more rows than memory holds.

A key column becomes one or two integer arrays that compare in the order of the rows: whether the value is null (nulls last), and
the value. Sorting looks before it works: rows of a source usually come in order of time, so that a stable sort on the small track
codes is all there is to do.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.sorted_runs import DiskSorter, RunFile, read_bytes
from alltrace.trace.arrays import extremes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from alltrace.run.columns import HeldColumns
    from alltrace.trace.schema import Table

    Keys = list[NDArray[Any]]

INT64_MAX = np.iinfo(np.int64).max
BLOCK_BYTES = 512 * 1024
MIN_BLOCK_ROWS = 64
_MAX_DIRECT = 1 << 16


class RowOrder:
    """The order of the rows of one table: by its track, by time, and for `ranges` by end, the later one first.

    With that last key an enclosing range comes before the ranges it encloses. An open range (end null) counts as longer than any
    other of its start, and an end before the start counts as the start.

    Attributes:
        tracks: The track columns.
        time: The column of time, or None.
        longest_first: Whether rows of equal start are sorted by descending end.
    """

    def __init__(self, table: Table) -> None:
        self.tracks: tuple[str, ...] = table.track
        self.time: str | None = table.order
        self.longest_first: bool = table.name == "ranges"

    @property
    def columns(self) -> list[str]:
        """The columns that decide the order."""
        names = [*self.tracks, *([self.time] if self.time else [])]
        return [*names, "end"] if self.longest_first else names

    def permutation(self, rows: pa.RecordBatch) -> NDArray[np.intp] | None:
        """The stable permutation that puts `rows` in order, or None when they are."""
        count = rows.num_rows
        if count < 2:
            return None
        codes, limit = self._codes(rows)
        if codes is not None and limit <= _MAX_DIRECT:
            codes = codes.astype(np.uint16)  # sorted by counting, and a quarter to move
        order: NDArray[np.intp] | None = None
        if codes is not None and bool((codes[1:] < codes[:-1]).any()):
            order = np.argsort(codes, kind="stable")
            codes = codes[order]
        if self.time is None:
            return order
        time = _in_order(_values(rows.column(self.time)), order)
        early = time[1:] < time[:-1]
        longest = None
        if self.longest_first and (same := time[1:] == time[:-1]).any():
            longest = _in_order(_longest_first(rows), order)
            early |= same & (longest[1:] < longest[:-1])
        if codes is not None:
            early &= codes[1:] == codes[:-1]
        wrong = np.flatnonzero(early)
        if not len(wrong):
            return order
        if self.longest_first and longest is None:
            longest = _in_order(_longest_first(rows), order)
        times = [time] if longest is None else [time, longest]
        if order is None:
            order = np.arange(count)
        for first, last in _stretches(codes, wrong, count):
            local = _stable([t[first:last] for t in times])
            order[first:last] = order[first:last][local]
        return order

    def keys(self, rows: pa.RecordBatch) -> Keys:
        """The arrays that the rows are compared by, first array first; for the merge of sorted blocks."""
        arrays = self.track_keys(rows)
        if self.time is not None:
            arrays.append(_values(rows.column(self.time)))
        if self.longest_first:
            arrays.append(_longest_first(rows))
        return arrays

    def track_keys(self, rows: pa.RecordBatch) -> Keys:
        """Those of `keys` that distinguish the tracks; rows without a time are a separate track."""
        arrays: Keys = []
        for name in self.tracks:
            column = rows.column(name)
            arrays += [_null_flags(column), _values(column)]
        if self.time is not None:
            arrays.append(_null_flags(rows.column(self.time)))
        return arrays

    def _codes(self, rows: pa.RecordBatch) -> tuple[NDArray[Any] | None, int]:
        """Small integers in the order of the tracks, nulls last, and their limit; rows without a time sort last in a track."""
        codes: NDArray[Any] | None = None
        limit = 1
        parts = [_column_codes(rows.column(name)) for name in self.tracks]
        if self.time is not None:
            column = rows.column(self.time)
            if column.null_count:
                parts.append((_null_flags(column).astype(np.int64), 2))
        for part, part_limit in parts:
            if part_limit == 1:
                continue
            if codes is None:
                codes, limit = part, part_limit
                continue
            # the product fits: neither factor is much above the number of rows
            codes = codes.astype(np.int64, copy=False) * part_limit + part
            limit *= part_limit
            if limit > _MAX_DIRECT:
                codes, limit = _compact(codes)
        return codes, limit


class TableSorter(DiskSorter):
    """Puts sorted batches of rows of a table on disk, and returns all rows in order; rows of equal keys stay in input order.

    Args:
        path: As in `DiskSorter`.
        order: The order of the rows.
        held: The form of rows in memory.
    """

    most_runs = 64

    def __init__(self, path: Path, order: RowOrder, held: HeldColumns) -> None:
        super().__init__(path)
        self._order = order
        self._columns = held

    @property
    def has_rows(self) -> bool:
        """Whether rows are on disk."""
        return bool(self._levels or self._others)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add sorted rows in their form in memory."""
        self._add_run([[rows]])

    def blocks(self) -> Iterator[list[pa.RecordBatch]]:
        """All rows in order, in pieces: mostly of one run, where the runs do not overlap."""
        yield from self._in_order()

    def close(self) -> None:
        """Remove the files, also those that were taken."""
        for level in self._levels:
            level.close()
        for kept in self._others:
            Path(kept.path).unlink(missing_ok=True)

    def _run_file(self, path: Path) -> RunFile:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _RunFile(path, self._order, self._columns)

    def _runs_of(self, file: int | str, places: list[Any]) -> list[_Run]:
        if isinstance(file, str):
            return [self._written(file, places)]
        return [
            _Run(self._order, first, [partial(self._block, file, schema, *block) for block in blocks])
            for first, schema, blocks in places
        ]

    def _block(self, file: int, schema: pa.Schema, start: int, size: int) -> pa.RecordBatch:
        return self._columns.full(pa.ipc.read_record_batch(pa.py_buffer(read_bytes(file, size, start)), schema))

    def _written(self, path: str, groups: list[int]) -> _Run:
        """The row groups of a Parquet file, in the order of their rows."""
        import pyarrow.parquet as pq  # rarely needed

        enums = [f.name for f in self._columns.schema if pa.types.is_dictionary(f.type)]
        file = pq.ParquetFile(path, read_dictionary=enums)

        def rows(group: int) -> pa.RecordBatch:
            batches = file.read_row_group(group).combine_chunks().to_batches()
            return join([self._columns.full(self._columns.hold(batch)) for batch in batches])

        first = key_at(self._order.keys(rows(groups[0]).slice(0, 1)), 0)
        return _Run(self._order, first, [partial(rows, group) for group in groups])

    def _ordered(self, parts: list[list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        if len(parts) == 1:
            return parts[0]
        joined = join([piece for part in parts for piece in part])
        permutation = self._order.permutation(joined)
        return [joined if permutation is None else pc.take(joined, pa.array(permutation))]


class _RunFile(RunFile):
    """A run is one or more blocks: record batches of Arrow, uncompressed."""

    def __init__(self, path: Path, order: RowOrder, held: HeldColumns) -> None:
        super().__init__(path)
        self._order, self._columns = order, held

    def add(self, parts: Iterable[list[pa.RecordBatch]]) -> None:
        first: tuple[int, ...] = ()
        schema, blocks = None, list[tuple[int, int]]()
        for rows in chain.from_iterable(parts):
            if schema is None:
                schema, first = rows.schema, key_at(self._order.keys(self._columns.full(rows.slice(0, 1))), 0)
            count = max(MIN_BLOCK_ROWS, int(BLOCK_BYTES / max(rows.nbytes / rows.num_rows, 1.0)))
            for at in range(0, rows.num_rows, count):
                data = rows.slice(at, count).serialize()
                blocks.append((self.end, data.size))
                self.write(memoryview(data))
        if blocks:
            self.places.append((first, schema, blocks))


class _Run:
    """A sorted run of rows; see `SortedRun`. Its blocks are read by `blocks`, each with rows."""

    def __init__(self, order: RowOrder, first: tuple[int, ...], blocks: Iterable[Callable[[], pa.RecordBatch]]) -> None:
        self.first = first
        self._order = order
        self._blocks = deque(blocks)
        self._rows = deque[tuple[pa.RecordBatch, "Keys"]]()
        self._count = 0

    @property
    def unread(self) -> bool:
        return bool(self._blocks)

    @property
    def head(self) -> tuple[int, ...]:
        return key_at(self._rows[0][1], 0)

    @property
    def last(self) -> tuple[int, ...]:
        return key_at(self._rows[-1][1], -1)

    def __len__(self) -> int:
        return self._count

    def read(self, room: int) -> None:
        while self._count < room and self._blocks:
            rows = self._blocks.popleft()()
            self._rows.append((rows, self._order.keys(rows)))
            self._count += rows.num_rows

    def take(self, bound: tuple[int, ...] | None) -> list[pa.RecordBatch]:
        taken = []
        while self._rows:
            rows, keys = self._rows.popleft()
            count = rows.num_rows if bound is None or key_at(keys, -1) < bound else _rows_before(keys, bound)
            if count:
                taken.append(rows.slice(0, count))
                self._count -= count
            if count < rows.num_rows:
                self._rows.appendleft((rows.slice(count), [k[count:] for k in keys]))
                break
        return taken


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all `batches`, which have one schema."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _values(column: pa.Array) -> NDArray[np.int64]:
    if column.null_count:
        column = pc.fill_null(column, 0)
    values: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _null_flags(column: pa.Array) -> NDArray[np.uint8]:
    if not column.null_count:
        return np.broadcast_to(np.uint8(0), len(column))
    flags: NDArray[np.uint8] = pc.cast(pc.is_null(column), pa.uint8()).to_numpy()
    return flags


def _longest_first(rows: pa.RecordBatch) -> NDArray[np.int64]:
    ends = pc.fill_null(rows.column("end"), INT64_MAX).to_numpy(zero_copy_only=False)
    reversed_ends: NDArray[np.int64] = ~np.maximum(ends, _values(rows.column("start")))
    return reversed_ends


def _column_codes(column: pa.Array) -> tuple[NDArray[Any], int]:
    """Codes of one column in the order of its values, nulls last, and how many there can be; in int64, or its own type."""
    low, high = extremes(column)
    if low is None or high is None:
        return np.zeros(len(column), np.int64), 1
    if high - low < _MAX_DIRECT:
        limit = high - low + 1
        # of 32 bits the differences fit into as many, of fewer they might not
        codes = (column.to_numpy() if column.type == pa.int32() and not column.null_count else _values(column)) - low
    else:
        encoded = pc.dictionary_encode(column)
        ranks, limit = _compact(_values(encoded.dictionary))
        codes = ranks[_values(encoded.indices)]
    if column.null_count:
        codes[_null_flags(column).view(bool)] = limit
        limit += 1
    return codes, limit


def _compact(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64, copy=False), len(distinct)


def _stretches(codes: NDArray[Any] | None, wrong: NDArray[np.intp], count: int) -> Iterator[tuple[int, int]]:
    """The tracks, as row ranges, that hold one of the rows at `wrong`."""
    if codes is None:
        yield 0, count
        return
    for code in np.unique(codes[wrong]):
        yield int(np.searchsorted(codes, code, "left")), int(np.searchsorted(codes, code, "right"))


def _stable(times: list[NDArray[np.int64]]) -> NDArray[np.intp]:
    if len(times) == 1:
        return np.argsort(times[0], kind="stable")
    return np.lexsort(times[::-1])


def _in_order(values: NDArray[np.int64], order: NDArray[np.intp] | None) -> NDArray[np.int64]:
    return values if order is None else values[order]


def key_at(keys: Keys, row: int) -> tuple[int, ...]:
    """What one row is compared by."""
    return tuple(int(k[row]) for k in keys)


def _rows_before(keys: Keys, bound: tuple[int, ...]) -> int:
    """How many of some sorted rows are before `bound`."""
    low, high = 0, len(keys[-1])
    for values, limit in zip(keys, bound, strict=True):
        part = values[low:high]
        if part[0] == limit == part[-1]:  # mostly so: one track, no nulls
            continue
        low, high = low + int(part.searchsorted(limit, "left")), low + int(part.searchsorted(limit, "right"))
        if low == high:
            break
    return low
