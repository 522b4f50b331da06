"""The events of a run in a window of time, read piece by piece and kept in memory within a bound."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from alltrace.core import tiles as core
from alltrace.run.rank import Piece, Rank
from alltrace.run.store import Run
from alltrace.tiles.busy import Run as BusyRun
from alltrace.tiles.busy import Work, runs_of
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.tracks import (
    SAMPLES,
    SOURCES,
    Source,
    codes_of,
    columns_for,
    integers,
    key_of,
    moved,
    spans,
    tables_of,
)
from alltrace.trace.intervals import by_track
from alltrace.trace.names import name_id

Sampled = tuple[str, NDArray[Any], NDArray[Any]]

_Kept = TypeVar("_Kept")

CACHE_BYTES = 160 << 20
"""What decoded pieces may take in memory."""

MOST_LANES = 24
"""What overlaps more deeply than this shares the last lane."""

_MOMENT_NS = 10**9
"""A moment that lasts may reach so far into a window from a piece before it."""

_MOST_RANKS_OPEN = 128  # the metadata of a rank's files takes half a megabyte
_EVENTS_BYTES = 1000  # memory of Events in addition to their arrays


@dataclass(frozen=True)
class Events:
    """Intervals of one table on one track: n rows, ascending by start within a lane or not at all."""

    table: str
    key: str
    start: NDArray[Any]  # int64 array, aligned ns
    end: NDArray[Any]  # int64 array; never before the start
    name: NDArray[Any]  # int64 array of ids; `EventReader.texts` returns the text
    code: NDArray[Any]  # int8 array, see `alltrace.tiles.tracks.CLASSES`
    lane: NDArray[Any]  # int8 array
    row: NDArray[Any]  # int64 array of rows of the rank's table

    def __len__(self) -> int:
        return len(self.start)

    @property
    def nbytes(self) -> int:
        return _EVENTS_BYTES + sum(a.nbytes for a in (self.start, self.end, self.name, self.code, self.lane, self.row))

    def within(self, start: int, end: int) -> "Events":
        """Those that overlap [start, end), or are in it without length."""
        inside = (self.start < end) & ((self.end > start) | (self.start >= start))
        return self if inside.all() else self.take(inside)

    def take(self, rows: NDArray[Any]) -> "Events":
        arrays = (a[rows] for a in (self.start, self.end, self.name, self.code, self.lane, self.row))
        return Events(self.table, self.key, *arrays)


class Bounded:
    """A thread-safe cache that drops the least recently used entries above a limit of bytes or of pieces."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes: int = 0

    def get(self, key: Any, make: Callable[[], _Kept], nbytes: Callable[[_Kept], int]) -> _Kept:
        """The entry of `key`, made if missing; `nbytes` returns its size."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                cached: _Kept = self._held[key][0]
                return cached
        value = make()
        with self._lock:
            if key not in self._held:
                self._held[key] = (value, nbytes(value))
                self.nbytes += self._held[key][1]
            while self.nbytes > self._most and len(self._held) > 1:
                _, (_, gone) = self._held.popitem(last=False)
                self.nbytes -= gone
        return value


class EventReader:
    def __init__(self, run: Run) -> None:
        self.run = run
        self._cache = Bounded(CACHE_BYTES)
        # texts that are shown as names but are none of the run's, by id: directions of copies, graphs; those
        # that were met, and other threads may add to them
        self.words: dict[int, str] = {}
        self._stored = Bounded(_MOST_RANKS_OPEN)
        self._open_end = run.span_ns[1]

    def rank(self, rank: int) -> Rank:
        """The tables of one rank; the metadata of their files is kept."""
        # Raises `UsageError`: the run has no such rank.
        return self._stored.get(rank, partial(self.run.rank, rank), lambda _: 1)

    def cached(self, key: Any, make: Callable[[], _Kept], nbytes: Callable[[_Kept], int]) -> _Kept:
        """The result of `make`, cached under `key` with the decoded pieces; `nbytes` returns its size."""
        return self._cache.get(key, make, nbytes)

    def window(self, rank: int, table: str, start: int, end: int, token: Token = WANTED) -> Iterator[Events]:
        """The events of one table in [start, end), aligned ns, in pieces of one track each."""
        stored, source = self.rank(rank), SOURCES[table]
        for piece in _pieces_in(stored, table, start - _MOMENT_NS if source.moments else start, end):
            token.check()
            make = partial(self._decoded, stored, source, piece)
            for events in self._cache.get((rank, table, piece.group), make, _nbytes):
                inside = events.within(start, end)
                if len(inside):
                    yield inside

    def named(
        self, rank: int, table: str, wanted: Callable[[], NDArray[Any]], token: Token = WANTED
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Starts, ends, ids of names and rows of the events of one table that have one of the names, piece by piece."""
        # `wanted` returns the ids once the names of a piece are known; tracks and lanes are not made, so this reads
        # less than `window`.
        stored, source = self.rank(rank), SOURCES[table]
        columns = [
            c for c in columns_for(source, names=True) if source.moments or c not in source.track or c == source.name
        ]
        for piece in stored.pieces(table):
            token.check()
            part = stored.piece(table, piece.group, columns)
            names = self._names(source, part)
            hits = np.flatnonzero(np.isin(names, wanted()))
            if len(hits):
                following = _following(stored, source, piece) if source.moments else None
                starts, ends, shown = spans(source, part, self._open_end if table == "ranges" else None, following)
                hits = hits if shown is None else hits[shown[hits]]
                yield starts[hits], ends[hits], names[hits], hits + piece.first_row

    def busy(self, rank: int, start: int, end: int, token: Token = WANTED) -> dict[int, list[Work]]:
        """What each device of a rank did in [start, end), aligned ns: by device, parts of starts, ends and codes."""
        stored = self.rank(rank)
        by_device: dict[int, list[Work]] = {}
        for table in tables_of("gpu"):
            for piece in _pieces_in(stored, table, start, end):
                token.check()
                make = partial(_runs, stored, table, piece)
                for run in self._cache.get((rank, table, piece.group, "busy"), make, _nbytes):
                    work = run.within(start, end)
                    if len(work[0]):
                        by_device.setdefault(run.device, []).append(work)
        return by_device

    def samples(self, rank: int, table: str, start: int, end: int) -> Iterator[Sampled]:
        """The samples of one table in [start, end): of each track its key, times and values."""
        whole = SAMPLES[table].holds  # its first piece has the sums of all rows
        for stored, places in self._sources(rank, table):
            for piece in stored.pieces(table) if whole else _pieces_in(stored, table, start, end):
                make = partial(_sampled, stored, table, piece, places)
                for key, times, values in self._cache.get(
                    (rank, table, stored.rank, piece.group), make, _samples_nbytes
                ):
                    inside = (times >= start) & (times < end)
                    if inside.any():
                        yield key, times[inside], values[inside]

    def _sources(self, rank: int, table: str) -> Sequence[tuple[Rank, Mapping[int, int] | None]]:
        """The ranks with samples of a rank in their reports, and the devices there, None for its own."""
        stored = self.rank(rank)
        if table != "gpu_metrics":
            return [(stored, None)]
        return self.cached((rank, "sources of samples"), stored.gpu_sample_sources, lambda _: _EVENTS_BYTES)

    def texts(self, ids: NDArray[Any]) -> dict[int, str]:
        """The text of each id; an unknown id has none."""
        import pyarrow as pa

        wanted = np.unique(ids)
        texts = self.run.texts(pa.array(wanted)).to_pylist()
        return {
            int(i): text
            for i, own_text in zip(wanted.tolist(), texts, strict=True)
            if (text := own_text if own_text is not None else self.words.get(i)) is not None
        }

    def _decoded(self, stored: Rank, source: Source, piece: Piece) -> list[Events]:
        part = stored.piece(source.table, piece.group, columns_for(source, names=True))
        following = _following(stored, source, piece) if source.moments else None
        starts, ends, shown = spans(source, part, self._open_end if source.table == "ranges" else None, following)
        names, codes = self._names(source, part), codes_of(source, part)
        numbers = np.arange(piece.first_row, piece.first_row + len(starts))
        decoded = []
        for values, rows in by_track(*(integers(part, c) for c in source.track)):
            start, end, name, code, row = (a[rows] for a in (starts, ends, names, codes, numbers))
            if shown is not None:
                start, end, name, code, row = (a[shown[rows]] for a in (start, end, name, code, row))
            if not (start[1:] > start[:-1]).all():
                order = np.lexsort((-end, start))
                start, end, name, code, row = (a[order] for a in (start, end, name, code, row))
            decoded.append(
                Events(source.table, key_of(source.group, values), start, end, name, code, lanes_of(start, end), row)
            )
        return decoded

    def _names(self, source: Source, table: Any) -> NDArray[Any]:
        if source.table == "copies":
            from alltrace.trace.names import intern

            ids, words = intern(table.column(source.name))
            self.words.update(zip(words.column("id").to_pylist(), words.column("value").to_pylist(), strict=True))
            numbers: NDArray[Any] = ids.fill_null(-1).to_numpy(zero_copy_only=False)
            return numbers
        names = integers(table, source.name)
        if source.table == "sched":
            cpus, which = np.unique(names, return_inverse=True)
            words = ["some CPU" if n < 0 else f"CPU {n}" for n in cpus.tolist()]
            ids = np.array([name_id(w) for w in words], np.int64)
            self.words.update(zip(ids.tolist(), words, strict=True))
            return ids[which]
        if source.table == "graphs":
            self.words.update((int(n), f"graph {n}") for n in np.unique(names))
        if source.table == "kernels":
            names = np.where(names == -1, integers(table, "name"), names)
        return names


