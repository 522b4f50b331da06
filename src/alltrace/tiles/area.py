"""What happened in an area, some tracks in a range of time: totals by name and kind, a flame graph, durations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import EventReader, Events
from alltrace.tiles.flame import KINDS, Flame, Nested, nested_in
from alltrace.tiles.tracks import CLASSES, SOURCES, SUMMARY, parse_key, tables_of
from alltrace.tiles.window import MOST_RANKS, MOST_SECONDS, NamesLike, breakdown_of
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError

MOST_NAMES = 500
LONGEST = 30
"""How many of the longest events are reported."""

BINS_PER_OCTAVE = 4
"""A bin of the histogram reaches to the fourth root of two times its start."""

_FOLDED = ("kernels", "copies", "graphs", "collectives")
_OCTAVES = 63
_THREADS = 4


class Area(NamedTuple):
    # the keys of the tracks of each rank; the key of the summary selects what the rank's devices did
    tracks: Mapping[int, Sequence[str]]
    start_ns: int  # from, ns from the run's start
    end_ns: int
    flame: str = "ranges"  # the content of the flame graph, one of `KINDS`
    # only events with a name that this regular expression (RE2) matches count for the histogram; None for all
    pattern: str | None = None
    names: int = MOST_NAMES  # the most rows of totals to report


class _Sums:
    """Number, sum, least and most of durations by class and name."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64, ...]] = []

    def add(self, code: NDArray[Any], name: Int64, length: Int64) -> None:
        order = np.lexsort((name, code))
        code, name, length = code[order].astype(np.int64), name[order], length[order]
        first = np.flatnonzero(np.concatenate(([True], (code[1:] != code[:-1]) | (name[1:] != name[:-1]))))
        counts = np.diff(np.append(first, len(code)))
        reduced = (f.reduceat(length, first) for f in (np.add, np.minimum, np.maximum))
        self._parts.append((code[first], name[first], counts, *reduced))

    def join(self, other: _Sums) -> None:
        self._parts += other._parts

    def rows(self) -> tuple[Int64, ...]:
        """Code, name, count, sum, least and most of each class and name, the largest sum first."""
        if not self._parts:
            return tuple(np.zeros(0, np.int64) for _ in range(6))
        code, name, count, total, least, most = (np.concatenate([p[i] for p in self._parts]) for i in range(6))
        order = np.lexsort((name, code))
        code, name = code[order], name[order]
        first = np.flatnonzero(np.concatenate(([True], (code[1:] != code[:-1]) | (name[1:] != name[:-1]))))
        sums = [np.add.reduceat(v[order], first) for v in (count, total)]
        ends = np.minimum.reduceat(least[order], first), np.maximum.reduceat(most[order], first)
        by_sum = np.argsort(-sums[1], kind="stable")
        return tuple(v[by_sum] for v in (code[first], name[first], *sums, *ends))


class _Durations:
    def __init__(self) -> None:
        self._count = np.zeros(_OCTAVES * BINS_PER_OCTAVE, np.int64)
        self._total = np.zeros(_OCTAVES * BINS_PER_OCTAVE, np.int64)
        self._longest: list[tuple[int, int, str, int, int, int]] = []

    def add(self, rank: int, events: Events) -> None:
        length = events.end - events.start
        bins = np.floor(np.log2(np.maximum(length, 1)) * BINS_PER_OCTAVE).astype(np.int64)
        self._count += np.bincount(bins, minlength=len(self._count))
        np.add.at(self._total, bins, length)
        at = np.argpartition(-length, LONGEST)[:LONGEST] if len(length) > LONGEST else np.arange(len(length))
        columns = (a[at].tolist() for a in (-length, events.row, events.name, events.start))
        self._longest += [
            (less, rank, events.table, row, name, start) for less, row, name, start in zip(*columns, strict=True)
        ]

    def join(self, other: _Durations) -> None:
        self._count += other._count
        self._total += other._total
        self._longest = sorted(self._longest + other._longest)[:LONGEST]

    def as_dict(self, texts: Callable[[NDArray[Any]], Mapping[int, str]], zero: int) -> dict[str, Any]:
        full = np.flatnonzero(self._count)
        bins = range(int(full[0]), int(full[-1]) + 1) if len(full) else range(0)
        names = texts(np.array([name for *_, name, _ in self._longest], np.int64))
        return {
            "histogram": {
                "from_ns": [2 ** (b / BINS_PER_OCTAVE) for b in bins],
                "to_ns": [2 ** ((b + 1) / BINS_PER_OCTAVE) for b in bins],
                "count": [int(self._count[b]) for b in bins],
                "total_ns": [int(self._total[b]) for b in bins],
            },
            "longest": [
                {
                    "rank": rank,
                    "table": table,
                    "row": row,
                    "name": names.get(name, ""),
                    "start": start - zero,
                    "duration_ns": -less,
                }
                for less, rank, table, row, name, start in self._longest
            ],
        }


class _OfRank(NamedTuple):
    sums: _Sums
    durations: _Durations
    breakdown: list[dict[str, Any]]
    nested: Nested | None


