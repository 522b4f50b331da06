"""The recipes that describe durations by name, of MPI calls, ranges and projected ranges: `files`, `all_stats` and `rank_stats`.

The statistics are those of pandas' describe: quartiles are linear between neighbours, the deviation is that of a sample and null
for one value. nsys' `all_stats` has the mean of the ranks' deviations, the smallest first quartile, the median of medians and the
largest third quartile; here all are exact, under nsys' names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.nsys.base import FILE, FILE_CELL, FILES, RANK_CELL, Cell, SqlNsysRecipe, file_columns, files
from alltrace.nvidia.nsys.ranges import OF_NCCL, RANGES, projected_table
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.distribution import COUNT
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

TEXT = "Text"


def statistics(label: str, doc: str, *, exact: bool) -> tuple[Cell, ...]:
    """The cells of the statistics of a name.

    Args:
        label: Title of the name.
        doc: What is named.
        exact: Whether they are one rank's, which nsys does not round.
    """
    kind: Any = "exact_ns" if exact else "mean_ns"
    note = "" if exact else " (approx)"
    of_all = "" if exact else ", exact over all ranks"
    return (
        Cell(label, "text", doc),
        Cell("Count", "int", "How many there were."),
        Cell("Mean", kind, "Mean duration."),
        Cell(f"Std{note}", kind, f"Standard deviation of a sample (n - 1){of_all}; null for one."),
        Cell("Min", "ns", "Shortest."),
        Cell(f"Q1{note}", kind, f"First quartile, linear between neighbours{of_all}."),
        Cell(f"Median{note}", kind, f"Median{of_all}."),
        Cell(f"Q3{note}", kind, f"Third quartile{of_all}."),
        Cell("Max", "ns", "Longest."),
        Cell("Sum", "ns", "Their sum."),
    )


def statistics_columns(summary: Any, *, exact: bool) -> dict[str, Any]:
    """The columns of `statistics` but the name, from what `summarize` gave."""
    note = "" if exact else " (approx)"
    several = pc.greater(summary.column(COUNT), 1)
    return {
        "Count": summary.column(COUNT),
        "Mean": summary.column("mean"),
        f"Std{note}": pc.if_else(several, summary.column("stddev"), None),
        "Min": summary.column("min"),
        f"Q1{note}": summary.column("q1"),
        f"Median{note}": summary.column("median"),
        f"Q3{note}": summary.column("q3"),
        "Max": summary.column("max"),
        "Sum": summary.column("total"),
    }


class DurationSum(SqlNsysRecipe):
    """The statistics of durations by name, over all ranks and for each.

    Attributes:
        keys: The columns of name ids in `events`, without `value`.
        label: The names of keys: an expression over them.
        events: A SELECT of `rank`, `keys` and `value` (ns), a row for each event; those without length are left out, as nsys does.
    """

    keys: ClassVar[tuple[str, ...]] = ("name",)
    label: ClassVar[str] = "coalesce(text_of(name), '')"
    events: ClassVar[str]
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "all_stats": statistics(TEXT, "What is named so.", exact=False),
        "rank_stats": (*statistics(TEXT, "What is named so.", exact=True), RANK_CELL, FILE_CELL),
        **FILES,
    }
    chart: ClassVar[Chart | None] = Chart("box", TEXT, ("Min", "Q1 (approx)", "Median (approx)", "Q3 (approx)", "Max"))

    def map_statement(self, options: Mapping[str, Any]) -> str:
        """The distribution of the rank's durations by key."""
        return f"{distribution_statement(self.keys, self.events)} HAVING value > 0"

    def merge_statement(self, options: Mapping[str, Any]) -> str | None:
        """The distribution over all ranks, unless each has its own rows."""
        return None if options.get("by_rank") else merged_statement(self.keys)

    def ranks_stand_alone(self, options: Mapping[str, Any]) -> bool:
        """By rank."""
        return bool(options.get("by_rank"))

    def reduce_statement(self, options: Mapping[str, Any]) -> str:
        """The statistics by name, over all ranks or with the option `by_rank` for each."""
        by_rank = bool(options.get("by_rank"))
        statement = statistics_statement({TEXT: self.label}, self.keys, "type_7", by_rank=by_rank)
        return f'{statement}\nORDER BY {"rank, " if by_rank else ""}"{TEXT}"'

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The three tables, by name."""
        if not parts:
            return self.answer({})
        of_all, of_rank = (self.over_parts(parts, run, {**options, "by_rank": by_rank}) for by_rank in (False, True))
        called = files(run)
        every = {TEXT: of_all.column(TEXT), **statistics_columns(of_all, exact=False)}
        each = {TEXT: of_rank.column(TEXT), **statistics_columns(of_rank, exact=True)}
        each["Rank"] = of_rank.column(RANK)
        each[FILE] = pa.array([called[r] for r in of_rank.column(RANK).to_pylist()], pa.string())
        return self.answer({"all_stats": every, "rank_stats": each, "files": file_columns(parts, run)})


class MpiSum(DurationSum):
    """How long MPI calls took, by function, over all ranks and on each.

    A call that waits for several requests counts once, however many rows the profiler wrote of it. Calls without length are left
    out.
    """

    name = "mpi_sum"
    device = False
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"mpi": ("start", "end", "thread", "name", "kind")}
    events = """SELECT rank, name, max("end") - start AS value FROM mpi GROUP BY rank, thread, start, name, kind"""


class RangeDurationSum(DurationSum):
    """The statistics of durations of ranges by their names: their text, after the domain if several domains have it."""

    keys: ClassVar[tuple[str, ...]] = ("domain", "name")
    label = """coalesce(if(count(*) OVER (PARTITION BY coalesce(text_of(name), '')) > 1, text_of(domain) || ':', ''), '')
      || coalesce(text_of(name), '')"""

    def ranks_stand_alone(self, options: Mapping[str, Any]) -> bool:
        """Never: whether a name shows its domain depends on the domains of all ranks."""
        return False


class NvtxSum(RangeDurationSum):
    """How long NVTX ranges took on the CPU, by name, over all ranks and on each.

    Ranges pushed and popped, and started and ended, count alike. Those still open at the end of the capture, and those without
    length, are left out. The name of a range is its text, or `domain:text` if two domains have the same text.
    """

    name = "nvtx_sum"
    device = False
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = RANGES
    events = """SELECT rank, domain, name, "end" - start AS value FROM ranges"""


class NvtxGpuProjSum(RangeDurationSum):
    """How long the GPU work launched inside NVTX ranges took, by name, over all ranks and on each.

    It takes from its first start to its last end.

    A launch belongs to every range of its thread that contains the call. Ranges without work, those that another thread ended
    and those still open at the end of the capture are left out.
    """

    name = "nvtx_gpu_proj_sum"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = PROJECTION_READS
    projects = True
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("ranges", "api", ("kernels", "copies"))
    events = "SELECT rank, domain, name, projected.value AS value FROM projected"

    def rank_tables(self, rank: RankTables, options: Mapping[str, Any]) -> dict[str, Any]:
        """The projected ranges, which a compiled loop finds."""
        return {"projected": projected_table(rank)}


class NcclGpuProjSum(NvtxGpuProjSum):
    """How long the GPU work of calls of NCCL took, by function, over all ranks and on each: from its first start to its last end.

    A kernel that several grouped calls share counts for each of them.
    """

    name = "nccl_gpu_proj_sum"
    events: ClassVar[str] = f"{NvtxGpuProjSum.events} {OF_NCCL}"
