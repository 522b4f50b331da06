"""A rank's tables, one span of time after the other: only the row groups that reach into a span are read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.schema import DICTIONARIES, TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from alltrace.run.store import Piece, StoredRank

_SAMPLE_ROWS = 4096


class PieceRoom:
    """How many bytes of decoded row groups may wait in memory for the next span, over all ranks."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes


class TimeSlices:
    """The events of one rank by when they start.

    Args:
        rank: The rank.
        tables: The tables of events that are asked for.
        room: Shared by all ranks that are read side by side.
    """

    def __init__(self, rank: StoredRank, tables: Collection[str], room: PieceRoom) -> None:
        self.stored = rank
        self._tables = tables
        self._room = room
        self._waiting: dict[tuple[str, int, tuple[str, ...]], Any] = {}
        self._dictionaries: dict[tuple[str, tuple[str, ...] | None], Any] = {}

    def sampled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """About the start of every 4096th event, int64 ns in no order, and how many events each stands for.

        Events whose file does not say when they start have none.
        """
        starts, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for piece in (piece for table in self._tables for piece in self.stored.pieces(table)):
            if piece.start_ns is not None and piece.last_start_ns is not None:
                count = -(-piece.rows // _SAMPLE_ROWS)
                starts.append(piece.start_ns + (piece.last_start_ns - piece.start_ns) // count * np.arange(count))
                rows.append(np.full(count, piece.rows // count))
        return np.concatenate(starts), np.concatenate(rows)

    def between(self, since_ns: int | None, until_ns: int | None) -> TimeSlice:
        """The rank's tables with the events that start from `since_ns` until before `until_ns`; spans are asked for in order.

        None leaves a side open; an event without a start comes in the span without an end.
        """
        return TimeSlice(self, since_ns, until_ns)

    def events(self, table: str, columns: Sequence[str], since_ns: int | None, until_ns: int | None) -> Any:
        """The rows of a table that start in a span, in the order of the table."""
        order = TABLES[table].order or "start"
        wanted = tuple(dict.fromkeys((*columns, order)))
        found = [TABLES[table].arrow_schema(wanted).empty_table()]
        for piece in self.stored.pieces(table):
            if not _reaches(piece, since_ns, until_ns):
                continue
            key = (table, piece.group, wanted)
            rows = self._waiting.get(key)
            if rows is None:
                rows = self.stored.piece(table, piece.group, wanted)
            self._wait(key, rows, last=until_ns is None or (piece.last_start_ns is not None and piece.last_start_ns < until_ns))
            found.append(rows.filter(_inside(rows.column(order), since_ns, until_ns)))
        whole = pa.concat_tables(found[1:] or found)
        return whole.select(list(columns)).unify_dictionaries()

    def dictionary(self, table: str, columns: Sequence[str] | None) -> Any:
        """A table that is no table of events, read once."""
        key = (table, None if columns is None else tuple(columns))
        if key not in self._dictionaries:
            self._dictionaries[key] = self.stored.table(table, columns)
        return self._dictionaries[key]

    def _wait(self, key: tuple[str, int, tuple[str, ...]], rows: Any, *, last: bool) -> None:
        """Hold a row group for the next span, where there is room, until the span that is the last to need it."""
        if last:
            if self._waiting.pop(key, None) is not None:
                self._room.free_bytes += rows.nbytes
        elif key not in self._waiting and rows.nbytes <= self._room.free_bytes:
            self._room.free_bytes -= rows.nbytes
            self._waiting[key] = rows


class TimeSlice:
    """One rank's tables, cut down to the events that start in a span of time; a `RankTables`."""

    def __init__(self, slices: TimeSlices, since_ns: int | None, until_ns: int | None) -> None:
        self.rank = slices.stored.rank
        self.host = slices.stored.host
        self._slices = slices
        self._span = (since_ns, until_ns)

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`, at any time."""
        return self._slices.stored.has(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> Any:
        """The rows of the canonical `table` that start in the span; a dictionary is whole (see `RankTables.table`)."""
        if table in DICTIONARIES or TABLES[table].order is None:
            return self._slices.dictionary(table, columns)
        return self._slices.events(table, TABLES[table].column_names if columns is None else columns, *self._span)

    def gpu_samples(self, columns: Sequence[str]) -> Any:
        """The samples of the rank's GPUs, of any time (see `RankTables.gpu_samples`)."""
        return self._slices.stored.gpu_samples(columns)

    def shared(self, table: str) -> Any:
        """The rank's rows of `members` or `steps` of the alignment, of any time."""
        return self._slices.stored.shared(table)

    def texts(self, ids: Any) -> Any:
        """The strings of an Arrow array of name ids (see `RankTables.texts`)."""
        return self._slices.stored.texts(ids)

    def name_table(self) -> Any:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._slices.stored.name_table()


def _reaches(piece: Piece, since_ns: int | None, until_ns: int | None) -> bool:
    """Whether a row group may have rows that start in the span."""
    if piece.start_ns is None or piece.last_start_ns is None:
        return True
    return (until_ns is None or piece.start_ns < until_ns) and (since_ns is None or piece.last_start_ns >= since_ns)


def _inside(starts: Any, since_ns: int | None, until_ns: int | None) -> Any:
    """Which starts lie in the span, as an Arrow array of booleans without nulls."""
    inside = pc.is_valid(starts) if until_ns is not None else pc.or_(pc.is_valid(starts), pc.is_null(starts))
    if since_ns is not None:
        inside = pc.and_(inside, pc.fill_null(pc.greater_equal(starts, since_ns), until_ns is None))
    if until_ns is not None:
        inside = pc.and_(inside, pc.fill_null(pc.less(starts, until_ns), False))
    return inside
