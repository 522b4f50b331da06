"""The report `um_total_sum`: unified-memory migrations and faults in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from alltrace.recipes.stats.base import RANK, RANK_CELL, Cell, StatsReport
from alltrace.recipes.stats.um import TABLES, activity, hexadecimal, summed, together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts


class UmTotalSum(StatsReport):
    """Unified-memory migrations and page faults in all; no row where there were none."""

    name = "um_total_sum"
    title = "Unified Memory Totals Summary"
    tables: ClassVar = TABLES
    cells = (
        Cell("Total HtoD Migration Size", "size", "Bytes moved from host to device."),
        Cell("Total DtoH Migration Size", "size", "Bytes moved from device to host."),
        Cell("Total CPU Page Faults", "int", "Page faults on the CPU."),
        Cell("Total GPU PageFaults", "int", "Page faults on GPUs; empty where there were none."),
        Cell("Minimum Virtual Address", "text", "Lowest address moved or faulted on."),
        Cell("Maximum Virtual Address", "text", "Highest address moved or faulted on."),
    )

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's activity by address."""
        return activity(rank)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The activity of all ranks."""
        table = together(parts, options)
        by_rank = bool(options.get("by_rank"))
        found = summed(table, [RANK] if by_rank else []) if table.num_rows else table
        columns = {
            "Total HtoD Migration Size": found.column("htod"),
            "Total DtoH Migration Size": found.column("dtoh"),
            "Total CPU Page Faults": pc.fill_null(found.column("cpu"), 0),
            "Total GPU PageFaults": found.column("gpu"),
            "Minimum Virtual Address": hexadecimal(found.column("low" if table.num_rows else "address")),
            "Maximum Virtual Address": hexadecimal(found.column("high" if table.num_rows else "address")),
        }
        if by_rank:
            columns[RANK_CELL.title] = found.column(RANK)
        return self.answer(columns, options)


RECIPE = UmTotalSum()
