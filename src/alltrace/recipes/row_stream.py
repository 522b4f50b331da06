"""Answers with a row for each event, as they are made: sorted over all ranks, one span of time after the other.

A rank yields its rows of one span at a time, read from its tables or, if a row needs more than that, from a file of its
sorted rows in a temporary folder. Memory holds the rows of one span of all ranks.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.execution.part_store import PartFiles
from alltrace.recipes.part import Part
from alltrace.run.rank import Rank
from alltrace.run.time_slices import PieceRoom, TimeSlices, spans
from alltrace.trace.arrays import Int64

_Reads = Mapping[str, Sequence[str]]

SPAN_ROWS = 1 << 19  # about how many rows of all ranks are in memory at once

_BATCH_ROWS = 1 << 16
_BLOCK_ROWS = 1 << 12  # of a file of sorted rows, of which one start is looked at
_ROOM_BYTES = 256 << 20
_LOOKED_UP_ROWS = 1 << 22  # of launched work in memory at once, over all ranks
_LAST = np.iinfo(np.int64).max


class RowStream:
    """The rows of an answer, once through; `empty`: a table without rows, for the schema of an answer without any.

    `tables` is closed when it is read to its end, with `close`, or when nothing refers to the stream any more, and
    removes its temporary files then.
    """

    def __init__(self, tables: Generator[pa.Table, None, None], empty: pa.Table) -> None:
        self._tables = tables
        self._first = next((table for table in tables if table.num_rows), None)
        self.schema: pa.Schema = (empty if self._first is None else self._first).schema
        self.is_empty: bool = self._first is None

    def tables(self, limit: int | None = None) -> Iterator[pa.Table]:
        """The rows, or the first `limit` of them, as `pyarrow.Table`s of one schema, each of which has rows."""
        left = limit
        while left != 0 and (table := self._next()) is not None:
            part = table if left is None else table.slice(0, left)
            left = None if left is None else left - part.num_rows
            yield part

    def batches(self, rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows as `pyarrow.RecordBatch`es of up to `rows` rows."""
        for table in self.tables():
            yield from table.to_batches(max_chunksize=rows)

    def read_all(self) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *self.tables()]).unify_dictionaries()

    def head(self, limit: int) -> tuple[pa.Table, int]:
        """The first `limit` rows as one table, and how many follow; all are made, few are in memory."""
        first, more = [self.schema.empty_table()], 0
        for table in self.tables():
            first.append(table.slice(0, limit))
            more += table.num_rows - first[-1].num_rows
            limit -= first[-1].num_rows
        return pa.concat_tables(first).unify_dictionaries(), more

    def close(self) -> None:
        """Make no more rows, and remove the temporary files."""
        self._first = None
        self._tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> pa.Table | None:
        if self._first is not None:
            table, self._first = self._first, None
            return table
        table = next((table for table in self._tables if table.num_rows), None)
        return table if table is None or table.schema == self.schema else table.cast(self.schema)


class StreamedRank:
    """A rank that yields its rows span by span; `narrowed` cuts the tables down to the selected steps."""

    def __init__(self, stored: Rank, narrowed: Callable[[Rank], Rank]) -> None:
        self.rank: int = stored.rank
        self._stored = stored
        self._narrowed = narrowed

    def whole(self) -> Rank:
        return self._narrowed(self._stored)

    def slices(
        self, tables: _Reads, room: PieceRoom, rows: Callable[[Rank], pa.Table], by_call: Collection[str] = ()
    ) -> "SlicedRank":
        """The rows that `rows` makes of the rank's tables in one span; see `TimeSlices` for the other arguments."""
        return SlicedRank(TimeSlices(self._stored, tables, room, by_call), lambda span: rows(self._narrowed(span)))


class SpanRows(Protocol):
    """The rows of one rank by their starts."""

    rank: int

    def sampled(self) -> tuple[Int64, Int64]:
        """Some starts, int64 ns in no order, and how many rows each represents."""

    def between(self, since_ns: int | None, until_ns: int | None) -> pa.Table:
        """The rows that start in a span as a `pyarrow.Table`; a row without a start is in the span without an end."""


