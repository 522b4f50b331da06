"""From a row of an answer that has a time to its place on the timeline of the page, as an address."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from alltrace.recipes.base import Column

PAGE = "http://127.0.0.1:8765/"
"""Where a report or notebook expects the page, which `alltrace ui RUN --port 8765` serves there."""

_STARTS = (
    *(
        "start",
        "device start",
        "api start",
        "projected start",
        "kernel start",
        "range start",
        "orig start",
        "time",
        "peak at",
    ),
)
_ENDS = ("end", "device end", "range end")
_LENGTHS = ("duration", "projected duration", "length", "span")
_RANKS = ("rank", "run rank")
_LEAST_ROOM_NS = 1000


class Places(NamedTuple):
    start: str  # when the subject of a row starts
    end: str | None  # when it ends; None if no column has it
    length: str | None  # how long it lasts
    rank: str | None
    zero_ns: int = 0  # what a time of the answer is at the run's start: of `stats` and `nsys` the session's clock

    def fragment(self, row: Mapping[str, Any]) -> str | None:
        """The fragment after the page's address, `#timeline?...`; None if the row has no time."""
        # Two cursors enclose the subject of the row, with twice its length of space on both sides.
        start, end, length, rank = (_whole(row.get(c)) if c is not None else None for c in self[:4])
        if start is None:
            return None
        start -= self.zero_ns
        end = start + (length or 0) if end is None else end - self.zero_ns
        room = max(2 * (end - start), _LEAST_ROOM_NS)
        where = {} if rank is None else {"ranks": rank, "open": rank}
        values = {"start": start - room, "end": max(end, start) + room, **where}
        cursors = f"{start},{end}" if end > start else f"{start}"
        return f"#timeline?{urlencode(values)}&cursors={cursors}"


def places_of(columns: Iterable[Column], zero_ns: int = 0) -> Places | None:
    """Where the rows of an answer are on the timeline; None if no row has a time."""
    # `columns`: the answer's columns. `zero_ns`: see `Places`.
    names = {_plain(c.name): c.name for c in reversed(list(columns)) if c.unit in ("ns", None)}
    start, end, length, rank = (
        next((names[w] for w in words if w in names), None) for words in (_STARTS, _ENDS, _LENGTHS, _RANKS)
    )
    return None if start is None else Places(start, end, length, rank, zero_ns)


def _plain(name: str) -> str:
    return re.sub(r"_ns$| \(ns\)$", "", name).replace("_", " ").lower()


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