def area_facts(
    reader: EventReader, area: Area, token: Token = WANTED, *, gpus: Callable[[int], Sequence[int]] = lambda _: ()
) -> dict[str, Any]:
    """What happened in an area."""
    # `gpus`: the devices of a rank that have a row in the breakdown even where they did nothing. Returns `breakdown`
    # (for ranks with a selected summary, a row per device as in `window.summary`), `totals` (rows of `kind`, `name`,
    # `count`, `total_ns`, `mean_ns`, `min_ns`, `max_ns`, each event counted by its part within the time, the largest
    # first, `area.names` at most), `names` (how many there are), `histogram` (lists by bin of the events' whole
    # durations: `from_ns`, `to_ns`, `count`, `total_ns`), `longest` (the 30 longest events: `rank`, `table`, `row`,
    # `name`, `start`, `duration_ns`), `flame` (see `Flame.nodes`, names as text), and `ranks_asked` and `ranks_done`:
    # after 5 s the answer is what was read so far. Raises `UsageError`: the time is empty, the rank, track or kind of
    # flame graph does not exist, or `pattern` is not a valid regular expression. Raises `CancelledError`: the answer is
    # no longer wanted.
    if area.end_ns <= area.start_ns:
        raise UsageError(f"the range from {area.start_ns} to {area.end_ns} ns is empty")
    if area.flame not in KINDS:
        raise UsageError.unknown("kind of flame graph", area.flame, KINDS)
    zero = reader.run.span_ns[0]
    start, end = zero + area.start_ns, zero + area.end_ns
    wanted = None if area.pattern is None else NamesLike(reader, area.pattern)
    sums, durations, flame = _Sums(), _Durations(), Flame(start, end)
    rows: list[dict[str, Any]] = []
    deadline, done, names = time.monotonic() + MOST_SECONDS, 0, threading.Lock()

    def ids() -> NDArray[Any] | None:
        with names:
            return None if wanted is None else wanted.ids()

    def of_rank(item: tuple[int, Sequence[str]]) -> _OfRank | None:
        if done and time.monotonic() > deadline:
            return None
        return _of_rank(reader, *item, area.flame, (start, end), ids, gpus, token)

    # reading and decoding run in parallel; the sums are made in the order of the ranks
    with ThreadPoolExecutor(_THREADS) as pool:
        for (_, keys), part in zip(
            area.tracks.items(), pool.map(of_rank, list(area.tracks.items())[:MOST_RANKS]), strict=False
        ):
            if part is None:
                break
            sums.join(part.sums)
            durations.join(part.durations)
            rows += part.breakdown
            if part.nested is not None:
                flame.add(part.nested, None if SUMMARY in keys else _threads(keys))
            done += 1
    code, name, *values = sums.rows()
    nodes = flame.nodes()
    texts = reader.texts(np.concatenate([name[: area.names], np.array(nodes["name"], np.int64)]))
    columns = [v[: area.names].tolist() for v in (code, name, *values)]
    return {
        "breakdown": rows,
        "totals": [
            {
                "kind": CLASSES[c],
                "name": texts.get(n, "?"),
                "count": count,
                "total_ns": total,
                "mean_ns": total // count,
                "min_ns": low,
                "max_ns": high,
            }
            for c, n, count, total, low, high in zip(*columns, strict=True)
        ],
        "names": len(name),
        **durations.as_dict(reader.texts, zero),
        "flame": {**nodes, "name": [texts.get(n, "?") for n in nodes["name"]]},
        "ranks_asked": len(area.tracks),
        "ranks_done": done,
    }


def _of_rank(
    reader: EventReader,
    rank: int,
    keys: Sequence[str],
    flame: str,
    span: tuple[int, int],
    ids: Callable[[], NDArray[Any] | None],
    gpus: Callable[[int], Sequence[int]],
    token: Token,
) -> _OfRank:
    """What one rank has in an area from `span[0]` to `span[1]`, aligned ns; `ids` names the durations."""
    start, end = span
    sums, durations = _Sums(), _Durations()
    folded = SUMMARY in keys
    devices: dict[str, list[Events]] = {str(d): [] for d in gpus(rank)} if folded else {}
    for events in _chosen(reader, rank, keys, start, end, token):
        if folded and events.table in _FOLDED[:3]:
            devices.setdefault(events.key.split("/")[2], []).append(events)
        sums.add(events.code, events.name, np.minimum(events.end, end) - np.maximum(events.start, start))
        only = ids()
        named = events if only is None else events.take(np.flatnonzero(np.isin(events.name, only)))
        if len(named):
            durations.add(rank, named)
    rows = [breakdown_of(rank, device, events, start, end) for device, events in sorted(devices.items())]
    nested = nested_in(reader, rank, flame, start, end, token) if folded or _threads(keys) else None
    return _OfRank(sums, durations, rows, nested)


def _threads(keys: Iterable[str]) -> set[int]:
    return {parse_key(k)[1][0] for k in keys if k.startswith("ranges/")}


def _chosen(
    reader: EventReader, rank: int, keys: Sequence[str], start: int, end: int, token: Token
) -> Iterable[Events]:
    tables = dict.fromkeys(_FOLDED if SUMMARY in keys else ())
    own = {k for k in keys if k != SUMMARY}
    for key in own:
        tables |= dict.fromkeys(t for t in tables_of(parse_key(key)[0]) if t in SOURCES)
    for table in tables:
        every = SUMMARY in keys and table in _FOLDED
        for events in reader.window(rank, table, start, end, token):
            if every or events.key in own:
                yield events
