"""The recipes on network adapters and InfiniBand switches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow.compute as pc

from alltrace.recipes.base import Chart
from alltrace.recipes.execution.shared_tables import once
from alltrace.recipes.nsys.base import FILE_CELL, Cell
from alltrace.recipes.nsys.heatmap import HeatMap, binning
from alltrace.recipes.nsys.sampled import RankRows, bin_rates, statistics, statistics_cells, texts_of
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import by_track

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables
    from alltrace.trace.arrays import Int64

READS = {
    "nic_metrics": ("start", "end", "nic", "guid", "metric", "value"),
    "switch_metrics": ("start", "end", "guid", "metric", "value"),
}
_PER_SECOND = 1000.0
"""The profiler writes rates per millisecond."""
_MIB = float(1 << 20)
_SCALES = {"Bytes Sent": _PER_SECOND / _MIB, "Bytes Recv": _PER_SECOND / _MIB, "Congestion": _PER_SECOND}
_WORDS = {"bytes sent": "Bytes Sent", "bytes received": "Bytes Recv", "send waits": "Congestion"}


@dataclass(frozen=True)
class Traffic:
    """The samples of one metric of one adapter or switch.

    Attributes:
        device: `NIC` or `Switch`.
        name: The adapter's name; empty for a switch.
        guid: Its GUID in hexadecimal; empty if it is not known.
        word: `Bytes Sent`, `Bytes Recv` or `Congestion`, or else the metric's own name.
        metric: `word`, or the metric's own name if the adapter has several with that word, as for Ethernet and InfiniBand.
        starts: Starts, ascending; int64 array of n, ns.
        ends: Ends.
        values: What was sampled, per millisecond; float64 array of n.
    """

    device: str
    name: str
    guid: str
    word: str
    metric: str
    starts: Int64
    ends: Int64
    values: NDArray[np.float64]


def traffic(rank: RankTables) -> list[Traffic]:
    """The samples of the rank's adapters and switches, by these and by metric."""
    return once(rank, "traffic", lambda: sorted(_find_traffic(rank), key=lambda t: (t.device, t.name, t.guid, t.metric)))


def _find_traffic(rank: RankTables) -> list[Traffic]:
    found = []
    for table, device in (("nic_metrics", "NIC"), ("switch_metrics", "Switch")):
        rows = rank.table(table, READS[table])
        rows = rows.filter(pc.is_finite(rows.column("value").fill_null(float("nan"))))
        start, end, guid, metric = (integers(rows.column(c), -1) for c in ("start", "end", "guid", "metric"))
        name = integers(rows.column("nic"), -1) if device == "NIC" else np.full(len(start), -1, np.int64)
        value = rows.column("value").to_numpy()
        order = np.lexsort((value, end, start, metric, guid, name))
        name, guid, metric, start, end = (v[order] for v in (name, guid, metric, start, end))
        value = value[order]
        names, metrics = texts_of(rank, name), texts_of(rank, metric)
        tracks = list(by_track(name, guid, metric))
        of_adapter = Counter((own, number, _word(metrics[kind])) for (own, number, kind), _ in tracks)
        for (own, number, kind), at in tracks:
            word = _word(metrics[kind])
            called = word if of_adapter[own, number, word] == 1 else metrics[kind]
            hexadecimal = "" if number == -1 else f"0x{number & (1 << 64) - 1:016x}"
            found.append(Traffic(device, names[own], hexadecimal, word, called, start[at], end[at], value[at]))
    return found


def _word(metric: str) -> str:
    """What a metric counts, in a word that all adapters share; its own name if there is none."""
    return next((word for text, word in _WORDS.items() if metric.lower().endswith(text)), metric)


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
