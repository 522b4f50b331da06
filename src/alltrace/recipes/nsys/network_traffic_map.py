"""The recipe `network_traffic_map`: what went over the network, as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.heatmap import HeatMap, binning
from alltrace.recipes.nsys.network import MIB, PER_SECOND, READS, traffic
from alltrace.recipes.nsys.sampled import bin_rates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables

_SCALES = {"Bytes Sent": PER_SECOND / MIB, "Bytes Recv": PER_SECOND / MIB, "Congestion": PER_SECOND}


class NetworkTrafficMap(HeatMap):
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send, bin by bin.

    A sample counts in a bin by its time in it; what no sample tells of is not known, and not 0.
    """

    name = "network_traffic_map"
    tables: ClassVar = READS
    values = (
        Cell("Bytes Sent", "mib_per_s", "Mean rate of what was sent."),
        Cell("Bytes Recv", "mib_per_s", "Mean rate of what was received."),
        Cell("Congestion", "ticks_per_s", "Mean rate of the waits to send."),
    )
    labels = (
        Cell("Device", "text", "NIC or Switch."),
        Cell("Name", "text", "The adapter's name."),
        Cell("GUID", "text", "GUID."),
    )

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per adapter or switch that has one of the metrics."""
        edges = binning(options).edges
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for of in traffic(rank):
            if of.metric in _SCALES:
                rates = bin_rates(of.starts, of.ends, of.values * _SCALES[of.metric], edges)
                found.setdefault((of.device, of.name, of.guid), {})[of.metric] = rates
        nothing = np.full(len(edges) - 1, np.nan)
        for (device, name, guid), values in found.items():
            yield {"Device": device, "Name": name, "GUID": guid, **dict.fromkeys(_SCALES, nothing), **values}


RECIPE = NetworkTrafficMap()
