"""The recipe `cuda_gpu_kern_hist`: how long kernels take, as a histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.kernel_names import BASE, name_column
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, RANK_CELL, Cell, SqlNsysRecipe, files
from alltrace.recipes.analysis.distribution import COUNT, VALUE
from alltrace.recipes.base import Chart, Option
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import bin_edges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RunFacts

_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
_BINS = (
    Cell("Range Start", "ns", "Shortest duration of the bin."),
    Cell("Range End", "ns", "The bin's durations are shorter than this."),
    Cell("Frequency", "int", "Kernels with a duration in the bin."),
    Cell("Percentage", "percent", "Of all kernels listed."),
    Cell("Cumulative", "percent", "Of all kernels listed, those of this bin and those before."),
)


class CudaGpuKernHist(SqlNsysRecipe):
    """Histogram of kernel durations: of all kernels, or of those with one name, over all ranks and per rank.

    Bins are equally wide, from the shortest duration on any rank to the longest. Percentiles are exact: the smallest duration that
    this percentage of the kernels does not exceed.
    """

    name = "cuda_gpu_kern_hist"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", "name", "short_name")}
    own: ClassVar[tuple[Option, ...]] = (
        Option("name", str, None, "Only kernels with this name."),
        BASE,
        Option("bins", int, 30, "Number of bins.", least=1, most=100_000),
    )
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "histogram": _BINS,
        "rank_histogram": (*_BINS, RANK_CELL, FILE_CELL),
        "percentiles": (Cell("Percentile", "int", "Per cent."), Cell("Duration", "ns", "Not exceeded by this many.")),
    }
    map_sql = """
SELECT rank, kernels."end" - kernels.start AS value, count(*) AS count
FROM kernels {chosen} kernels."end" IS NOT NULL GROUP BY rank, kernels."end" - kernels.start
"""
    chart: ClassVar[Chart | None] = Chart("histogram", "Range Start", ("Frequency",))

    def words(self, options: Mapping[str, Any]) -> dict[str, str]:
        """Which column names kernels, and which of them count."""
        named = f"JOIN names ON names.id = {name_column(options)} WHERE names.value = $name AND"
        return {"chosen": "WHERE" if options["name"] is None else named}

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The three tables."""
        if not parts:
            wanted = () if options["name"] is None else (f"no rank has a kernel called {options['name']!r}",)
            return self.answer({}, wanted)
        names = files(run)
        whole = pa.concat_tables([part.table for part in parts])
        value, count = integers(whole.column(VALUE)), integers(whole.column(COUNT))
        low, high = int(value.min()), int(value.max())
        edges = bin_edges(low, high + 1, min(options["bins"], high + 1 - low))
        of_rank = [_histogram(edges, integers(p.table.column(VALUE)), integers(p.table.column(COUNT))) for p in parts]
        each: dict[str, Any] = {title: np.concatenate([h[title] for h in of_rank]) for title in of_rank[0]}
        bins = len(edges) - 1
        each["Rank"] = np.repeat([part.rank for part in parts], bins)
        each[FILE] = pa.array([names[part.rank] for part in parts for _ in range(bins)], pa.string())
        order = np.argsort(value, kind="stable")
        reach = np.cumsum(count[order])
        ranks = [-(-int(reach[-1]) * p // 100) - 1 for p in _PERCENTS]
        marks = value[order][np.searchsorted(reach, ranks, side="right")]
        return self.answer(
            {
                "histogram": _histogram(edges, value, count),
                "rank_histogram": each,
                "percentiles": {"Percentile": list(_PERCENTS), "Duration": marks},
            }
        )


def _histogram(edges: NDArray[np.int64], value: NDArray[np.int64], count: NDArray[np.int64]) -> dict[str, Any]:
    at = np.searchsorted(edges, value, side="right") - 1
    found = np.zeros(len(edges) - 1, np.int64)
    np.add.at(found, at, count)
    total = int(found.sum())
    return {
        "Range Start": edges[:-1],
        "Range End": edges[1:],
        "Frequency": found,
        "Percentage": 100.0 * found / total,
        "Cumulative": 100.0 * np.cumsum(found) / total,
    }


RECIPE = CudaGpuKernHist()
