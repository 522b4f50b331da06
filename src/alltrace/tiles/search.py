"""Where names occur in a run: how often on which rank, marks for folded ranks, and the events if few."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import EventReader
from alltrace.tiles.tracks import SOURCES
from alltrace.tiles.window import MOST_NAMES, MOST_RANKS, MOST_SECONDS, NamesLike

MOST_FOUND = 2000
"""The most events that are reported one by one."""

MARKS = 512
"""The number of places for marks over the run's time; the first event of a rank in each is marked."""


def search(
    reader: EventReader, pattern: str, ranks: Sequence[int], *, most: int = MOST_FOUND, token: Token = WANTED
) -> dict[str, Any]:
    """Where names that a regular expression finds occur."""
    # `pattern`: the expression (RE2). `ranks`: the ranks; the search takes at most 5 s in all. `most`: the most events
    # to report. Returns `names` (the texts), `total` (events with such a name), `by_rank` and `marks` (by rank as text:
    # how many, and ascending starts of some of them, ns from the run's start), `events` (lists of `rank`, `table`,
    # `row`, `name`, `start`, `duration_ns`, ascending by start), `complete` (whether all events are among them),
    # `ranks_asked`, `ranks_done`. Raises `UsageError`: `pattern` is not a valid regular expression, or the rank does
    # not exist. Raises `CancelledError`: the answer is no longer needed.
    wanted = NamesLike(reader, pattern)
    zero, last = reader.run.span_ns
    width = max((last - zero) // MARKS, 1)
    parts: list[tuple[int, str, tuple[NDArray[Any], ...]]] = []
    by_rank: dict[str, int] = {}
    marks: dict[str, list[int]] = {}
    total = done = 0
    room = most
    deadline = time.monotonic() + MOST_SECONDS
    for rank in list(ranks)[:MOST_RANKS]:
        own = [np.zeros(0, np.int64)]
        for table in SOURCES:
            for hits in reader.named(rank, table, wanted.ids, token):
                own.append(hits[0])
                if room > 0:
                    parts.append((rank, table, tuple(a[:room] for a in hits)))
                    room -= len(hits[0])
        starts = np.sort(np.concatenate(own)) - zero
        if len(starts):
            by_rank[str(rank)] = len(starts)
            marks[str(rank)] = starts[np.unique(starts // width, return_index=True)[1]].tolist()
            total += len(starts)
        done += 1
        if time.monotonic() > deadline:
            break
    events = _as_columns(reader, parts, zero)
    ids = wanted.ids()[:MOST_NAMES]
    texts = reader.texts(ids)
    return {
        "names": [texts[int(i)] for i in ids.tolist() if int(i) in texts],
        "total": total,
        "by_rank": by_rank,
        "marks": marks,
        "events": events,
        "complete": total == len(events["row"]) and done == len(ranks),
        "ranks_asked": len(ranks),
        "ranks_done": done,
    }


def _as_columns(
    reader: EventReader, parts: list[tuple[int, str, tuple[NDArray[Any], ...]]], zero: int
) -> dict[str, Any]:
    empty = np.zeros(0, np.int64)
    start, end, name, row = (np.concatenate([empty, *(hits[i] for _, _, hits in parts)]) for i in range(4))
    part = np.repeat(np.arange(len(parts)), [len(hits[0]) for _, _, hits in parts]) if parts else empty
    order = np.lexsort((row, part, start))
    texts = reader.texts(name)
    return {
        "rank": [parts[p][0] for p in part[order].tolist()],
        "table": [parts[p][1] for p in part[order].tolist()],
        "row": row[order].tolist(),
        "name": [texts.get(n, "") for n in name[order].tolist()],
        "start": (start[order] - zero).tolist(),
        "duration_ns": (end[order] - start[order]).tolist(),
    }
