"""Statistics over the distributions of many ranks that never hold all of them: some keys at a time, of a long one some values.

What `map` made of a rank (`distribution.collect`) has its rows in runs: rows of one key, values ascending. The runs of some keys
are taken from all ranks, so that memory holds the rows of those keys, while parts that lie in files are looked at where they are.
The results are those of `distribution.summarize`, but for the last digits of the deviation of a key with more rows than are taken
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import COUNT, VALUE, Quantile, group, plain, quartile, statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Part

    Int64 = NDArray[np.int64]

GROUP = "group"
_RANK = "rank"
_ROWS_AT_ONCE = 1 << 20
_SAMPLES = 64  # of each range of values


class _Runs(NamedTuple):
    """Where a part has the rows of which key; arrays of s runs.

    Attributes:
        part: The part.
        begin: The first row of each.
        end: The row after its last.
        key: The number of its key.
    """

    part: Part
    begin: Int64
    end: Int64
    key: Int64

    def columns(self) -> tuple[Int64, Int64]:
        """Values and counts; where the part lies in a file they do, too."""
        table = self.part.table
        return table.column(VALUE).to_numpy(), table.column(COUNT).to_numpy()


class Pool:
    """The distributions of several ranks.

    Args:
        parts: What `map` returned for each rank: tables with the columns `keys`, `value` and `count`, of the same types.
        keys: The names of the key columns.
        rows_at_once: The most rows that are taken at once.

    Attributes:
        keys: A table of the distinct keys, which are numbered by its rows; words stand as such, not as dictionaries.
    """

    def __init__(self, parts: Sequence[Part], keys: Sequence[str], rows_at_once: int = _ROWS_AT_ONCE) -> None:
        self._rows_at_once = rows_at_once
        self._runs: list[_Runs] = []
        own = []
        for part in parts:
            table = part.table
            if not table.num_rows:
                continue
            runs, first = _found_runs(part, table, keys)
            self._runs.append(runs)
            own.append(plain(pc.take(table.select(list(keys)), pa.array(first))))
        if not own:
            self.keys = parts[0].table.select(list(keys)) if parts else pa.table({k: pa.nulls(0) for k in keys})
            return
        together = pa.concat_tables(own)
        codes, first = group([together.column(k) for k in keys])
        self.keys = pc.take(together, pa.array(first)).combine_chunks()
        at = np.cumsum([0, *(table.num_rows for table in own)])
        self._runs = [_Runs(r.part, r.begin, r.end, codes[low + r.key]) for r, low in zip(self._runs, at, strict=False)]

    @property
    def ranks(self) -> list[int]:
        """The ranks that have rows, in the order of the parts."""
        return [runs.part.rank for runs in self._runs]

    def summarize(self, groups: Int64, quantile: Quantile = "hyndman-fan-2") -> Any:
        """The statistics of groups of keys over all ranks.

        Args:
            groups: The group of each key: int64 array of numbers from 0, each of which occurs.
            quantile: See `distribution.summarize`.

        Returns:
            A `pyarrow.Table` of a row per group, in order: `group`, and the statistics as `distribution.summarize` has them.
        """
        found = _summary(self._runs, [groups[r.key] for r in self._runs], quantile, self._rows_at_once)
        return found.add_column(0, GROUP, pa.array(np.arange(found.num_rows, dtype=np.int64)))

    def summarize_ranks(self, groups: Int64, quantile: Quantile = "hyndman-fan-2") -> Any:
        """The statistics of groups of keys on each rank.

        Returns:
            A row per rank and group that it has, in order: `rank`, `group` and the statistics.
        """
        tables = []
        for runs in self._runs:
            own, of_run = np.unique(groups[runs.key], return_inverse=True)
            found = _summary([runs], [of_run.reshape(-1)], quantile, self._rows_at_once)
            found = found.add_column(0, GROUP, pa.array(own))
            tables.append(found.add_column(0, _RANK, pa.array(np.full(len(own), runs.part.rank, np.int64))))
        if not tables:
            nothing = pa.array([], pa.int64())
            return _no_statistics().add_column(0, GROUP, nothing).add_column(0, _RANK, nothing)
        return stacked(tables)

    def ranks_of(self, groups: Int64) -> Int64:
        """How many ranks have each group of keys: int64 array of a number per group."""
        number = np.zeros(_count(groups), np.int64)
        for runs in self._runs:
            number[np.unique(groups[runs.key])] += 1
        return number

    def above(self, groups: Int64, limit: int) -> Int64:
        """How many values of each group of keys are above `limit`: int64 array of a number per group."""
        number = np.zeros(_count(groups), np.int64)
        for runs in self._runs:
            value, count = runs.columns()
            sums = np.add.reduceat(np.where(value > limit, count, 0), runs.begin)
            np.add.at(number, groups[runs.key], sums)
        return number


def _count(groups: Int64) -> int:
    return int(groups.max(initial=-1)) + 1


def _found_runs(part: Part, table: Any, keys: Sequence[str]) -> tuple[_Runs, Int64]:
    """The runs of a part, keys numbered within it, and a row of each key."""
    codes, first = group([table.column(k) for k in keys])
    value = table.column(VALUE).to_numpy()
    new = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    new[1:] |= value[1:] < value[:-1]
    begin = np.flatnonzero(new)
    return _Runs(part, begin, np.append(begin[1:], len(codes)), codes[begin]), first


def _summary(sources: Sequence[_Runs], of_runs: Sequence[Int64], quantile: Quantile, most: int) -> Any:
    """The statistics of each group; `of_runs` are the groups of each source's runs."""
    size = np.zeros(max((_count(of) for of in of_runs), default=0), np.int64)
    for runs, of in zip(sources, of_runs, strict=True):
        np.add.at(size, of, runs.end - runs.begin)
    found = []
    for low, high in _batches(size, most):
        if size[low] > most:
            found.append(_of_long(sources, [of == low for of in of_runs], int(size[low]), quantile, most))
            continue
        codes: list[Int64] = []
        value: list[Int64] = []
        count: list[Int64] = []
        for runs, of in zip(sources, of_runs, strict=True):
            chosen = np.flatnonzero((of >= low) & (of < high))
            if len(chosen):
                codes.append(np.repeat(of[chosen] - low, runs.end[chosen] - runs.begin[chosen]))
                rows = _rows(runs.begin[chosen], runs.end[chosen])
                for into, column in zip((value, count), runs.columns(), strict=True):
                    into.append(column[rows])
        found.append(pa.table(statistics(np.concatenate(codes), np.concatenate(value), np.concatenate(count), quantile)))
    return stacked(found) if found else _no_statistics()


