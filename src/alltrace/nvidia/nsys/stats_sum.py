"""What the recipes share that carry a report of `nsys stats` over ranks: `all_stats` and `rank_stats`.

The events, their names and the statistics of one rank are those of the report (`alltrace.nvidia.stats`). nsys takes the smallest
first quartile, the median of medians and the largest third quartile of its files for those of all; here they are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia import report_sums as sums
from alltrace.nvidia.cells import shares
from alltrace.nvidia.kernel_names import BASE, MANGLED
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, Cell, CellKind, NsysRecipe, files, filtered_input
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.distribution import COUNT
from alltrace.recipes.base import Chart
from alltrace.recipes.sql_recipe import not_by_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.nvidia.report_sums import Sum
    from alltrace.recipes.base import Answer, Option, Part, RankTables, RunFacts

_EXACT: dict[CellKind, CellKind] = {"mean_bytes": "exact_bytes"}
"""nsys rounds times of a report, and sizes of all only."""

_FILES = "a list where several ranks have it"


class StatsSum(NsysRecipe):
    """The statistics of a report of `nsys stats`, over all ranks and for each.

    Attributes:
        report: The report.
    """

    name: ClassVar[str]
    tables: ClassVar[Mapping[str, tuple[str, ...]]]
    requires: ClassVar[tuple[str | tuple[str, ...], ...]]
    results: ClassVar[Mapping[str, tuple[Cell, ...]]]
    report: ClassVar[Sum]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose the tables from the report's words."""
        if "report" in vars(cls):
            cls.name, cls.tables, cls.requires = cls.report.name, cls.report.tables, cls.report.requires
            cells = _cells(cls.report)
            ends = (
                Cell("Min File", "text", f"Rank's report with the smallest; {_FILES}."),
                Cell("Max File", "text", f"With the largest; {_FILES}."),
            )
            cls.results = {
                "all_stats": (*cells, *ends),
                "rank_stats": (*(cell._replace(kind=_EXACT.get(cell.kind, cell.kind), half_up=True) for cell in cells), FILE_CELL),
            }
        super().__init_subclass__(**kwargs)

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distribution of the rank's values by key."""
        return self.report.map(rank, options)

    def shown_statement(self, options: Mapping[str, Any]) -> str:
        """The statistics over all ranks as one statement; those of each rank are the same by rank.

        Raises:
            UsageError: A filter is given.
        """
        filtered = filtered_input(options)
        if filtered is not None:
            raise not_by_sql(self.name, filtered)
        return self.report.shown_statement({**options, "quartiles": True})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """Both tables; the largest total first."""
        if not parts:
            return self.answer({})
        label = self.report.named[0].title
        of_all, of_rank = (
            self.report.over_parts(parts, run, {**options, "quartiles": True, "by_rank": by_rank}) for by_rank in (False, True)
        )
        called = files(run)
        every = self._columns(of_all)
        every["Min File"], every["Max File"] = (self._holders(of_all, of_rank, which, called) for which in ("min", "max"))
        each = self._columns(of_rank, within=of_rank.column(RANK))
        each[FILE] = pa.array([called[r] for r in of_rank.column(RANK).to_pylist()], pa.string())
        each[RANK] = of_rank.column(RANK)
        total = "Total" if self.report.sizes else "Total Time"
        return self.answer(
            {"all_stats": _ordered(every, [(total, "descending"), (label, "ascending")]),
             "rank_stats": _ordered(each, [(RANK, "ascending"), (total, "descending"), (label, "ascending")])}
        )  # fmt: skip

    def _columns(self, summary: Any, within: Any = None) -> dict[str, Any]:
        sizes, label = self.report.sizes, self.report.named[0].title
        columns = {
            label: summary.column(label),
            "Total" if sizes else "Total Time": summary.column("total"),
            self.report.counted: summary.column(COUNT),
            "Avg": summary.column("mean"), "Q1": summary.column("q1"), "Med": summary.column("median"), "Q3": summary.column("q3"),
            "Min": summary.column("min"), "Max": summary.column("max"), "StdDev": summary.column("stddev"),
        }  # fmt: skip
        return columns if sizes else {"Time": shares(summary.column("total"), within), **columns}

    def _holders(self, of_all: Any, of_rank: Any, which: str, called: Mapping[int, str]) -> Any:
        """For each row of `of_all` the files of the ranks that have its smallest or largest value."""
        names = list(self.report.labels)
        holders: dict[tuple[Any, ...], list[int]] = {}
        for *name, value, rank in zip(*(of_rank.column(c).to_pylist() for c in (*names, which, RANK)), strict=True):
            holders.setdefault((*name, value), []).append(rank)
        wanted = zip(*(of_all.column(c).to_pylist() for c in (*names, which)), strict=True)
        return pa.array([", ".join(called[r] for r in sorted(holders[key])) for key in wanted], pa.string())


