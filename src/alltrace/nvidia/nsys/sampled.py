"""What the recipes share that are about sampled values: of GPUs, network adapters, switches and other samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.nvidia.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files
from alltrace.recipes.analysis.lookups import column
from alltrace.trace.intervals import bin_load_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts
    from alltrace.trace.arrays import Int64

    Reals = NDArray[np.float64]


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
