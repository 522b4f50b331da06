"""Tables of a rank that are read piece by piece, and columns that grow as the pieces come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from alltrace.run.prefetch import prefetched
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers

_PIECE_ROWS = 1 << 17


def in_pieces(rank: Rank, table: str, columns: Sequence[str]) -> Iterator[Any]:
    """The `table` of a rank like `Rank.table`, but in pieces if it is read from the rank's file.

    Each piece is read while the previous one is processed.
    """
    batches = rank.batches(table, columns, _PIECE_ROWS)
    if rank.in_memory:
        yield from batches
    else:
        with closing(prefetched(batches, 1)) as pieces:
            yield from pieces


class Growing:
    """Columns of int64 that rows are added to; what was foreseen is written once and never moved."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = [np.empty(rows, np.int64) for _ in range(columns)]
        self._rows = 0

    def add(self, *parts: Int64) -> None:
        """Add rows: a part for each column."""
        last = self._rows + len(parts[0])
        for place, part in enumerate(parts):
            column = self._columns[place]
            if last > len(column):
                self._columns[place] = np.empty(last + last // 2, np.int64)
                self._columns[place][: self._rows] = column[: self._rows]
            self._columns[place][self._rows : last] = part
        self._rows = last

    def columns(self) -> list[Int64]:
        """The columns, as long as rows were added."""
        return [column[: self._rows] for column in self._columns]


def whole_columns(rank: Rank, tables: Sequence[str], columns: Mapping[str, int]) -> list[Int64]:
    """Columns of whole numbers of some tables of a rank, one table after the other, as int64.

    They are read piece by piece, so that nothing but them takes memory.
    """
    rows = {} if rank.in_memory else rank.record.rows
    values = Growing(len(columns), sum(rows.get(table, 0) for table in tables))
    for table in tables:
        for piece in in_pieces(rank, table, tuple(columns)):
            values.add(*(integers(column, null) for column, null in zip(piece.columns, columns.values(), strict=True)))
    return values.columns()
