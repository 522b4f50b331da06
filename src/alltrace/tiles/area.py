"""What happened in an area, some tracks in a range of time: totals by name and kind, a flame graph, how long events last."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alltrace.tiles.cancel import WANTED
from alltrace.tiles.flame import KINDS, Flame, nested_in
from alltrace.tiles.tracks import CLASSES, SOURCES, SUMMARY, parse_key, tables_of
from alltrace.tiles.window import MOST_RANKS, MOST_SECONDS, NamesLike, breakdown_of
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.tiles.cancel import Token
    from alltrace.tiles.events import EventReader, Events

MOST_NAMES = 500
LONGEST = 30
"""So many of the longest events are told."""

BINS_PER_OCTAVE = 4
"""A bin of the histogram reaches to the fourth root of two times its start."""

_FOLDED = ("kernels", "copies", "graphs", "collectives")
_OCTAVES = 63


class Area(NamedTuple):
    """Some tracks in a range of time.

    Attributes:
        tracks: The keys of the tracks of each rank; that of the summary stands for what the rank's devices did.
        start_ns: From, ns from the run's start.
        end_ns: To.
        flame: What the flame graph is of, one of `KINDS`.
        pattern: Only events whose names this regular expression finds (RE2) count for the histogram; None for all.
    """

    tracks: Mapping[int, Sequence[str]]
    start_ns: int
    end_ns: int
    flame: str = "ranges"
    pattern: str | None = None


class _Sums:
    """Number, sum, least and most of durations by class and name."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], ...]] = []

    def add(self, code: NDArray[Any], name: NDArray[np.int64], length: NDArray[np.int64]) -> None:
        order = np.lexsort((name, code))
        code, name, length = code[order].astype(np.int64), name[order], length[order]
        first = np.flatnonzero(np.concatenate(([True], (code[1:] != code[:-1]) | (name[1:] != name[:-1]))))
        counts = np.diff(np.append(first, len(code)))
        reduced = (f.reduceat(length, first) for f in (np.add, np.minimum, np.maximum))
        self._parts.append((code[first], name[first], counts, *reduced))

    def rows(self) -> tuple[NDArray[np.int64], ...]:
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
    """The histogram of durations, and the longest events."""

    def __init__(self) -> None:
        self._count = np.zeros(_OCTAVES * BINS_PER_OCTAVE, np.int64)
        self._total = np.zeros(_OCTAVES * BINS_PER_OCTAVE, np.int64)
        self._longest: list[tuple[int, int, Events]] = []

    def add(self, rank: int, events: Events) -> None:
        length = events.end - events.start
        bins = np.floor(np.log2(np.maximum(length, 1)) * BINS_PER_OCTAVE).astype(np.int64)
        self._count += np.bincount(bins, minlength=len(self._count))
        np.add.at(self._total, bins, length)
        at = np.argpartition(-length, LONGEST)[:LONGEST] if len(length) > LONGEST else np.arange(len(length))
        one = [events.take(np.array([i])) for i in at.tolist()]
        self._longest += [(int(length[i]), rank, e) for i, e in zip(at.tolist(), one, strict=True)]
        if len(self._longest) > 8 * LONGEST:
            self._longest = self._sorted()

    def _sorted(self) -> list[tuple[int, int, Events]]:
        return sorted(self._longest, key=lambda f: (-f[0], f[1], f[2].table, int(f[2].row[0])))[:LONGEST]

    def told(self, texts: Callable[[NDArray[Any]], Mapping[int, str]], zero: int) -> dict[str, Any]:
        full = np.flatnonzero(self._count)
        bins = range(int(full[0]), int(full[-1]) + 1) if len(full) else range(0)
        found = self._sorted()
        names = texts(np.array([int(e.name[0]) for _, _, e in found], np.int64)) if found else {}
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
                    "table": e.table,
                    "row": int(e.row[0]),
                    "name": names.get(int(e.name[0]), ""),
                    "start": int(e.start[0]) - zero,
                    "duration_ns": length,
                }
                for length, rank, e in found
            ],
        }