def lanes_of(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """The line of its track that each interval is drawn on, the first free one: int8 array."""
    # So nested intervals are below those that enclose them. `starts`: int64 array of n ascending starts.
    lanes = np.empty(len(starts), np.int8)
    core.assign_lanes(starts, ends, np.full(MOST_LANES, np.iinfo(np.int64).min, np.int64), lanes)
    return lanes


def _pieces_in(stored: Rank, table: str, start: int, end: int) -> Iterator[Piece]:
    """The pieces of a table that may have rows in [start, end), aligned ns."""
    for piece in stored.pieces(table):
        if (piece.start_ns is None or piece.start_ns < end) and (piece.end_ns is None or piece.end_ns >= start):
            yield piece


def _runs(stored: Rank, table: str, piece: Piece) -> list[BusyRun]:
    return list(runs_of(stored, table, piece.group))


def _sampled(stored: Rank, table: str, piece: Piece, places: Mapping[int, int] | None) -> list[Sampled]:
    samples = SAMPLES[table]
    if not samples.holds:
        part = stored.piece(table, piece.group, samples.reads)
    elif piece.first_row:
        return []  # a sum is over all rows, which are stored with the first piece
    else:
        part = stored.table(table, samples.reads)
    rows = samples.read(part)
    times, values, columns = rows if places is None else moved(rows, places)
    return [(key_of(samples.group, track), times[rows], values[rows]) for track, rows in by_track(*columns)]


def _following(stored: Rank, source: Source, piece: Piece) -> Any:
    behind = next((p for p in stored.pieces(source.table) if p.first_row == piece.first_row + piece.rows), None)
    return None if behind is None else stored.piece(source.table, behind.group, ["time", "thread"]).slice(0, 1)


def _nbytes(parts: Sequence[Events | BusyRun]) -> int:
    return sum(p.nbytes for p in parts)


def _samples_nbytes(parts: Sequence[Sampled]) -> int:
    return sum(t.nbytes + v.nbytes + _EVENTS_BYTES for _, t, v in parts)
