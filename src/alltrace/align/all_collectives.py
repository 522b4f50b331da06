"""The `collectives` of all ranks in one table.

A separate table for each of thousands of ranks would take more memory than its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TABLES_AT_ONCE = 256


class AllCollectives(Mapping[int, pa.Table]):
    """The tables of ranks by number, each a part of one table.

    Args:
        tables: The rank and the table of each, by rank, all of one schema; released as they are written.

    Attributes:
        whole: All rows, by rank; each column in one piece.
    """

    def __init__(self, tables: Iterable[tuple[int, pa.Table]]) -> None:
        self._first: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        joined: list[pa.Table] = []
        waiting: list[pa.Table] = []
        count = 0
        for rank, table in tables:
            self._first[rank], self._rows[rank] = count, table.num_rows
            count += table.num_rows
            waiting.append(table)
            if len(waiting) == _TABLES_AT_ONCE:
                joined.append(_in_one(waiting))
                waiting.clear()
        self.whole: pa.Table = _in_one([*joined, *waiting])

    @classmethod
    def of(cls, tables: Mapping[int, pa.Table]) -> AllCollectives:
        """The tables of some ranks, at least one, merged into one if they are separate."""
        return tables if isinstance(tables, cls) else cls((rank, tables[rank]) for rank in sorted(tables))

    @property
    def rows(self) -> Mapping[int, int]:
        """How many rows each rank has."""
        return self._rows

    def __getitem__(self, rank: int) -> pa.Table:
        """The rows of a rank, which are not copied."""
        return self.whole.slice(self._first[rank], self._rows[rank])

    def __iter__(self) -> Iterator[int]:
        """The ranks."""
        return iter(self._first)

    def __len__(self) -> int:
        """The number of ranks."""
        return len(self._first)


def _in_one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
