"""What a view of a run shows: the heat map of all ranks, and the tiles of tracks, each at its pixels' level."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.run.checked_arrow import read_table
from alltrace.run.store import Run
from alltrace.tiles.build import Pyramid
from alltrace.tiles.busy import binned_parts
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import Bounded, EventReader, Events
from alltrace.tiles.files import HEAT, NO_DATA, heat_arrays, rank_file, read_rank
from alltrace.tiles.grid import MOST_LEVEL, TILE_BINS, Grid
from alltrace.tiles.prefetch import Prefetcher
from alltrace.tiles.rank_tiles import TrackTiles, binned
from alltrace.tiles.tracks import GROUPS, SAMPLES, SOURCES, SUMMARY, parse_key, tables_of
from alltrace.tiles.waits import waits_of
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import Merged

IDLE = "idle"
MOST_TILES = 8192
"""The most tiles in one request."""

_SOON_LEVELS = 4
"""Events are read ahead of a view that shows bins up to this many levels coarser than the stored ones."""

_RANK_FILES_BYTES = 64 << 20
_HEAT_BYTES = 64 << 20
_SUMMARY_CLASSES = ("compute", "exposed communication", "exposed copy")
_GPU_CLASSES = ("compute", "communication", "copy")


@dataclass(frozen=True)
class Tile:
    track: str  # the rank's number, a slash, and the track's key
    index: int  # number of the tile at its level
    # `bins` (share of each bin by class), `items` (events, those narrower than a bin put together) or `samples`
    kind: str
    arrays: Mapping[str, NDArray[Any]]  # its arrays by name
    classes: tuple[str, ...] = ()  # for `bins`, the meaning of the rows of its array


@dataclass
class _Request:
    level: int
    first: int
    count: int
    start: int
    end: int
    token: Token
    seen: dict[tuple[int, str], dict[str, list[Events]]] = field(default_factory=dict)
    soon: dict[tuple[int, str], None] = field(default_factory=dict)


class View:
    def __init__(self, run: Run, pyramid: Pyramid) -> None:
        self._folder = pyramid.folder
        self._show(run, pyramid.grid, pyramid.broken, *heat_arrays(read_table(pyramid.folder / HEAT)))

    def _show(
        self,
        run: Run,
        grid: Grid,
        broken: Mapping[int, str],
        heat: Mapping[str, NDArray[np.uint16]],
        scales: dict[str, list[float]],
    ) -> None:
        self.run = run
        self.grid: Grid = grid
        self.broken: dict[int, str] = dict(broken)
        self.events: EventReader = EventReader(run)
        self._files = Bounded(_RANK_FILES_BYTES)
        self._levels = Bounded(_HEAT_BYTES)
        self._coarsening = threading.Lock()
        self.prefetcher: Prefetcher = Prefetcher()
        self.scales: dict[str, list[float]] = scales
        self._heat = heat
        self._row_of = {r.rank: n for n, r in enumerate(run.ranks)}

    @property
    def metrics(self) -> list[str]:
        busy, *others = self._heat
        return [busy, IDLE, *others]

    def heat(self, metric: str, level: int, index: int) -> NDArray[np.uint16]:
        """One tile of the heat map: uint16 array (ranks, bins), shares of bins in 65,534ths, 65,535 for no data."""
        if metric not in self.metrics:
            raise UsageError.unknown("metric", metric, self.metrics)
        if not self.grid.level <= level <= MOST_LEVEL or index < 0:
            raise UsageError(f"unknown tile {index} of level {level}; expected level {self.grid.level} to {MOST_LEVEL}")
        values = self._level("busy" if metric == IDLE else metric, level)[
            :, index * TILE_BINS : (index + 1) * TILE_BINS
        ]
        return _idle(values) if metric == IDLE else np.ascontiguousarray(values)

    def whole(self, metric: str) -> NDArray[np.uint16]:
        """The heat map of a metric at its finest level, all of it (see `heat`)."""
        return _idle(self._heat["busy"]) if metric == IDLE else self._heat[metric]

    def _level(self, metric: str, level: int) -> NDArray[np.uint16]:
        finest = self._heat[metric]
        if level == self.grid.level:
            return finest
        make = partial(_coarser, finest, level - self.grid.level, self.grid.span_ns, self.grid.level)
        with self._coarsening:  # the page requests all tiles of a level at once
            return self._levels.get((metric, level), make, lambda values: values.nbytes)

    def devices(self, rank: int) -> int:
        """How many devices of a rank did anything; 0 for one that cannot be read."""
        tracks = self._tracks(rank)
        return int(tracks[f"{SUMMARY}/devices"].values[0][:1].sum()) if tracks else 0

    def gpus(self, rank: int) -> list[int]:
        """The devices of a rank that did anything, rows of its `devices`, -1 for one not known; none if unreadable."""
        return sorted({parse_key(key)[1][1] for key in self._tracks(rank) if key.startswith("gpu/")})

    @cached_property
    def waits(self) -> dict[int, Merged]:
        """When each rank waits for others at matched operations, aligned ns; empty without an alignment."""
        return waits_of(self.run)

    def tracks(self, rank: int) -> list[TrackTiles]:
        """The tracks of a rank, its summary first. Raises `UsageError`: the run has no such rank."""
        plain = [t for t in self._tracks(rank).values() if t.key.partition("/")[0] in GROUPS]
        return [TrackTiles(SUMMARY, 0, 0, self.grid.span_ns, self.grid.level, 0, ()), *plain]

    def _tracks(self, rank: int) -> dict[str, TrackTiles]:
        self.events.rank(rank)
        if rank in self.broken:
            return {}
        return self._files.get(rank, partial(self._read_tracks, rank), _tracks_nbytes)

    def _read_tracks(self, rank: int) -> dict[str, TrackTiles]:
        return read_rank(self._folder / rank_file(rank))

    def tiles(
        self, tracks: Sequence[tuple[int, str]], level: int, first: int, count: int, token: Token = WANTED
    ) -> tuple[list[Tile], dict[int, str]]:
        """The tiles `first` to `first + count - 1` of tracks, at one level, and the text of the names on them."""
        # `level`: the level, 0 for bins of 1 ns. `token`: checked before each track: whether the answer is still
        # needed.
        if not 0 <= level <= MOST_LEVEL or first < 0 or count < 1 or count * max(len(tracks), 1) > MOST_TILES:
            raise UsageError(
                f"{count} tiles of level {level} from {first} on were requested; expected {MOST_TILES} of level 0 to"
                f" {MOST_LEVEL}"
            )
        start, end = self.grid.tile_span(level, first)[0], self.grid.tile_span(level, first + count - 1)[1]
        request = _Request(level, first, count, start, end, token)
        tiles: list[Tile] = []
        with self.prefetcher.paused():
            for rank, key in tracks:
                token.check()
                tiles += self._of_track(request, rank, key)
        self.prefetcher.want(partial(self._read_ahead, rank, group, start, end) for rank, group in request.soon)
        named = [t.arrays["name"] for t in tiles if t.kind == "items" and t.arrays is not NO_ITEMS]
        ids = np.unique(np.concatenate(named)) if named else np.zeros(0, np.int64)
        return tiles, self.events.texts(ids)

    def _read_ahead(self, rank: int, group: str, start: int, end: int) -> None:
        if group == SUMMARY:
            self.events.busy(rank, start, end)
            return
        for table in tables_of(group):
            for _ in self.events.window(rank, table, start, end):
                pass

    def _of_track(self, request: _Request, rank: int, key: str) -> list[Tile]:
        group, _ = parse_key(key)
        self.events.rank(rank)
        name = f"{rank}/{key}"
        if rank in self.broken:
            return []
        if key == SUMMARY:
            return self._summary(request, rank, name)
        track = self._tracks(rank).get(key)
        if track is None:
            raise UsageError(f"rank {rank} has no track {key!r}")
        if group in {s.group for s in SAMPLES.values()}:
            return self._sampled(request, rank, track, name)
        if 0 <= track.level <= request.level:
            if request.level < track.level + _SOON_LEVELS:
                request.soon[rank, group] = None
            classes = _GPU_CLASSES if group == "gpu" else (group,)
            return _bins(
                request, name, [_at_level(track, v, request) for v in track.values[: len(classes)]], classes, 1
            )
        events = self._window(request, rank, group).get(key, [])
        return list(_items(request, name, events, self.grid.start_ns))

    def _window(self, request: _Request, rank: int, group: str) -> dict[str, list[Events]]:
        """The events of a group of a rank in the request, by track; read once for all of its tracks."""
        if (rank, group) not in request.seen:
            by_key: dict[str, list[Events]] = {}
            for table in tables_of(group):
                for events in self.events.window(rank, table, request.start, request.end, request.token):
                    by_key.setdefault(events.key, []).append(events)
            request.seen[rank, group] = by_key
        return request.seen[rank, group]

    def _summary(self, request: _Request, rank: int, name: str) -> list[Tile]:
        parts = ("compute", "exposed_communication", "exposed_copy")
        devices = max(self.devices(rank), 1)
        if request.level >= self.grid.level:
            tracks = self._tracks(rank)
            if request.level < self.grid.level + _SOON_LEVELS:
                request.soon[rank, SUMMARY] = None
            values = [_at_level(tracks[f"{SUMMARY}/{p}"], tracks[f"{SUMMARY}/{p}"].values[0], request) for p in parts]
            return _bins(request, name, values, _SUMMARY_CLASSES, devices)
        sums = np.zeros((len(parts), request.count * TILE_BINS), np.int64)
        for did in self.events.busy(rank, request.start, request.end, request.token).values():
            sums += binned_parts(did, request.start, request.level, request.count * TILE_BINS)
        return _bins(request, name, list(sums), _SUMMARY_CLASSES, devices)

    def _sampled(self, request: _Request, rank: int, track: TrackTiles, name: str) -> list[Tile]:
        if 0 <= track.level <= request.level:
            mean, least, most = track.values
            arrays = [
                _samples_at_level(track, v, request, r)
                for v, r in ((mean, np.add), (least, np.minimum), (most, np.maximum))
            ]
        else:
            edges = self.grid.edges(request.first * TILE_BINS, request.count * TILE_BINS, request.level)
            group, _ = parse_key(track.key)
            times, values = [np.zeros(0, np.int64)], [np.zeros(0)]
            for table in tables_of(group):
                for key, time, value in self.events.samples(rank, table, request.start, request.end):
                    if key == track.key:
                        times.append(time)
                        values.append(value)
            arrays = list(binned(np.concatenate(times), np.concatenate(values), edges))
        if any(x.holds for x in SAMPLES.values() if x.group == parse_key(track.key)[0]):
            arrays = self._with_last_values(request, rank, track, arrays)
        return [
            Tile(
                name,
                request.first + n,
                "samples",
                {k: _part(v, n) for k, v in zip(("mean", "least", "most"), arrays, strict=True)},
            )
            for n in range(request.count)
        ]

    def _with_last_values(
        self, request: _Request, rank: int, track: TrackTiles, arrays: list[NDArray[Any]]
    ) -> list[NDArray[Any]]:
        (table,) = tables_of(parse_key(track.key)[0])
        samples = [
            (t, v) for key, t, v in self.events.samples(rank, table, -(1 << 62), request.end) if key == track.key
        ]
        times, values = (
            (np.concatenate([p[i] for p in samples]) for i in (0, 1))
            if samples
            else (np.zeros(0, np.int64), np.zeros(0))
        )
        order = np.argsort(times, kind="stable")
        edges = self.grid.edges(request.first * TILE_BINS, request.count * TILE_BINS, request.level)
        before = np.searchsorted(times[order], edges[:-1], "right") - 1
        last = np.full(len(before), np.nan, np.float32)
        last[before >= 0] = values[order][before[before >= 0]]
        last[edges[:-1] >= self.grid.start_ns + self.grid.span_ns] = np.nan
        return [np.where(np.isnan(a), last, a).astype(np.float32) for a in arrays]


def _idle(busy: NDArray[np.uint16]) -> NDArray[np.uint16]:
    return np.where(busy == NO_DATA, NO_DATA, 65534 - busy).astype(np.uint16)


def _tracks_nbytes(tracks: Mapping[str, TrackTiles]) -> int:
    return sum(1000 + sum(v.nbytes for v in t.values) for t in tracks.values())


def _part(values: NDArray[Any], n: int) -> NDArray[Any]:
    return np.ascontiguousarray(values[..., n * TILE_BINS : (n + 1) * TILE_BINS])


def _coarser(values: NDArray[np.uint16], steps: int, span_ns: int, level: int) -> NDArray[np.uint16]:
    """The shares of bins 2**steps times as wide; the last bin, which may be cut short, weighs by its length."""
    width = 1 << min(steps, 62)
    bins = values.shape[1]
    groups = -(-bins // width)
    weights = np.ones(bins, np.float32)
    weights[-1] = ((span_ns - 1) % (1 << level) + 1) / (1 << level)
    shares = np.empty((len(values), groups), np.uint16)
    for i in range(0, len(values), 256):  # in parts, so that little more memory is needed than for the answer
        part = values[i : i + 256]
        weight = (part != NO_DATA) * weights
        at = np.arange(0, bins, width) if width < bins else np.zeros(1, np.int64)
        sums = np.add.reduceat(part * weight, at, axis=1, dtype=np.float64)
        counts = np.add.reduceat(weight, at, axis=1, dtype=np.float64)
        shares[i : i + 256] = np.where(counts > 0, np.rint(sums / np.maximum(counts, 1e-9)), NO_DATA)
    return shares


def _at_level(track: TrackTiles, values: NDArray[Any], request: _Request) -> Int64:
    """The ns of a track in the requested bins, from its own finer or equal bins."""
    out = np.zeros(request.count * TILE_BINS, np.int64)
    own = _own_range(track, len(values), request)
    if own.start < own.stop:
        bins, firsts = _bins_of(track, np.arange(own.start, own.stop), request)
        out[bins] = np.add.reduceat(values[own], firsts)
    return out


def _samples_at_level(
    track: TrackTiles, values: NDArray[Any], request: _Request, reduce: np.ufunc
) -> NDArray[np.float32]:
    """The samples of a track likewise: their least, most, or with `np.add` their mean; NaN if there is none."""
    out = np.full(request.count * TILE_BINS, np.nan, np.float32)
    own = _own_range(track, len(values), request)
    rows = np.flatnonzero(np.isfinite(values[own])) + own.start
    if len(rows):
        bins, firsts = _bins_of(track, rows, request)
        reduced = reduce.reduceat(values[rows], firsts)
        out[bins] = reduced / np.diff(np.append(firsts, len(rows))) if reduce is np.add else reduced
    return out


def _own_range(track: TrackTiles, bins: int, request: _Request) -> slice:
    shift = request.level - track.level
    low = min(request.first * TILE_BINS << shift, 1 << 62)
    high = min((request.first + request.count) * TILE_BINS << shift, 1 << 62)
    return slice(min(max(low - track.first_bin, 0), bins), min(max(high - track.first_bin, 0), bins))


def _bins_of(track: TrackTiles, own: NDArray[np.intp], request: _Request) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The requested bins that contain a track's `own` bins, and which of `own` is the first in each."""
    bins = (own + track.first_bin >> request.level - track.level) - request.first * TILE_BINS
    firsts = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
    return bins[firsts], firsts


