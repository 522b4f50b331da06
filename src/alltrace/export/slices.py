"""What viewers of timelines draw, the same for all of them: slices, marks, counters and flows, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alltrace.export.tracks import GPU_TABLES, HOST_TABLES, UNKNOWN, Tracks, intervals_of, numbers, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from alltrace.align.aligned import Aligned
    from alltrace.export.names import NameCodes
    from alltrace.export.record_bytes import Pool
    from alltrace.export.selection import Selection
    from alltrace.export.tracks import Launches
    from alltrace.trace.arrays import Int64

COUNTER_SCALE = 1000
"""A counter's value is a whole number of this fraction."""

_LARGEST = 9e15
_COLUMNS = {
    "kernels": ["short_name", "process", "correlation"],
    "copies": ["kind", "bytes", "process", "correlation"],
    "graphs": ["graph", "process", "correlation"],
    "api": ["name", "process", "correlation"],
}


@dataclass(frozen=True)
class Slices:
    """n slices of one table, or n marks.

    Attributes:
        category: The table.
        tracks: int64 array of n tracks of the rank.
        starts: int64 array of n starts, ns from the zero of the selection.
        ends: int64 array of n ends.
        names: int64 array of n numbers in the pool.
        sizes: int64 array of n bytes moved, or None.
        launches: int64 array of n rows of the rank's launches, -1 for none: a call's own, or that of the work's call.
        instant: Whether these are marks.
    """

    category: str
    tracks: Int64
    starts: Int64
    ends: Int64
    names: Int64
    sizes: Int64 | None = None
    launches: Int64 | None = None
    instant: bool = False


def track_labels(tracks: Tracks) -> list[str]:
    """What the tracks of a rank are called."""
    threads = [tracks.names.get(t) or ("thread ?" if t == UNKNOWN else f"thread {t}") for t in tracks.threads]
    streams = []
    for device, stream in tracks.streams:
        shown = "all streams" if tracks.folded else f"stream {'?' if stream == UNKNOWN else stream}"
        streams.append(f"{tracks.gpu(device)} {shown}")
    return threads + streams + [f"{tracks.gpu(d)} metrics" for d in tracks.metered]


def slices_of(
    selection: Selection, tracks: Tracks, launches: Launches, names: NameCodes, pool: Pool, written: Callable[[str], str | bytes]
) -> Iterator[Slices]:
    """All slices and marks of a rank, table by table.

    Args:
        selection: What is exported.
        tracks: The rank's tracks.
        launches: The rank's calls.
        names: Where names are looked up.
        pool: Where texts are put that are no names.
        written: How text is written into the pool.
    """
    for table in (*HOST_TABLES, *GPU_TABLES):
        if table == "marks":
            yield from _marks(selection, tracks, names)
            continue
        for part in intervals_of(selection, tracks, table, _COLUMNS.get(table, ["name"])):
            if table == "copies":
                codes, texts = words(part.rows, "kind")
                named = pool.add_all([*(written("memset" if t == "memset" else f"memcpy {t}") for t in texts), written("copy")])
                codes = named[codes]
            elif table == "graphs":
                graphs, inverse = np.unique(numbers(part.rows, "graph"), return_inverse=True)
                codes = pool.add_all(written(f"graph {g}" if g >= 0 else "graph") for g in graphs.tolist())[inverse]
            else:
                codes = names.of(numbers(part.rows, "short_name" if table == "kernels" else "name"))
            found = None
            if table in (*GPU_TABLES, "api"):
                found = launches.find(numbers(part.rows, "process"), numbers(part.rows, "correlation"))
            if found is not None and table == "api" and len(launches.keys):  # of nested calls the outermost one is the launch
                outermost = (launches.starts[found] - selection.zero_ns == part.starts) & (launches.tracks[found] == part.tracks)
                found = np.where(outermost, found, -1)
            sizes = np.maximum(numbers(part.rows, "bytes"), 0) if table == "copies" else None
            yield Slices(table, part.tracks, part.starts, part.ends, codes, sizes, found)