class SlicedRank:
    """The rows of one rank, as `rows` makes them of the events of a span of `slices`."""

    def __init__(self, slices: TimeSlices, rows: Callable[[Rank], pa.Table]) -> None:
        self.rank: int = slices.stored.rank
        self.sampled: Callable[[], tuple[Int64, Int64]] = slices.sampled
        self.most_looked_up: Callable[[], int] = slices.most_looked_up
        self._slices = slices
        self._rows = rows

    def between(self, since_ns: int | None, until_ns: int | None) -> pa.Table:
        """The rows of the events that start in a span."""
        return self._rows(self._slices.between(since_ns, until_ns))


def sliced_ranks(ranks: Iterable[StreamedRank], tables: _Reads, rows: Callable[[Rank], pa.Table]) -> list[SlicedRank]:
    """The rows of each rank, made by `rows` of its `tables`, if each comes from one event and has its start."""
    room = PieceRoom(_ROOM_BYTES)
    return [rank.slices(tables, room, rows) for rank in ranks]


def merged_by_call(
    ranks: Iterable[StreamedRank],
    tables: _Reads,
    by_call: Collection[str],
    rows: Callable[[Rank], pa.Table],
    order: str,
) -> Generator[list[Part], None, None]:
    """The rows of all ranks as by `merged`, if each comes from a call, with its start, and the work that it launched.

    Work is looked up by the correlation ids of the calls of a span. If these are not in order of time, nearly all work
    has to be searched for each span, so these ranks are computed as a whole, as by `merged_spilled`. `rows` makes a
    table of `tables`, among these `by_call`; `order`: its column of starts. Raises `InputError`: a file cannot be used.
    """
    room = PieceRoom(_ROOM_BYTES)
    left = _LOOKED_UP_ROWS
    with PartFiles(0) as files:
        streams: list[SpanRows] = []
        for rank in ranks:
            sliced = rank.slices(tables, room, rows, by_call)
            looked_up = sliced.most_looked_up()
            if looked_up <= left:
                left -= looked_up
                streams.append(sliced)
                continue
            streams.append(SpilledRows(files, rank.rank, rows(rank.whole()), order))
        yield from merged(streams)


class SpilledRows:
    """The rows of one rank in a file, by their starts (column `order`), null last. Raises `InputError`: not written."""

    def __init__(self, files: PartFiles, rank: int, table: pa.Table, order: str) -> None:
        self.rank = rank
        self._order = order
        column = table.column(order)
        start = (pc.fill_null(column, _LAST) if column.null_count else column).to_numpy()
        if (start[1:] < start[:-1]).any():
            table = table.take(pa.array(np.argsort(start, kind="stable")))
        self._started = len(start) - column.null_count
        self._part = files.stored(Part(rank, table))

    def sampled(self) -> tuple[Int64, Int64]:
        """The first start of each block, and the rows of the block."""
        table = self._part.table
        first = np.arange(0, table.num_rows, _BLOCK_ROWS)
        starts, started = np.full(len(first), _LAST), first < self._started
        starts[started] = self._starts(table)[first[started]]
        return starts, np.diff(first, append=table.num_rows)

    def between(self, since_ns: int | None, until_ns: int | None) -> pa.Table:
        """The rows that start in a span; only these are read."""
        table = self._part.table
        start = self._starts(table)
        first = 0 if since_ns is None else int(np.searchsorted(start, since_ns, "left"))
        end = table.num_rows if until_ns is None else int(np.searchsorted(start, until_ns, "left"))
        return table.slice(first, end - first)

    def _starts(self, table: pa.Table) -> Int64:
        starts: Int64 = table.column(self._order).slice(0, self._started).to_numpy()
        return starts


@contextmanager
def spilled_parts(ranks: Iterable[tuple[int, pa.Table]]) -> Generator[list[Part], None, None]:
    """Parts of all ranks, made one by one and kept in files in this block. Raises `InputError`: not written."""
    with PartFiles(0) as files:
        yield [files.stored(Part(rank, table)) for rank, table in ranks]


def merged_spilled(ranks: Iterable[tuple[int, pa.Table]], order: str) -> Generator[list[Part], None, None]:
    """As `merged`, of ranks that can only be made whole and go to files. Raises `InputError`: not written."""
    with PartFiles(0) as files:
        yield from merged([SpilledRows(files, rank, table, order) for rank, table in ranks])


def merged(ranks: Sequence[SpanRows]) -> Generator[list[Part], None, None]:
    """The rows of all ranks, span after span: of each the rows of the ranks, in the order of `ranks`."""
    for since, until in spans([rank.sampled() for rank in ranks], SPAN_ROWS):
        yield [Part(rank.rank, rank.between(since, until)) for rank in ranks]
