"""Rows of some columns that are alike, by number."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import Int64

_INT64_MAX = 2**63 - 1


def group(columns: Sequence[Any]) -> tuple[Int64, Int64]:
    """Number the distinct rows of some columns."""
    # `columns`: one or more Arrow arrays of n rows; null is a value like any other. Returns the group of each row (n,
    # int64, 0-based), and one row number for each group (g, int64).
    codes: Int64 | None = None
    size = 1
    for column in columns:
        if len(column) and column.null_count == len(column):
            continue  # all null: distinguishes no rows
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array, null_encoding="encode")
        indices = encoded.indices
        if len(encoded.dictionary) == 1 and not indices.null_count:
            continue  # a value that all rows have does not either
        own = (
            (pc.fill_null(indices, len(encoded.dictionary)) if indices.null_count else indices)
            .to_numpy()
            .astype(np.int64)
        )
        width = len(encoded.dictionary) + 1
        if codes is None:
            codes, size = own, width
        elif size > _INT64_MAX // width:
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max(initial=0)) + 1
            codes, size = codes * width + own, size * width
        else:
            codes, size = codes * width + own, size * width
    if codes is None:
        codes = np.zeros(len(columns[0]), np.int64)
    if size <= 4 * len(codes) + 1024:
        return _dense(codes, size)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return inverse.astype(np.int64, copy=False), first.astype(np.int64, copy=False)


def _dense(codes: Int64, size: int) -> tuple[Int64, Int64]:
    """`group` for codes within a small range: a look-up, not a sort, or neither if groups are adjacent."""
    if len(codes):
        at = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1))
        if len(at) <= size and (np.diff(codes[at]) > 0).all():
            return _renumbered(codes, codes[at], size), at
    some_row = np.full(size, -1, np.int64)
    some_row[codes] = np.arange(len(codes), dtype=np.int64)
    present = np.flatnonzero(some_row >= 0)
    return _renumbered(codes, present, size), some_row[present]


def _renumbered(codes: Int64, present: Int64, size: int) -> Int64:
    """The codes counted without gaps: those that occur, in order, are `present`."""
    if len(present) and present[-1] == len(present) - 1:
        return codes  # numbered as they are
    number = np.zeros(size, np.int64)
    number[present] = np.arange(len(present), dtype=np.int64)
    return number[codes]
