"""The report `um_sum`: unified-memory migrations and faults by address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import Answer, Chart, Option, Part, RankTables, RunFacts
from alltrace.recipes.stats.base import BY_RANK, RANK, RANK_CELL, Cell, StatsReport
from alltrace.recipes.stats.um import TABLES, activity, hexadecimal, together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class UmSum(StatsReport):
    """Unified-memory migrations and page faults by virtual address, the fastest migrations first."""

    name = "um_sum"
    title = "Unified Memory Analysis Summary"
    tables: ClassVar = TABLES
    options = (Option("rows", int, default=10, help="The most rows; a negative number for all."), BY_RANK)
    cells = (
        Cell("Virtual Address", "text", "Base address of the pages."),
        Cell("HtoD Migration size", "size", "Bytes moved from host to device."),
        Cell("DtoH Migration size", "size", "Bytes moved from device to host."),
        Cell("CPU Page Faults", "int", "Page faults on the CPU."),
        Cell(" GPU Page Faults", "int", "Page faults on GPUs."),
        Cell("Migration Throughput", "throughput", "Bytes moved times the whole number of such moves that fit in a second."),
    )
    chart = Chart("stacked_bars", "Virtual Address", ("HtoD Migration size (MB)", "DtoH Migration size (MB)"))

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's activity by address."""
        return activity(rank)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The activity of all ranks by address."""
        table = together(parts, options)
        table = table.filter(pc.is_valid(table.column("address")))
        moved = pc.add(pc.fill_null(table.column("htod"), 0), pc.fill_null(table.column("dtoh"), 0))
        took = table.column("took_ns")
        per_second = pc.divide(pa.scalar(1_000_000_000, pa.int64()), pc.if_else(pc.greater(took, 0), took, None))
        rate = pc.multiply(moved.cast(pa.float64(), safe=False), per_second.cast(pa.float64()))
        faulted = pc.if_else(pc.is_valid(table.column("cpu")), 0, pc.if_else(pc.is_valid(table.column("gpu")), 1, 2))
        table = table.append_column("rate", rate).append_column("faulted", faulted)
        order = [(RANK, "ascending")] if options.get("by_rank") else []
        table = table.take(
            pc.sort_indices(table, [*order, ("rate", "descending"), ("faulted", "ascending"), ("address", "ascending")])
        )
        rows = options.get("rows", 10)
        if rows >= 0:
            table = table.slice(0, rows)
        columns = {
            "Virtual Address": hexadecimal(table.column("address")),
            "HtoD Migration size": table.column("htod"),
            "DtoH Migration size": table.column("dtoh"),
            "CPU Page Faults": table.column("cpu"),
            " GPU Page Faults": table.column("gpu"),
            "Migration Throughput": table.column("rate"),
        }
        if options.get("by_rank"):
            columns[RANK_CELL.title] = table.column(RANK)
        return self.answer(columns, options)


RECIPE = UmSum()