def _bins(
    request: _Request, name: str, values: Sequence[NDArray[Any]], classes: tuple[str, ...], devices: int
) -> list[Tile]:
    """Tiles of shares in 255ths; what is not nothing is 1 at least, so that it is seen."""
    width = float(1 << request.level) * devices
    shares = np.stack([np.where(v > 0, np.clip(np.rint(v / width * 255), 1, 255), 0).astype(np.uint8) for v in values])
    return [Tile(name, request.first + n, "bins", {"share": _part(shares, n)}, classes) for n in range(request.count)]


def _items(request: _Request, name: str, events: Sequence[Events], zero: int) -> list[Tile]:
    """The tiles of a track's events; one that reaches from one tile into the next is in both."""
    parts = [p for p in (_narrow_merged(e, request.level, zero) for e in events) if len(p["start"])]
    if not parts:
        return [Tile(name, request.first + n, "items", NO_ITEMS) for n in range(request.count)]
    every = parts[0] if len(parts) == 1 else {k: np.concatenate([p[k] for p in parts]) for k in ITEM_COLUMNS}
    starts, ends = every["start"], every["start"] + every["length"]
    tiles = []
    for index in range(request.first, request.first + request.count):
        low = min(index * TILE_BINS << request.level, 1 << 62)
        high = min(low + (TILE_BINS << request.level), 1 << 62)
        rows = np.flatnonzero((starts < high) & ((ends > low) | (starts >= low)))
        tiles.append(Tile(name, index, "items", {k: v[rows] for k, v in every.items()} if len(rows) else NO_ITEMS))
    return tiles


