"""NumPy arrays of Arrow arrays of whole numbers and of words."""

import functools
import operator
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BLOCK_ROWS = 1 << 17


def integers(column: Any, null: int = 0) -> Int64:
    """A `pyarrow.Array` or `ChunkedArray` of whole numbers as a NumPy int64 array, with `null` for nulls."""
    filled = pc.fill_null(column, null) if column.null_count else column
    values = filled.to_numpy() if isinstance(filled, pa.ChunkedArray) else filled.to_numpy(zero_copy_only=False)
    result: Int64 = values.astype(np.int64, copy=False)
    return result


def coded(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The distinct values of an Arrow column, and the index of each row's value; that of a null is after the last."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    codes = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return codes.dictionary, integers(codes.indices, len(codes.dictionary))


def is_one_of(column: Any, words: Collection[str]) -> NDArray[np.bool_]:
    """Whether each row of an Arrow column of text, of which few are distinct, has one of `words`."""
    distinct, at = coded(column)
    mask: NDArray[np.bool_] = np.array([*(word in words for word in distinct.to_pylist()), False])[at]
    return mask


def is_true(column: Any) -> NDArray[np.bool_]:
    """Whether each row of an Arrow column of truth values is true; null is not."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    filled = pc.fill_null(column, False)
    mask: NDArray[np.bool_] = (
        filled.to_numpy() if isinstance(filled, pa.ChunkedArray) else filled.to_numpy(zero_copy_only=False)
    )
    return mask


def blocks(rows: int) -> Iterator[slice]:
    """The rows of long arrays, some at a time, so that what is computed of them takes little memory."""
    return (slice(first, min(first + BLOCK_ROWS, rows)) for first in range(0, rows, BLOCK_ROWS))


def narrow(values: Int64) -> NDArray[Any]:
    """Whole numbers as int32 where that holds them all, for what many ranks keep; sums of several need int64 again."""
    limits = np.iinfo(np.int32)
    fits = not len(values) or (limits.min <= values.min() and values.max() <= limits.max)
    return values.astype(np.int32) if fits else values


def extremes(column: Any) -> tuple[int | None, int | None]:
    """The smallest and the largest of an Arrow array of whole numbers, nulls left out; None if it has nothing else."""
    # Of arrays without nulls NumPy finds them in a tenth of the time that Arrow takes.
    if column.null_count or not len(column):
        both = pc.min_max(column)
        return both["min"].as_py(), both["max"].as_py()
    values = column.to_numpy()
    return int(values.min()), int(values.max())


def either(*masks: Any) -> Any:
    """Where any of the masks, as `unpacked` returns them, is true; None if all are None."""
    present = [mask for mask in masks if mask is not None]
    return functools.reduce(operator.or_, present) if present else None


def unpacked(values: Any) -> tuple[Any, Any]:
    """An int64 Arrow array as a NumPy array, 0 if null, and where it is null, or None if it nowhere is."""
    if not values.null_count:
        return values.to_numpy(), None
    return pc.fill_null(values, 0).to_numpy(), pc.is_null(values).to_numpy(zero_copy_only=False)


def exact_sums(values: Int64, group: Int64, groups: int) -> NDArray[Any]:
    """The sum of each group's values."""
    # `values`: n whole numbers. `group`: the group of each, from 0. `groups`: how many groups there are. Returns an
    # int64 array; one of Python's own whole numbers where 64 bits may not hold the sums.

    def summed(numbers: Int64) -> Int64:
        sums = np.zeros(groups, np.int64)
        np.add.at(sums, group, numbers)
        return sums

    if np.abs(values.astype(np.float64)).sum() < 1 << 62:
        return summed(values)
    high, low = summed(values >> 32).tolist(), summed(values & 0xFFFF_FFFF).tolist()
    return np.array([(h << 32) + n for h, n in zip(high, low, strict=True)], object)


def whole_numbers(values: Any) -> Any:
    """Whole numbers, None among them, as an Arrow array: int64, or decimals of 38 digits where one does not fit."""
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        return pa.array([None if v is None else Decimal(int(v)) for v in values], pa.decimal128(38, 0))


def nearest(values: Any, wanted: Any) -> Int64:
    """The place of the value nearest to each wanted number; `values` is an ascending array, of two the later counts."""
    at = np.searchsorted(values, wanted)
    before, after = np.maximum(at - 1, 0), np.minimum(at, len(values) - 1)
    places: Int64 = np.where(np.abs(values[before] - wanted) < np.abs(values[after] - wanted), before, after)
    return places
