"""The recipe `nvlink_sum`: how much of NVLink each GPU used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.nvidia.nsys.base import FILE_CELL, Cell
from alltrace.nvidia.nsys.sampled import RankRows, statistics, statistics_cells
from alltrace.recipes.analysis.sampled import GPU_READS, gpu_numbers, gpu_series
from alltrace.recipes.base import Chart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alltrace.recipes.base import RankTables


class NvlinkSum(RankRows):
    """How much of its NVLink throughput each GPU used, in per cent, received and sent: the GPU metrics that name NVLink.

    Metrics of links that are not active can look saturated; ask only for GPUs that have links.
    """

    name = "nvlink_sum"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"gpu_metrics": GPU_READS}
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "analysis": (
            Cell("GPU", "int", "Number of the GPU in nsys."),
            Cell("Metric", "text", "Metric."),
            *statistics_cells("its values"),
            FILE_CELL,
        )
    }
    chart: ClassVar[Chart | None] = Chart("box", "Metric", ("Min", "Q1", "Median", "Q3", "Max"))

    def rank_rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A row per GPU and metric."""
        found = [s for s in gpu_series(rank) if "nvlink" in s.metric.lower()]
        numbers = gpu_numbers(rank, sorted({s.key[0] for s in found}))
        for samples in found:
            yield {"GPU": numbers[samples.key[0]], "Metric": samples.metric} | statistics(samples.values)


RECIPE = NvlinkSum()
