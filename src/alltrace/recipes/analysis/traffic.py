"""Samples of network adapters and InfiniBand switches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.lookups import texts_of
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.intervals import by_track

READS = {
    "nic_metrics": ("start", "end", "nic", "guid", "metric", "value"),
    "switch_metrics": ("start", "end", "guid", "metric", "value"),
}
_WORDS = {"bytes sent": "Bytes Sent", "bytes received": "Bytes Recv", "send waits": "Congestion"}


@dataclass(frozen=True)
class Traffic:
    """The samples of one metric of one adapter or switch."""

    device: str  # `NIC` or `Switch`
    name: str  # the adapter's name; empty for a switch
    guid: str  # its GUID in hexadecimal; empty if it is not known
    word: str  # `Bytes Sent`, `Bytes Recv` or `Congestion`, or else the metric's own name
    # `word`, or the metric's own name if the adapter has several with that word, as for Ethernet and InfiniBand
    metric: str
    starts: Int64  # starts, ascending; int64 array of n, ns
    ends: Int64  # ends
    values: NDArray[np.float64]  # what was sampled, per millisecond; float64 array of n


def traffic(rank: Rank) -> list[Traffic]:
    """The samples of the rank's adapters and switches, by these and by metric."""
    return once(rank, "traffic", lambda: sorted(_find_traffic(rank), key=lambda t: (t.device, t.name, t.guid, t.metric)))


def _find_traffic(rank: Rank) -> list[Traffic]:
    by_direction = []
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
            by_direction.append(Traffic(device, names[own], hexadecimal, word, called, start[at], end[at], value[at]))
    return by_direction


def _word(metric: str) -> str:
    """What a metric counts, in a word that all adapters share; its own name if there is none."""
    return next((word for text, word in _WORDS.items() if metric.lower().endswith(text)), metric)
