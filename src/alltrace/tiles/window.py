"""What happened in a range of time: breakdowns of devices, kernels, operations, and events in a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import EventReader, Events
from alltrace.tiles.tracks import COMMUNICATION_CODE, COPY, SOURCES
from alltrace.tiles.usual_steps import UsualSteps
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import classify_ns, merge

MOST_RANKS = 2048
MOST_SECONDS = 5.0
"""After this time the answer is what was read so far, with the number of its ranks."""

MOST_EVENTS = 200_000
MOST_NAMES = 200


@dataclass
class Totals:
    """Durations by name: number, sum, least and most."""

    rows: dict[int, list[int]] = field(default_factory=dict)

    def add(self, events: Events, start: int, end: int) -> None:
        """Count events, each by its part within [start, end)."""
        if not len(events):
            return
        length = np.minimum(events.end, end) - np.maximum(events.start, start)
        names, which = np.unique(events.name, return_inverse=True)
        counts = np.bincount(which)
        sums = np.zeros(len(names), np.int64)
        least, most = np.full(len(names), 1 << 62), np.zeros(len(names), np.int64)
        np.add.at(sums, which, length)
        np.minimum.at(least, which, length)
        np.maximum.at(most, which, length)
        for n, name in enumerate(names.tolist()):
            row = self.rows.setdefault(name, [0, 0, 1 << 62, 0])
            row[0] += int(counts[n])
            row[1] += int(sums[n])
            row[2] = min(row[2], int(least[n]))
            row[3] = max(row[3], int(most[n]))

    def table(self, texts: dict[int, str]) -> list[dict[str, Any]]:
        sums = sorted(self.rows.items(), key=lambda r: -r[1][1])[:MOST_NAMES]
        return [
            {"name": texts.get(n, "?"), "count": c, "total_ns": s, "mean_ns": s // c, "min_ns": low, "max_ns": high}
            for n, (c, s, low, high) in sums
        ]


def summary(
    reader: EventReader,
    ranks: Sequence[int],
    start_ns: int,
    end_ns: int,
    token: Token = WANTED,
    *,
    gpus: Callable[[int], Sequence[int]] = lambda _: (),
) -> dict[str, Any]:
    """The breakdown, kernels and operations in [start_ns, end_ns), ns from the run's first event."""
    # `gpus`: the devices of a rank that have a row even where they did nothing. Returns `breakdown` (a row per rank and
    # device: the exact ns of compute, exposed communication, exposed copies and idle, which sum to the range),
    # `kernels` and `collectives` (by name, each counted by its part within the range), `ranks_asked` and `ranks_done`.
    # Raises `UsageError`: the range is empty, or the rank does not exist. Raises `CancelledError`: the answer is no
    # longer needed.
    if end_ns <= start_ns:
        raise UsageError(f"the range from {start_ns} to {end_ns} ns is empty")
    zero = reader.run.span_ns[0]
    start, end = zero + start_ns, zero + end_ns
    deadline = time.monotonic() + MOST_SECONDS
    rows: list[dict[str, Any]] = []
    kernels, operations = Totals(), Totals()
    done = 0
    for rank in list(ranks)[:MOST_RANKS]:
        token.check()
        if done and time.monotonic() > deadline:
            break
        devices: dict[str, list[Events]] = {str(d): [] for d in gpus(rank)}
        for table in ("kernels", "copies", "graphs"):
            for events in reader.window(rank, table, start, end, token):
                devices.setdefault(events.key.split("/")[2], []).append(events)
                if table == "kernels":
                    kernels.add(events, start, end)
        for events in reader.window(rank, "collectives", start, end, token):
            operations.add(events, start, end)
        rows += [breakdown_of(rank, device, events, start, end) for device, events in sorted(devices.items())]
        done += 1
    ids = np.array([*kernels.rows, *operations.rows], np.int64)
    texts = reader.texts(ids)
    return {
        "breakdown": rows,
        "kernels": kernels.table(texts),
        "collectives": operations.table(texts),
        "ranks_asked": len(ranks),
        "ranks_done": done,
    }


def breakdown_of(rank: int, device: str, events: Sequence[Events], start: int, end: int) -> dict[str, Any]:
    """The ns of compute, exposed communication, exposed copies and idle of a device in [start, end), aligned ns."""
    sets = [merge(*_joined(events, c)) for c in (None, COMMUNICATION_CODE, COPY)]
    times = classify_ns(sets, start, end)
    names = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    return {"rank": rank, "device": int(device), **dict(zip(names, times, strict=True))}


