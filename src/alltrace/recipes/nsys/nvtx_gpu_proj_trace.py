"""The recipe `nvtx_gpu_proj_trace`: every range that launched GPU work, and where that work ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.base import Chart, Part
from alltrace.recipes.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files
from alltrace.recipes.nsys.filters import NVTX
from alltrace.recipes.stats.base import stack
from alltrace.recipes.stats.nvtx_gpu_proj_trace import RECIPE as REPORT
from alltrace.recipes.stats.nvtx_gpu_proj_trace import outside_row, outside_rows, trace_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, RankTables, RunFacts
    from alltrace.recipes.nsys.base import CellKind

_KINDS: dict[str, CellKind] = {"time": "ns", "int": "int", "text": "text"}


class NvtxGpuProjTrace(NsysRecipe):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside, rank by rank.

    As the report of `alltrace stats` of that name, which has the ranks in one. A rank's first row, without a name, stands for the
    work launched outside all ranges.
    """

    name = "nvtx_gpu_proj_trace"
    tables = REPORT.tables
    requires = REPORT.requires
    own = (NVTX,)
    results = {"trace": (*(Cell(c.title, _KINDS[c.kind], c.doc) for c in REPORT.cells), FILE_CELL)}  # noqa: RUF012
    chart = Chart("scatter", "Projected Start", ("Projected Duration",), FILE)

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The projected ranges of the rank."""
        return REPORT.map(rank, {"by_rank": False})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges of each rank by number, behind its work outside of ranges."""
        if not parts:
            return self.answer({})
        called = files(run)
        cells = self.results["trace"][:-1]
        schema = pa.schema([cell.field() for cell in cells])
        tables, owners = [], []
        for part in parts:
            outside = outside_rows(part.table)
            for row in outside.to_pylist():
                cell = outside_row(part.rank, row)
                tables.append(pa.Table.from_pylist([{c.title: cell.get(c.title) for c in cells}], schema=schema))
                owners.append(part.rank)
            inside = part.table.slice(0, part.table.num_rows - outside.num_rows)
            if inside.num_rows:
                columns = trace_columns([Part(part.rank, inside)], run)
                tables.append(pa.table([columns[f.name] for f in schema], names=schema.names).cast(schema))
                owners.append(part.rank)
        whole = stack(tables)  # in pieces: there may be a row for each kernel of all ranks
        names = pa.array([called[rank] for rank in owners], pa.string())
        rows = np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])
        return self.answer({"trace": {**{n: whole.column(n) for n in whole.column_names}, FILE: names.take(pa.array(rows))}})


RECIPE = NvtxGpuProjTrace()
