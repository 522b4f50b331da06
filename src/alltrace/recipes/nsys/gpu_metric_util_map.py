"""The recipe `gpu_metric_util_map`: how much of each GPU's multiprocessors was used, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.heatmap import HeatMap, binning
from alltrace.recipes.nsys.sampled import GPU_READS, bin_means, gpu_numbers, gpu_series, plain_metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables

_METRICS = {"SM Active": "multiprocessors with work", "SM Issue": "cycles that issue", "Tensor Active": "the tensor cores' cycles"}


class GpuMetricUtilMap(HeatMap):
    """How much of each GPU's multiprocessors was used, bin by bin: the means of SM Active, SM Issue and Tensor Active.

    A sample tells of the time before it. A bin without samples is not known, and not 0.
    """

    name = "gpu_metric_util_map"
    tables: ClassVar = {"gpu_metrics": GPU_READS}
    values = tuple(Cell(title, "percent", f"Mean share of {what}.") for title, what in _METRICS.items())
    labels = (Cell("GPU", "int", "Number of the GPU, as nsys has it."),)

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per GPU."""
        edges = binning(options).edges
        found: dict[int, dict[str, Any]] = {}
        for samples in gpu_series(rank):
            title = next((t for t in _METRICS if t.lower() == plain_metric(samples.metric)), None)
            if title is not None:
                found.setdefault(samples.key[0], {})[title] = bin_means(samples.times, samples.values, edges)
        numbers = gpu_numbers(rank, list(found))
        nothing = np.full(len(edges) - 1, np.nan)
        for device, values in found.items():
            yield {"GPU": numbers[device], **dict.fromkeys(_METRICS, nothing), **values}


RECIPE = GpuMetricUtilMap()