ITEM_COLUMNS: dict[str, Any] = {
    "start": np.float64,
    "length": np.float64,
    "row": np.float64,
    "name": np.int64,
    "count": np.uint32,
    "lane": np.uint8,
    "code": np.uint8,
    "table": np.uint8,
    "share": np.uint8,
}
"""The columns of `items`: start from the run's first event and length in ns, row of the rank's table, name, how many
events it is, lane, class, table (place in `SOURCES`), and how much of it is covered in 255ths."""

NO_ITEMS: Mapping[str, NDArray[Any]] = {k: np.zeros(0, t) for k, t in ITEM_COLUMNS.items()}

_TABLE_NUMBERS = {name: n for n, name in enumerate(SOURCES)}


def _narrow_merged(events: Events, level: int, zero: int) -> dict[str, NDArray[Any]]:
    """Events as items; short ones that start in one bin of a lane are one, named by the longest of them."""
    length = events.end - events.start
    relative = events.start - zero
    order = np.lexsort((relative, events.lane))
    relative, length, lane = relative[order], length[order], events.lane[order]
    narrow = length < 1 << level
    bins = relative >> level
    new = np.ones(len(order), bool)
    new[1:] = ~(narrow[1:] & narrow[:-1] & (bins[1:] == bins[:-1]) & (lane[1:] == lane[:-1]))
    firsts = np.flatnonzero(new)
    if not len(firsts):
        return dict(NO_ITEMS)
    counts = np.diff(np.append(firsts, len(order)))
    last_end = np.maximum.reduceat(relative + length, firsts)
    whole = last_end - relative[firsts]
    busy = np.add.reduceat(length, firsts)
    longest = firsts.copy()
    several = np.flatnonzero(counts > 1)
    if len(several):
        most = np.repeat(np.maximum.reduceat(length, firsts), counts)
        is_longest = np.flatnonzero(length == most)
        group = np.searchsorted(firsts, is_longest, "right") - 1
        at, where = np.unique(group, return_index=True)
        longest[at] = is_longest[where]
    chosen = order[longest]
    share = np.where(whole > 0, np.clip(np.rint(busy / np.maximum(whole, 1) * 255), 1, 255), 255)
    values = {
        "start": relative[firsts],
        "length": whole,
        "row": events.row[chosen],
        "name": events.name[chosen],
        "count": counts,
        "lane": lane[firsts],
        "code": events.code[chosen],
        "table": np.full(len(firsts), _TABLE_NUMBERS[events.table]),
        "share": share,
    }
    return {k: values[k].astype(t) for k, t in ITEM_COLUMNS.items()}


