"""The recipe `network_sum`: what went over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.base import FILE_CELL, Cell
from alltrace.recipes.nsys.network import PER_SECOND, READS, traffic
from alltrace.recipes.nsys.sampled import RankRows, statistics, statistics_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alltrace.recipes.base import RankTables


class NetworkSum(RankRows):
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send.

    Rates are per second, in bytes or ticks; the total is the rate by the time of each sample. Ranks of one host that each sampled
    the host's adapters have equal rows: do not add them up.
    """

    name = "network_sum"
    tables: ClassVar = READS
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
    chart = Chart("box", "Metric", ("Min", "Q1", "Median", "Q3", "Max"))

    def rank_rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A row per adapter or switch and metric."""
        for of in traffic(rank):
            rates = of.values * PER_SECOND
            took = np.maximum(of.ends - of.starts, 0)
            yield {
                "Device": of.device, "Name": of.name, "GUID": of.guid, "Metric": of.metric,
                **statistics(rates), "Total": float((rates * took).sum() / 1e9),
            }  # fmt: skip


RECIPE = NetworkSum()
