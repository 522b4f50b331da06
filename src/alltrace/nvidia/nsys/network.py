"""The recipes on network adapters and InfiniBand switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.nvidia.nsys.base import FILE_CELL, Cell
from alltrace.nvidia.nsys.heatmap import HeatMap, binning
from alltrace.nvidia.nsys.sampled import RankRows, bin_rates, statistics, statistics_cells
from alltrace.recipes.analysis.traffic import READS, traffic
from alltrace.recipes.base import Chart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from alltrace.recipes.base import RankTables

_PER_SECOND = 1000.0
"""The profiler writes rates per millisecond."""
_MIB = float(1 << 20)
_SCALES = {"Bytes Sent": _PER_SECOND / _MIB, "Bytes Recv": _PER_SECOND / _MIB, "Congestion": _PER_SECOND}


class NetworkSum(RankRows):
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send.

    Rates are per second, in bytes or ticks; the total is the rate by the time of each sample. Ranks of one host that each sampled
    the host's adapters have equal rows: do not add them up.
    """

    name = "network_sum"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = READS
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "analysis": (
            Cell("Device", "text", "NIC or Switch."),
            Cell("Name", "text", "The adapter's name."),
            Cell("GUID", "text", "GUID."),
            Cell("Metric", "text", "Bytes Sent, Bytes Recv, Congestion (waits to send), or another metric by its own name."),
            *statistics_cells("the samples' rates, per second"),
            Cell("Total", "real", "Bytes or ticks in all."),
            FILE_CELL,
        )
    }
    chart: ClassVar[Chart | None] = Chart("box", "Metric", ("Min", "Q1", "Median", "Q3", "Max"))

    def rank_rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A row per adapter or switch and metric."""
        for of in traffic(rank):
            rates = of.values * _PER_SECOND
            took = np.maximum(of.ends - of.starts, 0)
            yield {
                "Device": of.device, "Name": of.name, "GUID": of.guid, "Metric": of.metric,
                **statistics(rates), "Total": float((rates * took).sum() / 1e9),
            }  # fmt: skip


class NetworkTrafficMap(HeatMap):
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send, bin by bin.

    A sample counts in a bin by its time in it; what no sample describes is not known, and not 0. Of an adapter that counts Ethernet
    and InfiniBand apart both are added.
    """

    name = "network_traffic_map"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = READS
    values: ClassVar[tuple[Cell, ...]] = (
        Cell("Bytes Sent", "mib_per_s", "Mean rate of what was sent."),
        Cell("Bytes Recv", "mib_per_s", "Mean rate of what was received."),
        Cell("Congestion", "ticks_per_s", "Mean rate of the waits to send."),
    )
    labels: ClassVar[tuple[Cell, ...]] = (
        Cell("Device", "text", "NIC or Switch."),
        Cell("Name", "text", "The adapter's name."),
        Cell("GUID", "text", "GUID."),
    )

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per adapter or switch that has one of the metrics."""
        edges = binning(options).edges
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for of in traffic(rank):
            if of.word in _SCALES:
                rates = bin_rates(of.starts, of.ends, of.values * _SCALES[of.word], edges)
                adapter = found.setdefault((of.device, of.name, of.guid), {})
                before = adapter.get(of.word, np.full(len(rates), np.nan))
                adapter[of.word] = np.where(np.isnan(before) | np.isnan(rates), np.fmax(before, rates), before + rates)
        nothing = np.full(len(edges) - 1, np.nan)
        for (device, name, guid), values in found.items():
            yield {"Device": device, "Name": name, "GUID": guid, **dict.fromkeys(_SCALES, nothing), **values}