def _batches(size: Int64, most: int) -> Iterator[tuple[int, int]]:
    """Groups from and up to that have together not more than `most` rows, or one that has more alone."""
    reach = np.cumsum(size)
    low = 0
    while low < len(size):
        before = int(reach[low] - size[low])
        high = max(int(np.searchsorted(reach, before + most, "right")), low + 1)
        yield low, high
        low = high


def _rows(begin: Int64, end: Int64) -> Any:
    """What selects the rows of runs: a slice where they follow each other."""
    if (begin[1:] == end[:-1]).all():
        return slice(int(begin[0]), int(end[-1]))
    length = end - begin
    return np.repeat(begin - np.concatenate(([0], np.cumsum(length)[:-1])), length) + np.arange(int(length.sum()))


def _of_long(sources: Sequence[_Runs], chosen: Sequence[NDArray[np.bool_]], size: int, quantile: Quantile, most: int) -> Any:
    """The statistics of one group with too many rows: of some values at a time, from the smallest to the largest."""
    runs: list[tuple[Int64, Int64]] = []
    for source, own in zip(sources, chosen, strict=True):
        value, count = source.columns()
        bounds = zip(source.begin[own].tolist(), source.end[own].tolist(), strict=True)
        runs += [(value[begin:end], count[begin:end]) for begin, end in bounds]
    n = sum(int(count.sum()) for _, count in runs)
    total = sum(_exact_sum(value, count) for value, count in runs)
    wanted: set[int] = set()

    def noted(k: Any) -> Any:
        wanted.update(k.tolist())
        return np.zeros(len(k))

    number = np.array([n])
    for quarters in (1, 2, 3):
        quartile(number, quarters, quantile, noted)
    known: dict[int, int] = {}
    center, reach, shift, squares = total // n, 0, 0.0, 0.0
    for value, count in _ascending(runs, size, most):
        until = reach + np.cumsum(count)
        own = np.array(sorted(k for k in wanted if reach <= k < until[-1]), np.int64)
        known.update(zip(own.tolist(), value[np.searchsorted(until, own, "right")].tolist(), strict=True))
        reach = int(until[-1])
        distance = (value - center).astype(np.float64)
        shift += float((count * distance).sum())
        squares += float((count * distance * distance).sum())

    def kth(k: Any) -> Any:
        return np.array([known[i] for i in k.tolist()], np.int64)

    variance = max(squares - shift * shift / n, 0.0) / max(n - 1, 1)
    fits = -(2**63) < total < 2**63
    columns = {
        COUNT: pa.array([n], pa.int64()),
        "total": pa.array([total], pa.int64() if fits else pa.decimal128(38, 0)),
        "mean": pa.array(np.array([total / n])),
        "median": pa.array(quartile(number, 2, quantile, kth)),
        "q1": pa.array(quartile(number, 1, quantile, kth)),
        "q3": pa.array(quartile(number, 3, quantile, kth)),
        "min": pa.array([min(int(value[0]) for value, _ in runs)], pa.int64()),
        "max": pa.array([max(int(value[-1]) for value, _ in runs)], pa.int64()),
        "stddev": pa.array(np.array([np.sqrt(variance)])),
    }
    return pa.table(columns)


