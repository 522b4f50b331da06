"""Sampled values of a rank's GPUs and of other samplers, as series."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.lookups import look_up, texts_of
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.intervals import by_track

Reals = NDArray[np.float64]

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
    values: Reals  # float64 array of n


def gpu_series(rank: Rank) -> list[Series]:
    """The samples of each device and metric, by device and the metric's name; unknown values are left out."""

    def make() -> list[Series]:
        table = rank.table("gpu_metrics", GPU_READS)
        return series(rank, table, "device", "metric", time="time")

    return once(rank, "gpu series", make)


def gpu_series_of_host(rank: Rank) -> list[Series]:
    """The same with the samples of the rank's GPUs that another report of its host has."""
    return once(rank, "gpu series of host", lambda: series(rank, rank.gpu_samples(GPU_READS), "device", "metric", time="time"))


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