def _cells(report: Sum) -> tuple[Cell, ...]:
    whole: CellKind = "bytes" if report.sizes else "ns"
    part: CellKind = "mean_bytes" if report.sizes else "mean_ns"
    share = () if report.sizes else (Cell("Time", "percent", "Share of the sum of Total Time over the rows listed."),)
    return (
        Cell(report.named[0].title, "text", report.named[0].doc),
        *share,
        Cell("Total" if report.sizes else "Total Time", whole, "Their sum."),
        Cell(report.counted, "int", "How many there were."),
        Cell("Avg", part, "Mean."),
        Cell("Q1", part, "First quartile (Hyndman and Fan's type 2, as in `stats`)."),
        Cell("Med", part, "Median."),
        Cell("Q3", part, "Third quartile."),
        Cell("Min", whole, "Smallest."),
        Cell("Max", whole, "Largest."),
        Cell("StdDev", part, "Standard deviation of a sample (n - 1); 0 for one."),
    )


def _ordered(columns: Mapping[str, Any], order: Sequence[tuple[str, str]]) -> dict[str, Any]:
    table = pa.table({name: np.asarray(v) if isinstance(v, list) else v for name, v in columns.items()})
    table = table.take(pc.sort_indices(table, list(order)))
    return {name: table.column(name) for name in table.column_names}


class CudaApiSum(StatsSum):
    """The time that CUDA calls took on the CPU, by function, over all ranks and on each."""

    report: ClassVar[Sum] = sums.cuda_api_sum
    device = False
    chart: ClassVar[Chart | None] = Chart("bars", "Name", ("Total Time",))


class CudaGpuKernSum(StatsSum):
    """The time that kernels ran on GPUs, by name, over all ranks and on each."""

    report: ClassVar[Sum] = sums.cuda_gpu_kern_sum
    own: ClassVar[tuple[Option, ...]] = (BASE, MANGLED)
    chart: ClassVar[Chart | None] = Chart("bars", "Name", ("Total Time",))


class CudaGpuMemSizeSum(StatsSum):
    """The bytes of copies and fills on GPUs, by direction, over all ranks and on each."""

    report: ClassVar[Sum] = sums.cuda_gpu_mem_size_sum
    chart: ClassVar[Chart | None] = Chart("bars", "Operation", ("Total",))


class CudaGpuMemTimeSum(StatsSum):
    """The time that copies and fills took on GPUs, by direction, over all ranks and on each."""

    report: ClassVar[Sum] = sums.cuda_gpu_mem_time_sum
    chart: ClassVar[Chart | None] = Chart("bars", "Operation", ("Total Time",))


class OsrtSum(StatsSum):
    """The time that calls of the operating system's runtime took, by function, over all ranks and on each."""

    report: ClassVar[Sum] = sums.osrt_sum
    device = False
    chart: ClassVar[Chart | None] = Chart("bars", "Name", ("Total Time",))