def pack(tiles: Sequence[Tile], names: Mapping[int, str], facts: Mapping[str, Any], most_text: int = 200) -> bytes:
    """Tiles as bytes: `ATB1`, the size of a JSON header (uint32, little-endian), it, arrays at multiples of 8."""
    # The header has `facts`, `names` (a list of texts, to which `name` of items refers, -1 for none) and `tiles`:
    # `track`, `index`, `kind`, `classes` and `arrays`, for each array its name, type, offset after the header and
    # length in numbers. A tile of `items` without arrays has no items.
    import json

    numbers = {i: n for n, i in enumerate(names)}
    ids = np.array(sorted(numbers), np.int64)
    places = np.array([numbers[int(i)] for i in ids], np.int32)
    blobs: list[bytes] = []
    offset = 0
    described = []
    for tile in tiles:
        arrays = []
        for name, values in tile.arrays.items() if tile.arrays is not NO_ITEMS else ():
            plain = _name_numbers(values, ids, places) if name == "name" else values
            blob = plain.tobytes()
            arrays.append([name, plain.dtype.str[1:], offset, plain.size])
            blob += bytes(-len(blob) % 8)
            blobs.append(blob)
            offset += len(blob)
        described.append(
            {"track": tile.track, "index": tile.index, "kind": tile.kind, "classes": tile.classes, "arrays": arrays}
        )
    texts = [names[i][:most_text] for i in names]
    header = json.dumps({**facts, "names": texts, "tiles": described}, ensure_ascii=False).encode("utf-8", "replace")
    header += b" " * (-(len(header) + 8) % 8)
    return b"".join([b"ATB1", len(header).to_bytes(4, "little"), header, *blobs])


def _name_numbers(values: NDArray[Any], ids: NDArray[Any], places: NDArray[np.int32]) -> NDArray[np.int32]:
    if not len(ids):
        return np.full(len(values), -1, np.int32)
    at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    numbers: NDArray[np.int32] = np.where(ids[at] == values, places[at], -1).astype(np.int32)
    return numbers
