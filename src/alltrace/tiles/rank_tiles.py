"""The pyramid of one rank: what its devices did over time, and how busy each of its tracks was.

Only the finest level is kept; a coarser bin is the sum of two finer ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.run.rank import Rank
from alltrace.tiles.grid import Grid, level_for, power_of_two
from alltrace.tiles.tracks import (
    COMMUNICATION_CODE,
    COPY,
    SAMPLES,
    SOURCES,
    Samples,
    Source,
    codes_of,
    columns_for,
    integers,
    key_of,
    moved,
    spans,
)
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.intervals import Merged, bin_coverage_ns, by_track, exclusive, merge

SUMMARY_PARTS = ("compute", "communication", "exposed_communication", "copy", "exposed_copy", "devices")
"""What is kept of a rank over time: ns in each bin, summed over its devices; `devices` is the number of its devices in
each."""

FEW_ROWS = 1024
"""A track with fewer rows has no levels: its rows are read when it is shown."""


@dataclass(frozen=True)
class TrackTiles:
    key: str
    rows: int  # events or samples on it
    first_ns: int  # first start, ns from the run's first event
    last_ns: int  # last end, likewise
    level: int  # the level of its bins; -1 for a track that has none
    first_bin: int  # number of the first bin on the run's grid
    # for intervals three arrays (busy with compute or in general, with communication, with copies) of ns per bin;
    # for samples `mean`, `least`, `most` per bin, NaN without one; empty without levels
    values: tuple[NDArray[Any], ...]


def summary_of(rank: Rank, grid: Grid) -> dict[str, Int64]:
    """What the devices of a rank did, per finest bin: for each of `SUMMARY_PARTS` an int64 array of ns."""
    from alltrace.recipes.analysis.device_intervals import device_activity

    edges = grid.edges(0, grid.bins(grid.level), grid.level)
    sums = {part: np.zeros(len(edges) - 1, np.int64) for part in SUMMARY_PARTS}
    for work in device_activity(rank):
        for part, merged in parts_of(work.compute, work.communication, work.copies).items():
            sums[part] += bin_coverage_ns(merged, edges)
        sums["devices"] += 1
    return sums


def parts_of(compute: Merged, communication: Merged, copies: Merged) -> dict[str, Merged]:
    """The parts of a summary, of one device: communication without compute is exposed."""
    _, exposed, exposed_copy = exclusive((compute, communication, copies))
    return {
        "compute": compute,
        "communication": communication,
        "exposed_communication": exposed,
        "copy": copies,
        "exposed_copy": exposed_copy,
    }


def shared_tables(rank: Rank) -> Rank:
    """The rank's tables for `summary_of` and then `tracks_of`, which read tables of devices once for both."""
    from alltrace.recipes.analysis.device_intervals import TABLES

    return rank.view(wanted={name: columns_for(SOURCES[name], names=False) for name in TABLES})


def tracks_of(rank: Rank, tables: Rank, grid: Grid, open_end_ns: int) -> Iterator[TrackTiles]:
    """The tracks of a rank that have rows, in the order of their groups; `tables` forgets those that were read."""
    by_group: dict[str, list[Source]] = {}
    for source in SOURCES.values():
        by_group.setdefault(source.group, []).append(source)
    for sources in by_group.values():
        yield from _interval_tracks(tables, grid, sources, open_end_ns)
    for samples in SAMPLES.values():
        yield from _sample_tracks(rank, grid, samples)


def _interval_tracks(rank: Rank, grid: Grid, sources: list[Source], open_end_ns: int) -> Iterator[TrackTiles]:
    parts = []
    for source in sources:
        if not rank.has(source.table):
            continue
        table = rank.table(source.table, columns_for(source, names=False))
        starts, ends, shown = spans(source, table, open_end_ns if source.table == "ranges" else None)
        keys, codes = [integers(table, c) for c in source.track], codes_of(source, table)
        rank.release((source.table,))
        if shown is not None:
            starts, ends, keys, codes = starts[shown], ends[shown], [k[shown] for k in keys], codes[shown]
        parts.append((starts, ends, keys, codes))
    if not parts:
        return
    starts, ends = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    keys = [np.concatenate([p[2][n] for p in parts]) for n in range(len(sources[0].track))]
    codes = np.concatenate([p[3] for p in parts])
    for values, rows in by_track(*keys):
        start, end, code = starts[rows], ends[rows], codes[rows]
        track, edges = _track_tiles(
            grid, key_of(sources[0].group, values), len(start), int(start.min()), int(end.max())
        )
        if len(edges):
            other = (code != COMMUNICATION_CODE) & (code != COPY)
            sets = (merge(start[own], end[own]) for own in (other, code == COMMUNICATION_CODE, code == COPY))
            track = replace(track, values=tuple(bin_coverage_ns(m, edges) for m in sets))
        yield track


def _sample_tracks(rank: Rank, grid: Grid, samples: Samples) -> Iterator[TrackTiles]:
    if samples.table == "gpu_metrics":
        parts = [
            moved(samples.read(source.piece(samples.table, number, samples.reads)), places)
            for source, places in rank.gpu_sample_sources()
            for number in source.pieces_of_devices(samples.table, places)
        ]
    else:
        parts = [samples.read(rank.table(samples.table, samples.reads))] if rank.has(samples.table) else []
    if not parts:
        return
    times, worth = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
    columns = [np.concatenate(column) for column in zip(*(part[2] for part in parts), strict=True)]
    for values, rows in by_track(*columns):
        time, value = times[rows], worth[rows]
        track, edges = _track_tiles(
            grid, key_of(samples.group, values), len(time), int(time.min()), int(time.max()) + 1
        )
        yield replace(track, values=binned(time, value, edges)) if len(edges) else track


def _track_tiles(grid: Grid, key: str, rows: int, start: int, end: int) -> tuple[TrackTiles, Int64]:
    """A track without its values, and the edges of its bins, one for about 32 rows; a track of few rows has none."""
    first, last = start - grid.start_ns, end - grid.start_ns
    if rows < FEW_ROWS:
        return TrackTiles(key, rows, first, last, -1, 0, ()), np.empty(0, np.int64)
    level = level_for(last - first, power_of_two(rows / 32, 32, 1 << 20))
    first_bin = max(first, 0) >> level
    count = (max(last - 1, first, 0) >> level) - first_bin + 1
    return TrackTiles(key, rows, first, last, level, first_bin, ()), grid.edges(first_bin, count, level)


def binned(times: Int64, values: Floats, edges: Int64) -> tuple[NDArray[np.float32], ...]:
    """Mean, least and most of samples per bin, as float32 arrays of the number of bins; NaN if there is none."""
    good = np.isfinite(values)
    times, values = times[good], values[good]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    at = np.searchsorted(times, edges, "left")
    counts = np.diff(at)
    full = np.flatnonzero(counts)
    result = [np.full(len(edges) - 1, np.nan, np.float32) for _ in range(3)]
    if len(full):
        firsts = at[:-1][full]
        last = at[-1]
        for out, reduce in zip(result, (np.add, np.minimum, np.maximum), strict=True):
            reduced = reduce.reduceat(values[:last], firsts)
            out[full] = reduced / counts[full] if reduce is np.add else reduced
    return tuple(result)