def _exact_sum(value: Int64, count: Int64) -> int:
    largest = max(abs(int(value[0])), abs(int(value[-1])))
    if largest * int(count.sum()) < 2**63:
        return int((value * count).sum())
    return int((value.astype(object) * count.astype(object)).sum())


def _ascending(runs: Sequence[tuple[Int64, Int64]], size: int, most: int) -> Iterator[tuple[Int64, Int64]]:
    """The distinct values of ascending runs and how often each stands, about `most` rows at a time."""
    ranges = -(-size // most) + 1
    stride = max(size // (_SAMPLES * ranges), 1)
    # one of each run at least: of many ranks each may have few
    sample = np.sort(np.concatenate([value[min(stride, len(value)) // 2 :: stride] for value, _ in runs]))
    edges = np.unique(sample[:: max(len(sample) // ranges, 1)][1:])
    cuts = [np.concatenate(([0], np.searchsorted(value, edges), [len(value)])) for value, _ in runs]
    for place in range(len(edges) + 1):
        taken = [(v[c[place] : c[place + 1]], n[c[place] : c[place + 1]]) for (v, n), c in zip(runs, cuts, strict=True)]
        value, count = (np.concatenate(column) for column in zip(*taken, strict=True))
        if not len(value):
            continue
        order = np.argsort(value, kind="stable")
        value = value[order]
        at = np.flatnonzero(np.concatenate(([True], value[1:] != value[:-1])))
        yield value[at], np.add.reduceat(count[order], at)


def _no_statistics() -> Any:
    nothing = np.empty(0, np.int64)
    return pa.table(statistics(nothing, nothing, nothing))


def stacked(tables: Sequence[Any]) -> Any:
    """The rows of all tables of statistics, one at least; totals are decimals where those of one table are."""
    wide = next((t.schema.field("total").type for t in tables if pa.types.is_decimal(t.schema.field("total").type)), None)
    if wide is not None:
        tables = [t.set_column(t.column_names.index("total"), "total", pc.cast(t.column("total"), wide)) for t in tables]
    return pa.concat_tables(tables).combine_chunks()
