"""The report `nvtx_gpu_proj_sum`: projected ranges by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import RANK, RANK_CELL, Cell, with_rank
from alltrace.nvidia.stats.nvtx import STYLE, range_labels, style_labels
from alltrace.nvidia.stats.nvtx_gpu_proj import ProjectionReport
from alltrace.recipes.analysis.distribution import COUNT, collect, summarize
from alltrace.recipes.base import Chart
from alltrace.trace.arrays import exact_sums, integers, whole_numbers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RunFacts


class NvtxGpuProjSum(ProjectionReport):
    """The GPU time of ranges, from the first start to the last end of the work launched inside, by name and style.

    Nothing is taken off a range for the ranges inside it. Ranges without a text are left out.
    """

    name = "nvtx_gpu_proj_sum"
    title = "NVTX GPU Projection Summary"
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Range", "text", "Range."),
        STYLE,
        Cell("Total Proj Time", "time", "Projected lengths together."),
        Cell("Total Range Time", "time", "Lengths on the CPU together."),
        Cell("Range Instances", "int", "Ranges of that name."),
        Cell("Proj Avg", "mean_time", "Mean projected length."),
        Cell("Proj Med", "mean_time", "Median projected length."),
        Cell("Proj Min", "time", "Smallest projected length."),
        Cell("Proj Max", "time", "Largest projected length."),
        Cell("Proj StdDev", "mean_time", "Standard deviation of a sample (n - 1); 0 for one range."),
        Cell("Total GPU Ops", "int", "Launches inside."),
        Cell("Avg GPU Ops", "real", "Launches inside per range."),
        Cell("Avg Range Lvl", "real", "Mean number of projected ranges around."),
        Cell("Avg Num Child", "real", "Mean number of children."),
    )
    chart: ClassVar[Chart | None] = Chart("bars", "Range", ("Total Proj Time (ns)", "Total Range Time (ns)"), detail="Style")

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The statistics of each name and style, the largest total first."""
        tables = [with_rank(part) for part in parts if part.table.num_rows]
        whole = pa.concat_tables(tables) if tables else pa.table({"name": pa.array([], pa.int64())})
        whole = whole.filter(whole.column("name").is_valid()).combine_chunks()
        if not whole.num_rows:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        codes, first = group([whole.column("domain"), whole.column("name")])
        distinct = whole.take(pa.array(first)).combine_chunks()
        labels = range_labels(distinct.column("domain").combine_chunks(), distinct.column("name").combine_chunks(), run)
        keys = {"Range": labels.take(pa.array(codes)), "Style": style_labels(whole.column("kind").combine_chunks())}
        if options.get("by_rank"):
            keys = {RANK: whole.column(RANK).combine_chunks(), **keys}
        group_of, some = group(list(keys.values()))
        length = integers(whole.column("last")) - integers(whole.column("first"))
        # groups are in order of number, so that these sums and the statistics have the same order
        stats = summarize(collect({"group": pa.array(group_of)}, length))
        stats = stats.take(pc.sort_indices(stats, [("group", "ascending")]))
        count = integers(stats.column(COUNT))

        def total(values: Any) -> Any:
            return exact_sums(values, group_of, len(some))

        operations = total(integers(whole.column("operations")))
        table = pa.table(
            {
                **{name: column.take(pa.array(some)) for name, column in keys.items()},
                "Total Proj Time": stats.column("total"),
                "Total Range Time": whole_numbers(total(integers(whole.column("end")) - integers(whole.column("start")))),
                "Range Instances": count,
                "Proj Avg": stats.column("mean"), "Proj Med": stats.column("median"),
                "Proj Min": stats.column("min"), "Proj Max": stats.column("max"), "Proj StdDev": stats.column("stddev"),
                "Total GPU Ops": operations,
                "Avg GPU Ops": operations / count,
                "Avg Range Lvl": total(integers(whole.column("Lvl"))) / count,
                "Avg Num Child": total(integers(whole.column("NumChild"))) / count,
            }
        )  # fmt: skip
        order = [(RANK, "ascending")] if RANK in keys else []
        order += [("Total Proj Time", "descending"), ("Range", "ascending"), ("Style", "ascending")]
        table = table.take(pc.sort_indices(table, order))
        columns = {name: table.column(name) for name in table.column_names}
        if RANK in keys:
            columns[RANK_CELL.title] = columns[RANK]
        return self.answer(columns, options)


RECIPE = NvtxGpuProjSum()
