"""A rank's tables, one span of time after the other: only the row groups that reach into a span are read for it.

GPU work that is looked up by its calls comes with the span of the calls: its row groups are found by the correlation
ids in them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.run.rank import Piece, Rank
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.schema import DICTIONARIES, TABLES

_Key = tuple[str, int, tuple[str, ...]]

_SAMPLE_ROWS = 4096
_LEAST_SHARE = 0.25
_CALLS = "api"
_ID = "correlation"
NO_ID = -1  # marks a null correlation id

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

_FIRST_ROWS = 1 << 15  # of the first span, so that the first rows come soon
_SPAN_ROWS = 1 << 19
_ROOM_BYTES = 64 << 20


class _Bounds(NamedTuple):
    """Of each piece of a table its least and greatest correlation id, and its rows; int64."""

    low: Int64
    high: Int64
    rows: Int64


class PieceRoom:
    """How many bytes of decoded row groups may wait in memory for the next span, over all ranks."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes


class TimeSlices:
    """The events of one rank by when they start; `room` is shared by all ranks that are read at the same time.

    `by_call`: the `tables` with rows that accompany the rows of `api` with their correlation ids, whenever they start.
    """

    def __init__(
        self, rank: Rank, tables: Mapping[str, Sequence[str]], room: PieceRoom, by_call: Collection[str] = ()
    ) -> None:
        self.stored = rank
        self.by_call = by_call
        self._tables = tables
        self._room = room
        self._waiting: dict[_Key, Any] = {}
        self._looked_up: dict[str, list[_Key]] = {}  # of a table by call: what waits since the span before
        self._ids: dict[str, _Bounds] = {}
        self._dictionaries: dict[tuple[str, tuple[str, ...]], Any] = {}

    def sampled(self) -> tuple[Int64, Int64]:
        """About the start of every 4096th event, int64 ns in no order, and how many events each represents.

        Events without a start in their file have none. Calls represent the events that accompany them, of which there
        may be fewer, and for a quarter of themselves at least, as they take memory too.
        """
        starts, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for table in (t for t in self._tables if t not in self.by_call):
            share = self._share() if table == _CALLS and self.by_call else 1.0
            for piece in self.stored.pieces(table):
                if piece.start_ns is not None and piece.last_start_ns is not None:
                    count = -(-piece.rows // _SAMPLE_ROWS)
                    starts.append(piece.start_ns + (piece.last_start_ns - piece.start_ns) // count * np.arange(count))
                    rows.append(np.full(count, int(piece.rows * share) // count))
        return np.concatenate(starts), np.concatenate(rows)

    def _share(self) -> float:
        """How much of an event each call represents."""
        calls, work = (
            sum(p.rows for table in of for p in self.stored.pieces(table)) for of in ([_CALLS], self.by_call)
        )
        return max(_LEAST_SHARE, min(1.0, work / calls)) if calls else 1.0

    def most_looked_up(self) -> int:
        """The most rows of tables by call to search for one row group's calls; few where correlation ids ascend."""
        calls = self._bounds(_CALLS)
        most = np.zeros(len(calls.low), np.int64)
        for table in self.by_call:
            work = self._bounds(table)
            total = np.concatenate(([0], np.cumsum(work.rows[np.argsort(work.low, kind="stable")])))
            before = np.concatenate(([0], np.cumsum(work.rows[np.argsort(work.high, kind="stable")])))
            begun = total[np.searchsorted(np.sort(work.low), calls.high, "right")]
            most += begun - before[np.searchsorted(np.sort(work.high), calls.low, "left")]
        return int(most.max(initial=0))

    def read(self, table: str, columns: Sequence[str]) -> list[str]:
        """All columns requested of a table, and `columns`."""
        return list(dict.fromkeys((*self._tables.get(table, ()), *columns)))

    def between(self, since_ns: int | None, until_ns: int | None) -> Rank:
        """The rank's tables with the events that start at or after `since_ns` and before `until_ns`; ask in order.

        None leaves a side open; an event without a start comes in the span without an end.
        """
        return self.stored.view(read=_Span(self, since_ns, until_ns).table)

    def events(self, table: str, columns: Sequence[str], since_ns: int | None, until_ns: int | None) -> Any:
        """The rows of a table that start in a span, in the order of the table."""
        order = TABLES[table].order or "start"
        wanted = tuple(dict.fromkeys((*columns, order)))
        parts = [TABLES[table].arrow_schema(wanted).empty_table()]
        for piece in self.stored.pieces(table):
            if not _reaches(piece, since_ns, until_ns):
                continue
            key = (table, piece.group, wanted)
            rows = self._waiting.get(key)
            if rows is None:
                rows = self.stored.piece(table, piece.group, wanted)
            self._wait(
                key, rows, last=until_ns is None or (piece.last_start_ns is not None and piece.last_start_ns < until_ns)
            )
            parts.append(_rows_at(rows, np.flatnonzero(_inside(rows.column(order), since_ns, until_ns))))
        whole = pa.concat_tables(parts[1:] or parts)
        return whole.select(list(columns)).unify_dictionaries()

    def of_calls(self, table: str, columns: Sequence[str], ids: Int64) -> Any:
        """The rows of a table with some correlation ids (ascending), in the order of the table, and perhaps others."""
        wanted = tuple(dict.fromkeys((*columns, _ID)))
        parts = [TABLES[table].arrow_schema(wanted).empty_table()]
        used: list[_Key] = []
        bounds = self._bounds(table)
        some = np.searchsorted(ids, bounds.high, "right") > np.searchsorted(ids, bounds.low, "left")
        for number in np.flatnonzero(some) if len(ids) else ():
            key = (table, self.stored.pieces(table)[number].group, wanted)
            rows = self._waiting.get(key)
            if rows is None:
                rows = self.stored.piece(*key)
            # the calls of a row group are adjacent, so that the next span is likely to need it again
            self._wait(key, rows, last=False)
            used.append(key)
            own = integers(rows.column(_ID), NO_ID)
            parts.append(_rows_at(rows, np.flatnonzero((own >= ids[0]) & (own <= ids[-1]))))
        for key in set(self._looked_up.get(table, ())) - set(used):
            self._release(key)
        self._looked_up[table] = used
        return pa.concat_tables(parts[1:] or parts).select(list(columns)).unify_dictionaries()

    def dictionary(self, table: str, columns: Sequence[str]) -> Any:
        """A table that is not a table of events, read once."""
        key = (table, tuple(columns))
        if key not in self._dictionaries:
            self._dictionaries[key] = self.stored.table(table, columns)
        return self._dictionaries[key]

    def _wait(self, key: _Key, rows: Any, *, last: bool) -> None:
        """Hold a row group for the next span, where there is room, until the span that is the last to need it."""
        if last:
            self._release(key)
        elif key not in self._waiting and rows.nbytes <= self._room.free_bytes:
            self._room.free_bytes -= rows.nbytes
            self._waiting[key] = rows

    def _release(self, key: _Key) -> None:
        rows = self._waiting.pop(key, None)
        if rows is not None:
            self._room.free_bytes += rows.nbytes

    def _bounds(self, table: str) -> _Bounds:
        """The correlation ids of the pieces of a table; all ids where the file does not say."""
        if table not in self._ids:
            pieces = self.stored.pieces(table)
            bounds = [self.stored.bounds(table, piece.group, _ID) for piece in pieces]
            self._ids[table] = _Bounds(
                np.array([_LEAST if low is None else low for low, _ in bounds], np.int64),
                np.array([_MOST if high is None else high for _, high in bounds], np.int64),
                np.array([piece.rows for piece in pieces], np.int64),
            )
        return self._ids[table]


class _Span:
    """The events of a rank that start in a span of time."""

    def __init__(self, slices: TimeSlices, since_ns: int | None, until_ns: int | None) -> None:
        self._slices = slices
        self._span = (since_ns, until_ns)
        self._called: Any = None

    def table(self, table: str, wanted: list[str]) -> Any:
        if table in DICTIONARIES or TABLES[table].order is None:
            return self._slices.dictionary(table, wanted)
        if table in self._slices.by_call:
            return self._slices.of_calls(table, wanted, self._ids())
        if table == _CALLS and self._slices.by_call:
            return self._calls(wanted).select(wanted)
        return self._slices.events(table, wanted, *self._span)

    def _ids(self) -> Int64:
        ids = integers(self._calls([_ID]).column(_ID), NO_ID)
        return np.sort(ids) if (ids[1:] < ids[:-1]).any() else ids

    def _calls(self, columns: Sequence[str]) -> Any:
        """The calls with some columns and perhaps others, read once for the ids and for the caller."""
        if self._called is None or not set(columns) <= set(self._called.column_names):
            self._called = self._slices.events(_CALLS, self._slices.read(_CALLS, columns), *self._span)
        return self._called


def _rows_at(table: Any, rows: Int64) -> Any:
    """Some rows of a table, ascending; nothing is copied where they follow each other."""
    if not len(rows) or rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return table.take(pa.array(rows))


def _reaches(piece: Piece, since_ns: int | None, until_ns: int | None) -> bool:
    """Whether a row group may have rows that start in the span."""
    if piece.start_ns is None or piece.last_start_ns is None:
        return True
    return (until_ns is None or piece.start_ns < until_ns) and (since_ns is None or piece.last_start_ns >= since_ns)


def _inside(starts: Any, since_ns: int | None, until_ns: int | None) -> Flags:
    """Which starts are in the span; one that is null, in the span without an end."""
    time = integers(starts)
    inside = np.ones(len(time), np.bool_)
    if since_ns is not None:
        inside &= time >= since_ns
    if until_ns is not None:
        inside &= time < until_ns
    if starts.null_count:
        null = starts.is_null().to_numpy()
        inside = inside & ~null if until_ns is not None else inside | null
    return inside


def spans(samples: Iterable[tuple[Int64, Int64]], span_rows: int) -> list[tuple[int | None, int | None]]:
    """Consecutive spans of about `span_rows` rows (`SpanRows.sampled`), open at both ends; the first has fewer."""
    parts = list(samples)
    starts, rows = (np.concatenate([np.empty(0, np.int64), *(one[side] for one in parts)]) for side in (0, 1))
    order = np.argsort(starts, kind="stable")
    before = np.cumsum(rows[order]) - rows[order]
    wanted = np.arange(min(_FIRST_ROWS, span_rows), int(rows.sum()), span_rows)
    at = np.searchsorted(before, wanted, "left")
    bounds = [int(b) for b in np.unique(starts[order][at[at < len(starts)]])]
    return list(zip([None, *bounds], [*bounds, None], strict=True))


def time_spans(rank: Rank, tables: Mapping[str, Sequence[str]]) -> Iterator[tuple[Rank, int]]:
    """The `tables` of a rank, a span of time after the other, with the events that start in it; and when each ends, ns.

    Tables that are not large, and those of which some rows do not count, are one span.
    """
    if not rank.whole or not any(map(rank.large, tables)):
        yield rank, _MOST
        return
    slices = TimeSlices(rank, tables, PieceRoom(_ROOM_BYTES))
    for since, until in spans([slices.sampled()], _SPAN_ROWS):
        yield slices.between(since, until), _MOST if until is None else until