def _joined(events: Sequence[Events], code: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Starts and ends of the events of a class; None if it is neither communication nor copies."""
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for e in events:
        chosen = e.code == code if code is not None else (e.code != COMMUNICATION_CODE) & (e.code != COPY)
        starts.append(e.start[chosen])
        ends.append(e.end[chosen])
    return np.concatenate(starts), np.concatenate(ends)


def events_between(
    reader: EventReader,
    ranks: Sequence[int],
    tables: Sequence[str],
    start_ns: int,
    end_ns: int,
    *,
    track: str | None = None,
    pattern: str | None = None,
    least_ns: int = 0,
    token: Token = WANTED,
) -> dict[str, Any]:
    """The events of some ranks and tables that overlap [start_ns, end_ns), as columns, ordered by start."""
    # `start_ns`: from, ns from the run's first event. `track`: only those on this track. `pattern`: only events with a
    # name that this regular expression (RE2) matches. `least_ns`: only those that last as long as this. Returns `rank`,
    # `table`, `row`, `track`, `name`, `start`, `duration_ns` as lists of equal length, and `complete`: False if there
    # are more than 200,000, of which the first found are returned, or more ranks than were read. Raises `UsageError`:
    # the table or rank does not exist, or the expression is invalid.
    zero = reader.run.span_ns[0]
    wanted = None if not pattern else NamesLike(reader, pattern)
    parts: list[tuple[int, str, Events]] = []
    count, complete = 0, len(ranks) <= MOST_RANKS
    for table in tables:
        if table not in SOURCES:
            raise UsageError.unknown("table with events", table, SOURCES)
    deadline = time.monotonic() + MOST_SECONDS
    for rank in list(ranks)[:MOST_RANKS]:
        for table in tables:
            for events in reader.window(rank, table, zero + start_ns, zero + end_ns, token):
                if track is not None and events.key != track:
                    continue
                wanted_rows = events.end - events.start >= least_ns
                if wanted is not None:
                    wanted_rows &= np.isin(events.name, wanted.ids())
                if not wanted_rows.any():
                    continue
                chosen = events.take(np.flatnonzero(wanted_rows)[: MOST_EVENTS - count])
                complete &= len(chosen) == int(wanted_rows.sum())
                count += len(chosen)
                parts.append((rank, table, chosen))
        if count >= MOST_EVENTS or time.monotonic() > deadline:
            complete &= rank == list(ranks)[-1]
            break
    return _as_columns(reader, parts, zero) | {"complete": complete}


def _as_columns(reader: EventReader, parts: list[tuple[int, str, Events]], zero: int) -> dict[str, Any]:
    empty = np.zeros(0, np.int64)
    start, end, name, row = (
        np.concatenate([empty, *(getattr(e, c) for _, _, e in parts)]) for c in ("start", "end", "name", "row")
    )
    part = np.repeat(np.arange(len(parts)), [len(e) for _, _, e in parts]) if parts else empty
    order = np.lexsort((row, start))
    texts = reader.texts(name)
    part = part[order]
    return {
        "rank": [parts[p][0] for p in part.tolist()],
        "table": [parts[p][1] for p in part.tolist()],
        "track": [parts[p][2].key for p in part.tolist()],
        "row": row[order].tolist(),
        "name": [texts.get(n, "") for n in name[order].tolist()],
        "start": (start[order] - zero).tolist(),
        "duration_ns": (end[order] - start[order]).tolist(),
    }


# The expressions are RE2's, with time linear in the text, so that none can block the server. Raises `UsageError`: it is
# not a valid regular expression.
class NamesLike:
    """The names that a regular expression finds, while events are read: of `EventReader.words` those that were met."""

    def __init__(self, reader: EventReader, pattern: str) -> None:
        if len(pattern) > 1000:
            raise UsageError("the regular expression is longer than 1,000 characters")
        self._reader, self._pattern = reader, pattern
        names = reader.run.name_table()
        self._own = names.column("id").filter(self._hit(names.column("value"))).to_numpy()
        self._met, self._ids = -1, self._own

    def _hit(self, texts: Any) -> Any:
        import pyarrow as pa

        try:
            return pc.match_substring_regex(texts, self._pattern)
        except (pa.ArrowInvalid, UnicodeEncodeError) as error:
            why = str(error).splitlines()[0] if isinstance(error, pa.ArrowInvalid) else "it is not text"
            raise UsageError(f"{self._pattern!r} is not a valid regular expression: {why}") from error

    def ids(self) -> Any:
        import pyarrow as pa

        if len(self._reader.words) != self._met:
            words = dict(self._reader.words)
            hit = self._hit(pa.array(list(words.values()), pa.string())).to_pylist()
            own = np.array([i for i, ok in zip(words, hit, strict=True) if ok], np.int64)
            self._met, self._ids = len(words), np.concatenate([self._own, own])
        return self._ids


class Named(NamedTuple):
    """An event: its table and row, start and end in ns from the run's first event."""

    table: str
    row: int
    start: int
    end: int


def longest_named(reader: EventReader, rank: int, name: str, steps: UsualSteps) -> Named | None:
    """The longest event of that name, short or full, in a usual step of a rank; None if there is none."""
    names = reader.run.name_table()
    ids = names.column("id").filter(pc.equal(names.column("value"), name)).to_numpy()
    ids = np.concatenate([ids, np.array([i for i, text in dict(reader.words).items() if text == name], np.int64)])
    rows = [
        (table, events.take(np.flatnonzero(np.isin(events.name, ids))))
        for table in (SOURCES if len(ids) else ())
        for events in reader.window(rank, table, -(1 << 62), 1 << 62)
    ]
    if not any(len(events) for _, events in rows):
        return None
    start, end, row = (np.concatenate([getattr(events, c) for _, events in rows]) for c in ("start", "end", "row"))
    tables = np.repeat([table for table, _ in rows], [len(events) for _, events in rows])
    device = np.isin(tables, ("kernels", "copies", "graphs", "collectives"))
    step = np.where(device, steps.of_each(rank, start, device=True), steps.of_each(rank, start, device=False))
    usual = steps.usual(step, end - start)
    longest = usual[np.argmax((end - start)[usual])]
    zero = reader.run.span_ns[0]
    return Named(str(tables[longest]), int(row[longest]), int(start[longest]) - zero, int(end[longest]) - zero)
