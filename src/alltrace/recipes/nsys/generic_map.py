"""What the heat maps share of counters that other samplers wrote: those of Amazon's EFA, and of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.heatmap import HeatMap, binning
from alltrace.recipes.nsys.sampled import bin_means, series, texts_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables

READS = ("time", "source", "metric", "value")


class GenericMap(HeatMap):
    """Counters of a sampler, bin by bin: the mean of the samples of each.

    Attributes:
        wanted: What the name of the sampler or of the counter must hold.
    """

    wanted: ClassVar[re.Pattern[str]]
    tables: ClassVar = {"generic_metrics": READS}
    values = (Cell("Value", "real", "Mean of the samples, in the counter's own unit."),)
    labels = (Cell("Source", "text", "The sampler."), Cell("Metric", "text", "The counter, with its device where it has one."))

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per counter."""
        cut = binning(options)
        found = series(rank, rank.table("generic_metrics", READS), "source", "metric", time="time")
        names = texts_of(rank, np.array([s.key[0] for s in found], np.int64))
        for samples in sorted(found, key=lambda s: (names[s.key[0]], s.metric)):
            source = names[samples.key[0]]
            if self.wanted.search(source) or self.wanted.search(samples.metric):
                times = samples.times - cut.origins.get(rank.rank, 0)
                yield {"Source": source, "Metric": samples.metric, "Value": bin_means(times, samples.values, cut.edges)}