def area_facts(
    reader: EventReader, area: Area, token: Token = WANTED, *, gpus: Callable[[int], Sequence[int]] = lambda _: ()
) -> dict[str, Any]:
    """What happened in an area.

    Args:
        reader: The run's events.
        area: The area.
        token: Asked whether the answer is still wanted.
        gpus: The devices of a rank that have a row in the breakdown even where they did nothing.

    Returns:
        `breakdown` (of ranks whose summary is chosen, a row per device as in `window.summary`), `totals` (rows of `kind`, `name`,
        `count`, `total_ns`, `mean_ns`, `min_ns`, `max_ns`, each event counted by its part within the time, the largest first, 500
        at most), `names` (how many there are), `histogram` (lists by bin of the events' whole durations: `from_ns`, `to_ns`,
        `count`, `total_ns`), `longest` (the 30 longest events: `rank`, `table`, `row`, `name`, `start`, `duration_ns`), `flame`
        (see `Flame.nodes`, names as text), and `ranks_asked` and `ranks_done`: after 5 s what was looked at is the answer.

    Raises:
        UsageError: The time is empty, there is no such rank, track or kind of flame graph, or `pattern` is no regular expression.
        CancelledError: The answer is no longer wanted.
    """
    if area.end_ns <= area.start_ns:
        raise UsageError(f"the range from {area.start_ns} to {area.end_ns} ns is empty")
    if area.flame not in KINDS:
        raise UsageError.unknown("kind of flame graph", area.flame, KINDS)
    zero = reader.run.span_ns[0]
    start, end = zero + area.start_ns, zero + area.end_ns
    wanted = None if area.pattern is None else NamesLike(reader, area.pattern)
    sums, durations, flame = _Sums(), _Durations(), Flame(start, end)
    rows: list[dict[str, Any]] = []
    deadline, done = time.monotonic() + MOST_SECONDS, 0
    for rank, keys in list(area.tracks.items())[:MOST_RANKS]:
        token.check()
        if done and time.monotonic() > deadline:
            break
        folded, threads = SUMMARY in keys, _threads(keys)
        devices: dict[str, list[Events]] = {str(d): [] for d in gpus(rank)} if folded else {}
        for events in _chosen(reader, rank, keys, start, end, token):
            if folded and events.table in _FOLDED[:3]:
                devices.setdefault(events.key.split("/")[2], []).append(events)
            length = np.minimum(events.end, end) - np.maximum(events.start, start)
            sums.add(events.code, events.name, length)
            named = events if wanted is None else events.take(np.flatnonzero(np.isin(events.name, wanted.ids())))
            if len(named):
                durations.add(rank, named)
        rows += [breakdown_of(rank, device, found, start, end) for device, found in sorted(devices.items())]
        if folded or threads:
            nested = nested_in(reader, rank, area.flame, start, end, token)
            if nested is not None:
                flame.add(nested, None if folded else threads)
        done += 1
    code, name, *values = sums.rows()
    nodes = flame.nodes()
    texts = reader.texts(np.concatenate([name[:MOST_NAMES], np.array(nodes["name"], np.int64)]))
    columns = [v[:MOST_NAMES].tolist() for v in (code, name, *values)]
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
        **durations.told(reader.texts, zero),
        "flame": {**nodes, "name": [texts.get(n, "?") for n in nodes["name"]]},
        "ranks_asked": len(area.tracks),
        "ranks_done": done,
    }


def _threads(keys: Iterable[str]) -> set[int]:
    """The threads whose tracks of ranges are chosen."""
    return {parse_key(k)[1][0] for k in keys if k.startswith("ranges/")}


def _chosen(reader: EventReader, rank: int, keys: Sequence[str], start: int, end: int, token: Token) -> Iterable[Events]:
    """The events of the chosen tracks of a rank."""
    tables = dict.fromkeys(_FOLDED if SUMMARY in keys else ())
    own = {k for k in keys if k != SUMMARY}
    for key in own:
        tables |= dict.fromkeys(t for t in tables_of(parse_key(key)[0]) if t in SOURCES)
    for table in tables:
        every = SUMMARY in keys and table in _FOLDED
        for events in reader.window(rank, table, start, end, token):
            if every or events.key in own:
                yield events
