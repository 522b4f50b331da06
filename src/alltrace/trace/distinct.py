"""The distinct values of a column, which of them each row has, and which rows have each of them."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from alltrace.trace.arrays import Int64

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

_SMALL = 1 << 10
_MIX = np.uint64(0x9E3779B97F4A7C15)


def distinct(values: Int64) -> tuple[Int64, Int64]:
    """The result of `np.unique(values, return_inverse=True)` for integers, several times faster if few are distinct."""
    # `values`: int64 array of n. Returns the distinct values, ascending, and the place of each row's among them: int64
    # arrays of d and n.
    values = np.asarray(values, np.int64)
    if not len(values):
        return values, np.empty(0, np.int64)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return values[:1].copy(), np.zeros(len(values), np.int64)
    if high - low <= 2 * len(values) + _SMALL:
        cells = values - low
        there = np.zeros(high - low + 1, bool)
        there[cells] = True
        values_present = np.flatnonzero(there)
        if len(values_present) == len(there):
            return values_present + low, cells
        place = np.cumsum(there) - 1
        return values_present + low, place[cells]
    import pyarrow as pa

    coded = pa.array(values).dictionary_encode()
    words = coded.dictionary.to_numpy()
    order = np.argsort(words, kind="stable")
    place = np.empty(len(words), np.int64)
    place[order] = np.arange(len(words))
    return words[order], place[coded.indices.to_numpy()]


def distinct_rows(*columns: Int64) -> tuple[Int64, Int64]:
    """The result of `np.unique(np.stack(columns), axis=1, return_inverse=True)` for integers, many times faster."""
    # `columns`: int64 arrays of n, one at least. Returns the distinct rows, ascending, and the place of each row among
    # them: int64 arrays of (columns, d) and n.
    whole = [np.asarray(column, np.int64) for column in columns]
    varying = [column for column in whole if len(column) and (column != column[0]).any()]
    code = _mixed(varying) if len(varying) > 1 else None
    if code is None:
        code = distinct(varying[0] if varying else whole[0])[1]
        for column in varying[1:]:
            values, at = distinct(column)
            # codes stay below the number of rows, so that their products do not wrap
            code = distinct(code * len(values) + at)[1]
    one = np.zeros(int(code.max()) + 1 if len(code) else 0, np.int64)
    one[code] = np.arange(len(code))
    return np.stack([column[one] for column in whole]), code


def _mixed(columns: Sequence[Int64]) -> Int64 | None:
    """The place of each row among the distinct rows, by a number for each; None if numbers collide."""
    import pyarrow as pa

    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(32)
    code = pa.array(mixed).dictionary_encode().indices.to_numpy()
    reached = np.maximum.accumulate(code)
    first = np.flatnonzero(np.append(True, reached[1:] != reached[:-1]))
    if any((column[first][code] != column).any() for column in columns):
        return None
    place = np.empty(len(first), np.int64)
    place[np.lexsort([column[first] for column in columns[::-1]])] = np.arange(len(first))
    found: Int64 = place[code]
    return found


def occurrences(*columns: Int64) -> Int64:
    """For each row how many equal rows are before it. `columns`: int64 arrays of n, one at least."""
    code = distinct_rows(*columns)[1]
    order = np.argsort(code, kind="stable")
    before = np.empty(len(code), np.int64)
    before[order] = np.arange(len(code)) - np.searchsorted(code[order], code[order])
    return before


def folded(by: np.ufunc, of: Int64, values: NDArray[Any], count: int, start: float) -> NDArray[Any]:
    """What `by`, such as `np.minimum`, makes of `start` and the values of each number below `count` `of` rows."""
    result = np.full(count, start)
    by.at(result, of, values)
    return result


def run_starts(*columns: NDArray[Any]) -> NDArray[np.intp]:
    """The rows that differ from the row before them, and the first. `columns`: arrays of n, one at least."""
    changes = np.ones(len(columns[0]), np.bool_)
    changes[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(changes)


def rows_by(values: NDArray[np.integer[Any]]) -> dict[int, NDArray[np.intp]]:
    """The rows of each value, ascending: the result of `np.flatnonzero(values == value)`, by one sort."""
    # `values`: integer array of n. Returns the rows of each distinct value, values ascending.
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return dict(zip(ordered[np.concatenate(([0], cuts))].tolist(), np.split(order, cuts), strict=True))


def sorted_groups(values: NDArray[Any], group: Int64, groups: int) -> tuple[NDArray[Any], Int64, Int64]:
    """The values of each group in ascending order, in one array; where each group begins, and how many it has."""
    # `group`: the group of each value, from 0; `groups`: how many groups there are
    counts = np.bincount(group, minlength=groups)
    return values[np.lexsort((values, group))], np.cumsum(counts) - counts, counts


def values_by(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of each key, in their order."""
    values: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
