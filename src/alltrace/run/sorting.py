"""The order of rows in a file of a run: keys, a cheap stable sort, and a streaming merge of sorted runs of rows.

A key column becomes one or two integer arrays that compare in the order of the rows: whether the value is null (nulls last), and
the value. Sorting looks before it works: rows of a source usually come in order of time, so that a stable sort on the small track
codes is all there is to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import extremes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from alltrace.trace.schema import Table

    Keys = list[NDArray[Any]]

INT64_MAX = np.iinfo(np.int64).max
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


class SortedBlocks:
    """A sorted stream of rows, read block by block.

    Args:
        order: The order that the rows are in.
        blocks: The blocks, which may be empty.
    """

    def __init__(self, order: RowOrder, blocks: Iterator[pa.RecordBatch]) -> None:
        self._order = order
        self._blocks = blocks
        self._block: pa.RecordBatch | None = None
        self._keys: Keys = []
        self._at = 0
        self.first: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()
        self.advance()

    @property
    def exhausted(self) -> bool:
        """Whether there are no more rows."""
        return self._block is None

    def advance(self) -> None:
        """Go to the next block that has rows."""
        self._block = next((b for b in self._blocks if b.num_rows), None)
        self._at = 0
        if self._block is not None:
            self._keys = self._order.keys(self._block)
            self.first = key_at(self._keys, 0)
            self.last = key_at(self._keys, -1)

    def take(self, bound: tuple[int, ...], *, inclusive: bool) -> pa.RecordBatch | None:
        """Take away the rows before `bound`, or up to and including it; None when there are none in this block."""
        if self._block is None or (self.first > bound if inclusive else self.first >= bound):
            return None
        end = self._block.num_rows
        if self.last > bound or (not inclusive and self.last == bound):
            end = _search(self._keys, bound, self._at, end, inclusive=inclusive)
        taken = self._block.slice(self._at, end - self._at)
        self._at = end
        if end == self._block.num_rows:
            self.advance()
        else:
            self.first = key_at(self._keys, end)
        return taken


def merge(order: RowOrder, runs: Sequence[SortedBlocks]) -> Iterator[list[pa.RecordBatch]]:
    """Merge sorted runs stably, holding one block of each.

    Every step takes the rows up to the smallest last key of the loaded blocks: rows that are not loaded yet sort after it. Rows of
    an earlier run come before rows of a later one with the same key.

    Yields:
        Pieces, in order: mostly one block of one run, where the runs do not overlap.
    """
    live = [r for r in runs if not r.exhausted]
    while live:
        lowest = min(range(len(live)), key=lambda i: live[i].last)
        bound = live[lowest].last
        pieces = []
        for position, run in enumerate(live):
            piece = run.take(bound, inclusive=position <= lowest)
            if piece is not None:
                pieces.append(piece)
        if any(r.exhausted for r in live):
            live = [r for r in live if not r.exhausted]
        if len(pieces) > 1:
            joined = join(pieces)
            permutation = order.permutation(joined)
            pieces = [joined if permutation is None else pc.take(joined, pa.array(permutation))]
        yield pieces


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


def _search(keys: Keys, bound: tuple[int, ...], low: int, high: int, *, inclusive: bool) -> int:
    """The first row of [low, high) that is not before `bound` (or, inclusive, that is after it)."""
    for values, limit in zip(keys, bound, strict=True):
        part = values[low:high]
        if part[0] == limit == part[-1]:  # mostly so: one track, no nulls
            continue
        below = int(np.searchsorted(part, limit, "left"))
        upto = int(np.searchsorted(part, limit, "right"))
        low, high = low + below, low + upto
        if low == high:
            return low
    return high if inclusive else low
