"""The report `um_cpu_page_faults_sum`: page faults on the CPU by instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, merge
from alltrace.recipes.base import Chart
from alltrace.recipes.stats.base import RANK, RANK_CELL, Cell, StatsReport, with_rank
from alltrace.recipes.stats.cuda import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts


class UmCpuPageFaultsSum(StatsReport):
    """Unified-memory page faults on the CPU by the instruction that caused them, the most first."""

    name = "um_cpu_page_faults_sum"
    title = "Unified Memory CPU Page Faults Summary"
    tables: ClassVar = {"page_faults": ("kind", "source")}
    cells = (
        Cell("CPU Page Faults", "int", "Page faults."),
        Cell("CPU Instruction Address", "text", "Instruction that caused them, resolved where the source has symbols."),
    )
    chart = Chart("bars", "CPU Instruction Address", ("CPU Page Faults",))

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """How often each instruction (`source`, a name id) faulted."""
        faults = rank.table("page_faults", self.tables["page_faults"])
        faults = faults.filter(pc.equal(faults.column("kind").cast(pa.string()), "cpu"))
        return collect({"source": column(faults, "source")}, pa.array([0] * faults.num_rows, pa.int64()))

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """How often each instruction faulted on all ranks."""
        by_rank = bool(options.get("by_rank"))
        tables = [with_rank(part) if by_rank else part.table for part in parts if part.table.num_rows]
        if not tables:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        table = merge(tables).drop_columns([VALUE])
        table = table.append_column("text", pc.fill_null(run.texts(column(table, "source")), ""))
        order = [(RANK, "ascending")] if by_rank else []
        table = table.take(pc.sort_indices(table, [*order, (COUNT, "descending"), ("text", "ascending")]))
        columns = {"CPU Page Faults": table.column(COUNT), "CPU Instruction Address": table.column("text")}
        if by_rank:
            columns[RANK_CELL.title] = table.column(RANK)
        return self.answer(columns, options)


RECIPE = UmCpuPageFaultsSum()
