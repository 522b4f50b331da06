"""Sampled values of a rank's GPUs and of other samplers, as series."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.lookups import look_up, texts_of
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Floats, Int64, integers
from alltrace.trace.intervals import by_track

# Samples of network adapters and InfiniBand switches.

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
    values: Floats  # what was sampled, per millisecond; float64 array of n


def traffic(rank: Rank) -> list[Traffic]:
    """The samples of the rank's adapters and switches, by these and by metric."""
    return once(
        rank, "traffic", lambda: sorted(_find_traffic(rank), key=lambda t: (t.device, t.name, t.guid, t.metric))
    )


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


GPU_READS = ("time", "device", "metric", "value")
_SUFFIX = re.compile(r"\s*\[[^\]]*\]\s*$")


def plain_metric(name: str) -> str:
    """A GPU metric's name without what versions of nsys add to it: `SMs Active [Throughput %]` is `sm active`."""
    return re.sub(r"\bsms\b", "sm", _SUFFIX.sub("", name).strip().lower())


@dataclass(frozen=True)
class Series:
    """The samples of one metric of one source, by their times."""

    key: tuple[int, ...]  # the source: the row of a device, or name ids
    metric: str  # the metric's name
    times: Int64  # int64 array of n, ns
    values: Floats  # float64 array of n


def gpu_series(rank: Rank) -> list[Series]:
    """The samples of each device and metric, by device and the metric's name; unknown values are left out."""

    def make() -> list[Series]:
        table = rank.table("gpu_metrics", GPU_READS)
        return series(rank, table, "device", "metric", time="time")

    return once(rank, "gpu series", make)


def gpu_series_of_host(rank: Rank) -> list[Series]:
    """The same with the samples of the rank's GPUs that another report of its host has."""
    return once(
        rank, "gpu series of host", lambda: series(rank, rank.gpu_samples(GPU_READS), "device", "metric", time="time")
    )


def series(rank: Rank, table: Any, *keys: str, time: str) -> list[Series]:
    """The samples of a table by `keys`, of which the last is the metric's name id; by key and time."""
    finite = pc.is_finite(table.column("value").fill_null(float("nan")))
    table = table.filter(pc.and_(finite, table.column(time).is_valid()))
    tracks = [integers(table.column(k), -1) for k in keys]
    times = integers(table.column(time))
    values = table.column("value").to_numpy()
    order = np.lexsort((values, times, *reversed(tracks)))
    tracks, times = [t[order] for t in tracks], times[order]
    values = values[order]
    names = texts_of(rank, tracks[-1])
    by_key = [Series(key[:-1], names[key[-1]], times[rows], values[rows]) for key, rows in by_track(*tracks)]
    return sorted(by_key, key=lambda s: (s.key, s.metric))


def gpu_numbers(rank: Rank, devices: Sequence[int]) -> dict[int, int | None]:
    """What nsys calls the GPUs of rows of `devices`: its own number, or the CUDA ordinal if not known."""
    rows = pa.array(list(devices), pa.int32())
    table = rank.table("devices", ["device", "ordinal", "gpu"])
    numbers = pc.coalesce(look_up(table, "gpu", rows), look_up(table, "ordinal", rows))
    return dict(zip(devices, numbers.to_pylist(), strict=True))
