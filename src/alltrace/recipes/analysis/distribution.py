"""Exact statistics over all ranks without carrying every row: distributions as (key, value, count).

A rank's million durations hold far fewer distinct (name, duration) pairs, so `merge` gets a run-length table. Adding
these tables loses nothing, so medians and quartiles over all ranks are exact.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.grouping import group

Quantile = Literal["hyndman-fan-2", "linear"]
VALUE = "value"
COUNT = "count"

_INT64_MAX = 2**63 - 1
_SMALL = 1 << 16


def collect(keys: Mapping[str, Any], values: Any) -> pa.Table:
    """The distribution of `values` by n rows of `keys`: `count` of each distinct key and value, values ascending."""
    number = _int64(values)
    codes, first = group(list(keys.values()))
    counted = _counted(codes, number, len(first))
    if counted is None:
        _, codes, number = _sort(codes, number, ordered=False)
        at = _beginnings(codes, number)
        counted = codes[at], number[at], np.diff(at, append=len(number)).astype(np.int64)
    codes, number, count = counted
    distinct = pa.array(first[codes])
    columns = {name: _take(column, distinct) for name, column in keys.items()}
    return pa.table({**columns, VALUE: pa.array(number), COUNT: pa.array(count)})


def summarize(distribution: pa.Table, quantile: Quantile = "hyndman-fan-2") -> pa.Table:
    """The statistics of each key of a distribution.

    `distribution`: Key columns, `value` and `count`; rows with the same key and value may occur several times.
    `quantile`: How quartiles are read off a sample: `hyndman-fan-2` (the mean of the two neighbours if p * n is whole,
    else the next value; what `nsys stats` does) or `linear` (type 7, what pandas and NumPy do). Hyndman and Fan,
    "Sample Quantiles in Statistical Packages", The American Statistician 50 (1996). The median is the same in both.
    Returns a row per key: the key columns, `count` and `total` (int64; `total` is decimal128 if a sum does not fit),
    `mean`, `median`, `q1`, `q3` (float64), `min`, `max` (int64), `stddev` (float64, of a sample: n - 1 below; 0 for one
    value).
    """
    keys = [name for name in distribution.column_names if name not in (VALUE, COUNT)]
    codes, first = group([distribution.column(name) for name in keys])
    taken = pc.take(distribution.select(keys), pa.array(first))
    values = statistics(codes, _int64(distribution.column(VALUE)), _int64(distribution.column(COUNT)), quantile)
    return pa.table({**{name: taken.column(name) for name in keys}, **values})


def statistics(codes: Int64, value: Int64, count: Int64, quantile: Quantile = "hyndman-fan-2") -> dict[str, Any]:
    """The columns of `summarize`, in the order of numbered keys: `codes` from 0, each of which occurs."""
    if not _are_distinct(codes, value):
        # equal values are counted together first, so that no rounding depends on how the rows came apart
        codes, value, count = _added(codes, value, count) or _sorted(codes, value, count)
    at = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1]))) if len(codes) else np.empty(0, np.int64)
    after = np.append(at[1:], len(codes)).astype(np.int64)
    n = _segment_sums(count, at)
    total = _totals(value, count, at)
    reach = np.cumsum(count)
    base = (reach[at] - count[at]) if len(at) else n

    def kth(k: Any) -> Any:
        """The k-th smallest value of each key, k 0-based."""
        return value[np.searchsorted(reach, base + k, side="right")]

    columns = {
        "mean": _means(total, n),
        "median": quartile(n, 2, quantile, kth),
        "q1": quartile(n, 1, quantile, kth),
        "q3": quartile(n, 3, quantile, kth),
        "min": value[at],
        "max": value[after - 1] if len(at) else value[at],
        "stddev": _deviations(value, count, n, total, at, after - at),
    }
    return {COUNT: pa.array(n), "total": total, **{name: pa.array(c) for name, c in columns.items()}}


def quartile(n: Any, quarters: int, quantile: Quantile, kth: Callable[[Any], Any]) -> Floats:
    """A quartile (1, 2, 3) of samples of `n` values; `kth` returns the k-th smallest of each, k 0-based."""
    if quantile == "linear" and quarters != 2:
        low, rest = np.divmod((n - 1) * quarters, 4)
        high = np.minimum(low + 1, n - 1)
        between = kth(low) + (kth(high) - kth(low)) * (rest / 4)
    else:
        upper, rest = np.divmod(n * quarters, 4)
        lower = np.where(rest == 0, upper - 1, upper)
        a, b = kth(lower), kth(np.minimum(upper, n - 1))
        between = a + (b - a) / 2
    floats: Floats = between.astype(np.float64)
    return floats


def _counted(codes: Int64, values: Int64, groups: int) -> tuple[Int64, Int64, Int64] | None:
    """Group, value and number of the distinct pairs, sorted by both; None if counting takes longer than sorting."""
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    width = high - low + 1
    if width * groups > len(values) + _SMALL:
        return None
    cells = values - low
    cells += codes * width
    number = np.bincount(cells)
    present = np.flatnonzero(number)
    owner, value = np.divmod(present, width)
    return owner, value + low, number[present].astype(np.int64, copy=False)


def _added(codes: Int64, values: Int64, counts: Int64) -> tuple[Int64, Int64, Int64] | None:
    """The distinct pairs of group and value, sorted by both, with summed counts; None if sorting takes no longer."""
    low, high = int(values.min()), int(values.max())
    width, groups = high - low + 1, int(codes.max()) + 1
    if width * groups > 4 * len(values) + _SMALL:
        return None
    cells = values - low
    cells += codes * width
    total = np.zeros(width * groups, np.int64)
    np.add.at(total, cells, counts)
    present = np.flatnonzero(total != 0)
    owner, value = np.divmod(present, width)
    return owner, value + low, total.take(present)


def _sorted(codes: Int64, values: Int64, counts: Int64) -> tuple[Int64, Int64, Int64]:
    order, codes, values = _sort(codes, values, ordered=True)
    runs = _beginnings(codes, values)
    return codes[runs], values[runs], _segment_sums(counts[order], runs)


def _int64(values: Any) -> Int64:
    if isinstance(values, pa.ChunkedArray | pa.Array):
        if values.null_count:
            raise ValueError("a distribution holds no nulls")
        values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    return np.asarray(values, np.int64)


def _take(column: Any, rows: pa.Array) -> Any:
    taken = pc.take(column, rows)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _sort(codes: Int64, values: Int64, *, ordered: bool) -> tuple[Any, Int64, Int64]:
    """Codes and values sorted by both, after the order of the rows, which is None unless `ordered` or needed."""
    if not len(values):
        return np.empty(0, np.int64), codes, values
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    width = bits + int(codes.max()).bit_length()
    if width < 64:
        # shifts, because dividing takes as long as sorting; numbers of 32 bits sort in half the time
        kind: Any = np.uint32 if width <= 32 else np.int64
        packed = codes.astype(kind) << kind(bits)
        packed |= (values - low).astype(kind)
        order: Any = None
        if not ordered:
            packed.sort()
        elif (packed[1:] < packed[:-1]).any():
            order = np.argsort(packed, kind="stable")
            packed = packed[order]
        else:
            return slice(None), codes, values
        values = (packed & kind((1 << bits) - 1)).astype(np.int64)
        values += low
        return order, (packed >> kind(bits)).astype(np.int64), values
    order = np.lexsort((values, codes))
    return order, codes[order], values[order]


def _are_distinct(codes: Int64, values: Int64) -> bool:
    """Whether rows are sorted by both and no two are equal: what one rank counted comes so."""
    ascending = values[1:] > values[:-1]
    ascending &= codes[1:] == codes[:-1]
    ascending |= codes[1:] > codes[:-1]
    return bool(ascending.all())


def _beginnings(codes: Int64, values: Int64) -> Int64:
    """Where sorted rows differ from the row before."""
    new = np.empty(len(values), bool)
    new[:1] = True
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    new[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(new)


def _segment_sums(values: Int64, at: Int64) -> Int64:
    return np.add.reduceat(values, at) if len(at) else values[:0]


def _totals(value: Int64, count: Int64, at: Int64) -> Any:
    """The exact sum of each segment, as int64, or as decimals if one does not fit."""
    if not len(at):
        return pa.array([], pa.int64())
    largest = max(abs(int(value.min())), abs(int(value.max())))
    if largest * int(count.sum()) <= _INT64_MAX:
        return pa.array(np.add.reduceat(value * count, at))
    sums = [int(s) for s in np.add.reduceat(value.astype(object) * count.astype(object), at)]
    if all(-_INT64_MAX <= s <= _INT64_MAX for s in sums):
        return pa.array(sums, pa.int64())
    return pa.array(sums, pa.decimal128(38, 0))


def _means(total: Any, n: Int64) -> Floats:
    if total.type == pa.int64():
        result: Floats = total.to_numpy() / np.maximum(n, 1)
        return result
    return np.array([int(t) / int(k) for t, k in zip(total.to_pylist(), n, strict=True)])


def _deviations(
    value: Int64,
    count: Int64,
    n: Int64,
    total: Any,
    at: Int64,
    rows: Int64,
) -> Floats:
    """Sample standard deviation of each segment, from whole distances to the rounded mean, so that no digits cancel."""
    if not len(at):
        return np.empty(0, np.float64)
    if total.type == pa.int64():
        center = total.to_numpy() // n
    else:
        center = np.array([int(t) // int(k) for t, k in zip(total.to_pylist(), n, strict=True)], np.int64)
    from_center = np.repeat(center, rows)
    distance = np.subtract(value, from_center, out=from_center).astype(np.float64)
    weighted = np.multiply(count, distance, out=from_center.view(np.float64))
    shift = np.add.reduceat(weighted, at)
    weighted *= distance
    squares = np.add.reduceat(weighted, at)
    variance = np.maximum(squares - shift * shift / n, 0.0) / np.maximum(n - 1, 1)
    result: Floats = np.where(n > 1, np.sqrt(variance), 0.0)
    return result
