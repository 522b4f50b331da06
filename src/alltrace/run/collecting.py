"""Tables of a rank that are read piece by piece, and columns that grow as the pieces come."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.run.prefetch import prefetched
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers

_PIECE_ROWS = 1 << 17


def in_pieces(rank: Rank, table: str, columns: Sequence[str]) -> Iterator[Any]:
    """The `table` of a rank like `Rank.table`, but in pieces of its file, each read while the previous is processed."""
    batches = rank.batches(table, columns, _PIECE_ROWS)
    if rank.holds(table) or rank.record.rows.get(table, 0) <= _PIECE_ROWS:
        yield from batches
    else:
        with closing(prefetched(batches, 1)) as pieces:
            yield from pieces
        if rank.large(table):  # what follows takes NumPy's memory
            pa.default_memory_pool().release_unused()


def file_pieces(rank: Rank, table: str, columns: Sequence[str]) -> Iterator[Any]:
    """The same in the time of the rank's files; a table that is not large is whole."""
    if not rank.large(table):
        yield rank.file_table(table, columns)
    else:
        yield from in_pieces(rank.in_file_time(), table, columns)


class Growing:
    """Columns of one type that rows are added to; what was foreseen is written once and never moved."""

    def __init__(self, columns: int, rows: int, kind: type[Any] = np.int64) -> None:
        self._columns = [np.empty(rows, kind) for _ in range(columns)]
        self._rows = 0

    def add(self, *parts: NDArray[Any]) -> None:
        """Add rows: a part for each column."""
        last = self._rows + len(parts[0])
        for place, part in enumerate(parts):
            column = self._columns[place]
            if last > len(column):
                self._columns[place] = np.empty(last + last // 2, column.dtype)
                self._columns[place][: self._rows] = column[: self._rows]
            self._columns[place][self._rows : last] = part
        self._rows = last

    def columns(self) -> list[NDArray[Any]]:
        """The columns, as long as rows were added."""
        return [column[: self._rows] for column in self._columns]


def whole_columns(rank: Rank, tables: Sequence[str], columns: Mapping[str, int]) -> list[Int64]:
    """Columns of whole numbers of some tables, one table after the other, as int64; read piece by piece."""
    rows = sum(rank.record.rows.get(table, 0) for table in tables if not rank.holds(table))
    values = Growing(len(columns), rows)
    for table in tables:
        for piece in in_pieces(rank, table, tuple(columns)):
            values.add(*(integers(column, null) for column, null in zip(piece.columns, columns.values(), strict=True)))
    return values.columns()
