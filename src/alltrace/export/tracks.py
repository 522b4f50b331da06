"""The tracks of a rank: its host threads and its devices' streams, and which call launched which work on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alltrace.export.columns import GPU_TABLES, HOST_TABLES, UNKNOWN, call_keys, numbers
from alltrace.export.selection import Selection
from alltrace.run.manifest import Device, RankRecord
from alltrace.trace.arrays import Int64


@dataclass
class Tracks:
    """The tracks of a rank with rows in the selection, by number: threads, streams, metrics of devices."""

    rank: RankRecord
    threads: list[int]  # rows of `threads`, ascending; `UNKNOWN` if a row does not say
    streams: list[tuple[int, int]]  # (device, stream), ascending; the stream is `UNKNOWN` if streams are folded
    metered: list[int]  # devices with metrics, rows of `devices`
    ordinals: dict[int, int]  # for each device of the rank its CUDA ordinal, or its row if not known
    names: dict[int, str] = field(default_factory=dict)
    thread_ids: dict[int, int] = field(default_factory=dict)  # the system's ids of the threads, if known
    folded: bool = False  # whether the streams of a device are one track
    role: str | None = None  # what the rank does in a program of several groups of ranks; None if that is not known

    @property
    def process_name(self) -> str:
        """What viewers call the rank: `rank 3 trainer (n1)`."""
        return f"rank {self.rank.rank}{f' {self.role}' if self.role else ''} ({self.rank.host})"

    def __post_init__(self) -> None:
        self._threads = np.array(self.threads, np.int64)
        self._streams = np.array([_pair(np.int64(d), np.int64(s)) for d, s in self.streams], np.int64)
        self._metered = np.array(self.metered, np.int64)

    def __len__(self) -> int:
        return len(self.threads) + len(self.streams) + len(self.metered)

    def of_threads(self, threads: Int64) -> Int64:
        """The tracks of threads, -1 for one without."""
        return _places(self._threads, threads)

    def of_streams(self, devices: Int64, streams: Int64) -> Int64:
        """The tracks of streams, -1 for one without."""
        places = _places(self._streams, _pair(devices, np.full_like(streams, UNKNOWN) if self.folded else streams))
        return np.where(places < 0, places, places + len(self.threads))

    def of_metered(self, devices: Int64) -> Int64:
        """The tracks of the devices' metrics, -1 for one without."""
        places = _places(self._metered, devices)
        return np.where(places < 0, places, places + len(self.threads) + len(self.streams))

    def gpu(self, row: int) -> str:
        """The name of a row of `devices`: `GPU0`, and its UUID if others have that ordinal, as others may."""
        ordinal, own = self.ordinals.get(row, row), self.device(row)
        alone = list(self.ordinals.values()).count(ordinal) == 1
        return f"GPU{ordinal}" if alone or own is None else f"GPU{ordinal} ({own.identity[1]})"

    def device(self, row: int) -> Device | None:
        return next((d for d in self.rank.devices if d.device == row), None)


def _pair(devices: Any, streams: Any) -> Any:
    return (devices + 1) << np.int64(40) | (streams + 1)


def _places(ascending: Int64, wanted: Int64) -> Int64:
    if not len(ascending):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[at] == wanted, at, -1)


def tracks_of(selection: Selection, rank: RankRecord, *, fold_streams: bool = False, metrics: bool = True) -> Tracks:
    """The tracks of a rank that have rows."""
    # `fold_streams`: make one track of all streams of a device. `metrics`: look for the devices' metrics too.
    threads: set[int] = set()
    for table in HOST_TABLES:
        for batch in selection.distinct(rank, table, ["thread"]):
            threads.update(np.unique(numbers(batch, "thread")).tolist())
    streams: set[tuple[int, int]] = set()
    for table in GPU_TABLES:
        for batch in selection.distinct(rank, table, ["device", "stream"]):
            pairs = np.unique(_pair(numbers(batch, "device"), numbers(batch, "stream")))
            streams.update((int(p >> 40) - 1, UNKNOWN if fold_streams else int(p & ((1 << 40) - 1)) - 1) for p in pairs)
    metered: set[int] = set()
    if metrics:
        for batch in selection.distinct(rank, "gpu_metrics", ["device"]):
            metered.update(d for d in np.unique(numbers(batch, "device")).tolist() if d != UNKNOWN)
    stored = selection.run.rank(rank.rank)
    declared = stored.table("threads", ["thread", "tid", "name"])
    rows, ids = (declared.column(c).to_pylist() for c in ("thread", "tid"))
    names = dict(zip(rows, stored.texts(declared.column("name")).to_pylist(), strict=True))
    ordinals = {d.device: d.device if d.ordinal is None else d.ordinal for d in rank.devices}
    return Tracks(
        rank,
        sorted(threads),
        sorted(streams),
        sorted(metered),
        ordinals,
        {t: n for t, n in names.items() if n},
        {t: n for t, n in zip(rows, ids, strict=True) if n},
        fold_streams,
        selection.run.manifest.role_of(rank),
    )


@dataclass
class Launches:
    """The calls of a rank that can have launched work: sorted by (process, correlation)."""

    keys: Int64  # n keys
    tracks: Int64  # n tracks
    starts: Int64  # n starts, ns on the aligned clock

    def find(self, processes: Int64, correlations: Int64) -> Int64:
        """For each piece of work the row of the call that launched it, -1 for none; of nested calls, the outermost."""
        # correlation 0 belongs to work without a launch
        return np.where(correlations > 0, _places(self.keys, call_keys(processes, correlations)), -1)


def launches_of(selection: Selection, tracks: Tracks) -> Launches:
    parts = [np.empty((3, 0), np.int64)]
    for batch in selection.batches(tracks.rank, "api", ["start", "process", "thread", "correlation"]):
        correlations = numbers(batch, "correlation")
        keys = call_keys(numbers(batch, "process"), correlations)
        columns = np.stack((keys, tracks.of_threads(numbers(batch, "thread")), numbers(batch, "start")))
        parts.append(columns[:, correlations > 0])
    keys, places, starts = np.concatenate(parts, axis=1)
    order = np.lexsort((starts, keys))
    return Launches(keys[order], places[order], starts[order])


@dataclass(frozen=True)
class Intervals:
    rows: Any  # the rows, with the requested columns
    tracks: Int64  # n tracks, -1 for none
    starts: Int64  # n starts, ns from the zero of the selection
    ends: Int64  # n ends; never before the start


def intervals_of(selection: Selection, tracks: Tracks, table: str, columns: list[str]) -> Iterator[Intervals]:
    """The rows of a table with intervals, batch by batch; an open range ends with the run or the window."""
    # Other rows without an end, as in a damaged report, end where they start.
    zero = selection.zero_ns
    last = selection.end_ns - zero
    where = ["device", "stream"] if table in GPU_TABLES else ["thread"]
    for batch in selection.batches(tracks.rank, table, list(dict.fromkeys((*columns, "start", "end", *where)))):
        starts, ends = numbers(batch, "start") - zero, numbers(batch, "end") - zero
        if batch.column("end").null_count:
            still_open = batch.column("end").is_null().to_numpy()
            ends = np.where(still_open, last if table == "ranges" else starts, ends)
        if table in GPU_TABLES:
            places = tracks.of_streams(numbers(batch, "device"), numbers(batch, "stream"))
        else:
            places = tracks.of_threads(numbers(batch, "thread"))
        yield Intervals(batch, places, starts, np.maximum(ends, starts))