def _marks(selection: Selection, tracks: Tracks, names: NameCodes) -> Iterator[Slices]:
    for batch in selection.batches(tracks.rank, "marks", ["time", "thread", "name"]):
        times = numbers(batch, "time") - selection.zero_ns
        places = tracks.of_threads(numbers(batch, "thread"))
        yield Slices("marks", places, times, times, names.of(numbers(batch, "name")), instant=True)


@dataclass(frozen=True)
class Counters:
    """n samples of metrics of a GPU.

    Attributes:
        times: int64 array of n times, ns from the zero of the selection.
        names: int64 array of n numbers in the pool.
        values: int64 array of n values times `COUNTER_SCALE`.
    """

    times: Int64
    names: Int64
    values: Int64


def counters_of(selection: Selection, tracks: Tracks, name: Callable[[str], int]) -> Iterator[Counters]:
    """The metrics of a rank's GPUs; samples without a number are left out.

    Args:
        selection: What is exported.
        tracks: The rank's tracks.
        name: The number of a counter, by its label.
    """
    import pyarrow as pa

    for batch in selection.batches(tracks.rank, "gpu_metrics", ["time", "device", "metric", "value"]):
        values = batch.column("value").to_numpy()
        values = np.where(np.isfinite(values), np.clip(values, -_LARGEST / COUNTER_SCALE, _LARGEST / COUNTER_SCALE), np.nan)
        keys = np.stack([numbers(batch, "device"), numbers(batch, "metric")])
        kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
        texts = selection.run.texts(pa.array(kinds[1])).to_pylist()
        codes = np.array([name(f"{tracks.gpu(d)} {t or '?'}") for d, t in zip(kinds[0].tolist(), texts, strict=True)], np.int64)
        kept = np.flatnonzero(~np.isnan(values))
        times = numbers(batch, "time")[kept] - selection.zero_ns
        yield Counters(times, codes[inverse.reshape(-1)[kept]], np.rint(values[kept] * COUNTER_SCALE).astype(np.int64))


@dataclass(frozen=True)
class Flow:
    """One rank's members of matched collectives: n.

    Attributes:
        instances: int64 array of n instances.
        tracks: int64 array of n tracks of the rank.
        starts: int64 array of n starts, ns from the zero of the selection.
        first: Boolean array of n: the first member to arrive.
        last: Boolean array of n: the last member.
    """

    instances: Int64
    tracks: Int64
    starts: Int64
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]


def flows_across(selection: Selection, aligned: Aligned, tracks: Mapping[int, Tracks]) -> Iterator[tuple[int, Flow]]:
    """The members of each collective that are on a device, rank by rank; a flow goes along them in the order of arrival.

    Args:
        selection: What is exported.
        aligned: The alignment.
        tracks: For each rank its tracks.
    """
    members = aligned.members
    ranks, instances, starts = (numbers(members, c) for c in ("rank", "instance", "start"))
    devices, streams = numbers(members, "device"), numbers(members, "stream")
    wanted = np.isin(ranks, [r.rank for r in selection.ranks]) & (devices != UNKNOWN) & (streams != UNKNOWN)
    if "kernels" not in selection.tables:
        return
    if selection.window_ns is not None:
        wanted &= (starts >= selection.window_ns[0]) & (starts < selection.window_ns[1])
    order = np.lexsort((ranks, starts, instances))
    order = order[wanted[order]]
    ordered = instances[order]
    edge = np.flatnonzero(np.diff(ordered)) + 1
    first, last = np.zeros(len(order), bool), np.zeros(len(order), bool)
    if len(order):
        first[np.concatenate(([0], edge))] = True
        last[np.concatenate((edge - 1, [len(order) - 1]))] = True
    alone = first & last
    for rank in selection.ranks:
        at = np.flatnonzero((ranks[order] == rank.rank) & ~alone)
        if not len(at):
            continue
        rows = order[at]
        places = tracks[rank.rank].of_streams(devices[rows], streams[rows])
        on = places >= 0
        yield (
            rank.rank,
            Flow(instances[rows][on], places[on], starts[rows][on] - selection.zero_ns, first[at][on], last[at][on]),
        )
