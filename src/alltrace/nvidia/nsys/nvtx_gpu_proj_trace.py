"""The recipe `nvtx_gpu_proj_trace`: every range that launched GPU work, and where that work ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.nvidia.filters import NVTX
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files, with_filters_told
from alltrace.nvidia.range_reports import inside_and_outside, inside_cells, outside_cells
from alltrace.nvidia.range_reports import nvtx_gpu_proj_trace as _report
from alltrace.nvidia.ranges import number_ranges
from alltrace.recipes.base import Chart, Part

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from alltrace.nvidia.nsys.base import CellKind
    from alltrace.recipes.base import Answer, Option, RankTables, RunFacts
    from alltrace.recipes.row_stream import StreamedRank

_KINDS: dict[str, CellKind] = {"time": "ns", "int": "int", "name": "text"}


class NvtxGpuProjTrace(NsysRecipe):
    """Every range that launched GPU work: from the first start to the last end of what was launched inside, rank by rank.

    Like the report of `alltrace stats` with that name, which has all ranks in one table. A rank's first row, without a name,
    represents the work launched outside all ranges.
    """

    name = "nvtx_gpu_proj_trace"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = _report.tables
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = _report.requires
    on_one_clock = True
    own: ClassVar[tuple[Option, ...]] = (NVTX,)
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "trace": (*(Cell(c.title, _KINDS[c.kind], c.doc) for c in _report.cells), FILE_CELL)
    }
    chart: ClassVar[Chart | None] = Chart("scatter", "Projected Start", ("Projected Duration",), FILE)

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows if ranges are missing."""
        return {**super().without(options), **_report.without(options)}

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The projected ranges of the rank."""
        return _report.map(rank, {"by_rank": False})

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The same, one rank after the other."""
        parts = (Part(rank.rank, self.map(rank.whole(), options)) for rank in ranks)
        answer = self.answer({"trace": self._pieces(parts, run)})
        return with_filters_told(answer, options) if ranks else answer

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """All ranges of each rank by number, after its work outside of ranges."""
        return self.answer({"trace": self._pieces(parts, run)})

    def _pieces(self, parts: Iterable[Part], run: RunFacts) -> Generator[Mapping[str, Any], None, None]:
        """The rows of one rank after the other."""
        called = files(run)
        titles = [cell.title for cell in self.results["trace"][:-1]]
        for part in parts:
            ranged, outside = inside_and_outside(part)
            for row in outside.drop_columns(["correlations"]).to_pylist():
                cell = outside_cells(part.rank, row)
                yield {**{title: pa.array([cell.get(title)]) for title in titles}, FILE: [called[part.rank]]}
            if ranged.table.num_rows:
                (numbering,) = number_ranges([ranged], run)
                columns = inside_cells(ranged, numbering, run)
                yield {**{t: columns.column(t) for t in titles}, FILE: pa.repeat(called[part.rank], columns.num_rows)}


RECIPE = NvtxGpuProjTrace()
