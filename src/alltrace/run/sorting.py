"""The order of rows in a file of a run: keys, a cheap stable sort, and the sorter of more rows than memory holds.

A key column becomes one or two integer arrays that compare in the order of the rows: whether the value is null (nulls
last), and the value. Sorting looks before it works: rows of a source usually come in order of time, so that a stable
sort on the small track codes is all there is to do.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.run.columns import HeldColumns
from alltrace.run.sorted_runs import DiskSorter, Form, KeptRuns, read_bytes
from alltrace.trace.arrays import Int64, extremes
from alltrace.trace.schema import Table

Keys = list[NDArray[Any]]
_Block = tuple[pa.RecordBatch, Keys]

INT64_MAX = np.iinfo(np.int64).max
BLOCK_BYTES = 512 * 1024
MIN_BLOCK_ROWS = 64
_MAX_DIRECT = 1 << 16


class RowOrder:
    """The order of the rows of one table: by its track, by time, and for `ranges` by end, the later one first.

    With that last key an enclosing range comes before the ranges it encloses. An open range (end null) counts as longer
    than any other of its start, and an end before the start counts as the start.
    """

    def __init__(self, table: Table) -> None:
        self.tracks: tuple[str, ...] = table.track  # the track columns
        self.time: str | None = table.order  # the column of time, or None
        self.longest_first: bool = table.name == "ranges"  # whether rows of equal start are sorted by descending end

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
        """Small integers in the order of tracks, nulls last, and their limit; without a time, a track's last."""
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
    """Puts sorted batches of rows of a table on disk, and returns all rows in order; equal ones stay in input order."""

    most_runs = 64

    def __init__(self, path: Path, order: RowOrder, held: HeldColumns) -> None:
        super().__init__(path, _Batches(order, held))

    @property
    def has_rows(self) -> bool:
        """Whether rows are on disk."""
        return bool(self._levels or self._others)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add sorted rows in their form in memory."""
        self._add_run(self._form.blocks([rows]))

    def add_file(self, path: Path, groups: Sequence[int]) -> None:
        """Add the row groups of a Parquet file, in the order of their rows, before any rows added here."""
        first, _ = self._form.read(str(path), groups[0], 1)
        self.take([KeptRuns(str(path), [(self._form.key(first, 0), list(groups))])])

    def blocks(self) -> Iterator[list[pa.RecordBatch]]:
        """All rows in order, in pieces: mostly of one run, where the runs do not overlap."""
        yield from self._in_order()

    def close(self) -> None:
        """Remove the files, also those that were taken."""
        for level in self._levels:
            level.close()
        for other in self._others:
            Path(other.path).unlink(missing_ok=True)


class _Batches(Form):
    """Record batches of Arrow, with the arrays that their rows are compared by."""

    def __init__(self, order: RowOrder, held: HeldColumns) -> None:
        self._order, self._columns = order, held
        self._metadata: Any = None  # of the Parquet file

    def pack(self, block: _Block, at: int) -> tuple[tuple[pa.Schema, int, int], Iterable[Any]]:
        data = block[0].serialize()
        return (block[0].schema, at, data.size), (data,)

    def read(self, file: int | str, place: Any, _room: int) -> tuple[_Block, None]:
        if isinstance(file, str):
            rows = self._row_group(file, place)
        else:
            schema, start, size = place
            rows = self._columns.full(pa.ipc.read_record_batch(pa.py_buffer(read_bytes(file, size, start)), schema))
        return (rows, self._order.keys(rows)), None

    def _row_group(self, path: str, group: int) -> pa.RecordBatch:
        import pyarrow.parquet as pq  # rarely needed

        enums = [f.name for f in self._columns.schema if pa.types.is_dictionary(f.type)]
        with pq.ParquetFile(path, read_dictionary=enums, metadata=self._metadata) as file:
            self._metadata = file.metadata
            batches = file.read_row_group(group).combine_chunks().to_batches()
        return pa.concat_batches([self._columns.full(self._columns.hold(batch)) for batch in batches])

    def key(self, block: _Block, record: int) -> tuple[int, ...]:
        return key_at(block[1], record)

    def count(self, block: _Block) -> int:
        return int(block[0].num_rows)

    def before(self, block: _Block, bound: tuple[int, ...]) -> int:
        low, high = 0, block[0].num_rows
        for values, limit in zip(block[1], bound, strict=True):
            part = values[low:high]
            if part[0] == limit == part[-1]:  # mostly so: one track, no nulls
                continue
            low, high = low + int(part.searchsorted(limit, "left")), low + int(part.searchsorted(limit, "right"))
            if low == high:
                break
        return low

    def cut(self, block: _Block, first: int, last: int) -> _Block:
        rows, keys = block
        return rows.slice(first, last - first), [k[first:last] for k in keys]

    def ordered(self, blocks: list[_Block]) -> list[pa.RecordBatch]:
        pieces = [rows for rows, _ in blocks]
        if all(self.key(one, -1) <= self.key(other, 0) for one, other in pairwise(blocks)):
            return pieces
        joined = pa.concat_batches(pieces)
        permutation = self._order.permutation(joined)
        return [joined if permutation is None else pc.take(joined, pa.array(permutation))]

    def blocks(self, ordered: list[pa.RecordBatch]) -> Iterator[_Block]:
        for rows in ordered:
            count = max(MIN_BLOCK_ROWS, int(BLOCK_BYTES / max(rows.nbytes / rows.num_rows, 1.0)))
            for first in range(0, rows.num_rows, count):
                part = rows.slice(first, count)
                yield part, self._order.keys(self._columns.full(part.slice(0, 1)))  # a run keeps the first key alone


def _values(column: pa.Array) -> Int64:
    if column.null_count:
        column = pc.fill_null(column, 0)
    values: Int64 = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _null_flags(column: pa.Array) -> NDArray[np.uint8]:
    if not column.null_count:
        return np.broadcast_to(np.uint8(0), len(column))
    flags: NDArray[np.uint8] = pc.cast(pc.is_null(column), pa.uint8()).to_numpy()
    return flags


def _longest_first(rows: pa.RecordBatch) -> Int64:
    ends = pc.fill_null(rows.column("end"), INT64_MAX).to_numpy(zero_copy_only=False)
    reversed_ends: Int64 = ~np.maximum(ends, _values(rows.column("start")))
    return reversed_ends


def _column_codes(column: pa.Array) -> tuple[NDArray[Any], int]:
    """A column's codes in the order of its values, nulls last, and how many there can be; in int64 or its type."""
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


def _compact(values: Int64) -> tuple[Int64, int]:
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64, copy=False), len(distinct)


def _stretches(codes: NDArray[Any] | None, wrong: NDArray[np.intp], count: int) -> Iterator[tuple[int, int]]:
    """The tracks, as row ranges, that hold one of the rows at `wrong`."""
    if codes is None:
        yield 0, count
        return
    for code in np.unique(codes[wrong]):
        yield int(np.searchsorted(codes, code, "left")), int(np.searchsorted(codes, code, "right"))


def _stable(times: list[Int64]) -> NDArray[np.intp]:
    if len(times) == 1:
        return np.argsort(times[0], kind="stable")
    return np.lexsort(times[::-1])


def _in_order(values: Int64, order: NDArray[np.intp] | None) -> Int64:
    return values if order is None else values[order]


def key_at(keys: Keys, row: int) -> tuple[int, ...]:
    """What one row is compared by."""
    return tuple(int(k[row]) for k in keys)
