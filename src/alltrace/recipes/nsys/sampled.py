"""What the recipes share that are about sampled values: of GPUs, network adapters, switches and other samplers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.execution.shared_tables import once
from alltrace.recipes.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files
from alltrace.recipes.stats.cuda import column, look_up
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import bin_load_ns, by_track

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts
    from alltrace.trace.arrays import Int64

    Reals = NDArray[np.float64]

GPU_READS = ("time", "device", "metric", "value")
_SUFFIX = re.compile(r"\s*\[[^\]]*\]\s*$")


def plain_metric(name: str) -> str:
    """A GPU metric's name without what versions of nsys add to it: `SMs Active [Throughput %]` is `sm active`."""
    return re.sub(r"\bsms\b", "sm", _SUFFIX.sub("", name).strip().lower())


@dataclass(frozen=True)
class Series:
    """The samples of one metric of one source, by their times.

    Attributes:
        key: The source: the row of a device, or name ids.
        metric: The metric's name.
        times: int64 array of n, ns.
        values: float64 array of n.
    """

    key: tuple[int, ...]
    metric: str
    times: Int64
    values: Reals


def gpu_series(rank: RankTables) -> list[Series]:
    """The samples of each device and metric, by device and the metric's name; values that are not known are left out."""

    def make() -> list[Series]:
        table = rank.table("gpu_metrics", GPU_READS)
        return series(rank, table, "device", "metric", time="time")

    return once(rank, "gpu series", make)


def gpu_series_of_host(rank: RankTables) -> list[Series]:
    """The same with the samples of the rank's GPUs that another report of its host has."""
    return once(rank, "gpu series of host", lambda: series(rank, rank.gpu_samples(GPU_READS), "device", "metric", time="time"))


def series(rank: RankTables, table: Any, *keys: str, time: str) -> list[Series]:
    """The samples of a table by `keys`, of which the last is the metric's name id; by key and time."""
    known = pc.is_finite(table.column("value").fill_null(float("nan")))
    table = table.filter(pc.and_(known, table.column(time).is_valid()))
    tracks = [integers(table.column(k), -1) for k in keys]
    times = integers(table.column(time))
    values = table.column("value").to_numpy()
    order = np.lexsort((values, times, *reversed(tracks)))
    tracks, times = [t[order] for t in tracks], times[order]
    values = values[order]
    names = texts_of(rank, tracks[-1])
    found = [Series(key[:-1], names[key[-1]], times[rows], values[rows]) for key, rows in by_track(*tracks)]
    return sorted(found, key=lambda s: (s.key, s.metric))


def texts_of(rank: RankTables, ids: Int64) -> dict[int, str]:
    """The texts of name ids; empty if there is none."""
    distinct = np.unique(ids)
    texts = rank.texts(pa.array(distinct, mask=distinct == -1))
    return {i: t or "" for i, t in zip(distinct.tolist(), texts.to_pylist(), strict=True)}


def gpu_numbers(rank: RankTables, devices: Sequence[int]) -> dict[int, int | None]:
    """What nsys calls the GPUs of rows of `devices`: its own number, or the CUDA ordinal if not known."""
    rows = pa.array(list(devices), pa.int32())
    known = rank.table("devices", ["device", "ordinal", "gpu"])
    numbers = pc.coalesce(look_up(known, "gpu", rows), look_up(known, "ordinal", rows))
    return dict(zip(devices, numbers.to_pylist(), strict=True))


def bin_means(times: Int64, values: Reals, edges: Int64) -> Reals:
    """The mean of the samples of each bin, NaN if there is none.

    A sample describes the time before it, so that one at the end of a bin belongs to it, and one at its start to the bin before.
    """
    at = np.searchsorted(edges, times, side="left") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    count = np.bincount(at[inside], minlength=len(edges) - 1)
    total = np.bincount(at[inside], weights=values[inside], minlength=len(edges) - 1)
    means: Reals = np.divide(total, count, out=np.full(len(edges) - 1, np.nan), where=count > 0)
    return means


def bin_rates(starts: Int64, ends: Int64, values: Reals, edges: Int64) -> Reals:
    """The mean in each bin of values that hold over intervals, weighted by their time in it; NaN if none does."""
    long = ends > starts
    starts, ends, values = starts[long], ends[long], values[long]
    zero = int(edges[0])
    total = np.diff(_integral(starts - zero, values, edges - zero) - _integral(ends - zero, values, edges - zero))
    known = bin_load_ns(starts, ends, edges)
    means: Reals = np.divide(total, known, out=np.full(len(edges) - 1, np.nan), where=known > 0)
    return means


def _integral(points: Int64, values: Reals, at: Int64) -> Reals:
    """The sum of value * (x - point) over the points before x, for each x of `at`."""
    order = np.argsort(points, kind="stable")
    points = points[order]
    values = values[order]
    sums: Reals = np.concatenate((np.zeros(1), np.cumsum(values)))
    weighted: Reals = np.concatenate((np.zeros(1), np.cumsum(values * points)))
    n = np.searchsorted(points, at, side="left")
    result: Reals = sums[n] * at - weighted[n]
    return result


def statistics_cells(what: str) -> tuple[Cell, ...]:
    """The columns of `statistics`."""
    return (
        Cell("Count", "int", "Samples."),
        Cell("Mean", "real", f"Mean of {what}."),
        Cell("Std", "real", "Standard deviation of a sample (n - 1); null for one."),
        Cell("Min", "real", "Smallest."),
        Cell("Q1", "real", "First quartile, linear between neighbours."),
        Cell("Median", "real", "Median."),
        Cell("Q3", "real", "Third quartile."),
        Cell("Max", "real", "Largest."),
    )


def statistics(values: Reals) -> dict[str, float | int | None]:
    """The statistics of some samples, at least one."""
    low, q1, median, q3, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return {
        "Count": len(values), "Mean": float(values.mean()), "Std": float(values.std(ddof=1)) if len(values) > 1 else None,
        "Min": low, "Q1": q1, "Median": median, "Q3": q3, "Max": high,
    }  # fmt: skip


class RankRows(NsysRecipe):
    """Rows that each rank makes independently; the answer is all of them, with the rank's file in the last column."""

    def rank_rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The rows of a rank, in their order: values by title, all but the file."""
        raise NotImplementedError

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's rows."""
        (cells,) = self.results.values()
        rows = list(self.rank_rows(rank, options))
        return pa.table({c.title: pa.array([row[c.title] for row in rows], c.field().type) for c in cells if c is not FILE_CELL})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The rows of all ranks."""
        if not parts:
            return self.answer({})
        called = files(run)
        whole = pa.concat_tables([part.table for part in parts])
        columns: dict[str, Any] = {name: column(whole, name) for name in whole.column_names}
        columns[FILE] = pa.array([called[part.rank] for part in parts for _ in range(part.table.num_rows)], pa.string())
        return self.answer({next(iter(self.results)): columns})
