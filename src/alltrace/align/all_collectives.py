"""The `collectives` of all ranks in one table.

A separate table for each of thousands of ranks would take more memory than its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLES_AT_ONCE = 256
"""Tables that are held separately before they are written into one."""


class AllCollectives(Mapping[int, pa.Table]):
    """The tables of ranks by number, each a part of one table.

    Args:
        whole: All rows, in the order of `rows`.
        rows: How many rows each rank has.
    """

    def __init__(self, whole: pa.Table, rows: Mapping[int, int]) -> None:
        self.whole, self.rows = whole, rows
        self._first = dict(zip(rows, accumulate(rows.values(), initial=0), strict=False))

    @classmethod
    def joined(cls, tables: Iterable[tuple[int, pa.Table]]) -> AllCollectives:
        """The tables of at least one rank, by rank, all of one schema; released as they are written into one."""
        rows: dict[int, int] = {}
        joined: list[pa.Table] = []
        waiting: list[pa.Table] = []
        for rank, table in tables:
            rows[rank] = table.num_rows
            waiting.append(table)
            if len(waiting) == TABLES_AT_ONCE:
                joined.append(_in_one(waiting))
                waiting.clear()
        return cls(_in_one([*joined, *waiting]), rows)

    @classmethod
    def sorted(cls, table: pa.Table) -> AllCollectives:
        """The tables of the ranks in a column `rank`, each in the order of its rows."""
        rank = table.column("rank").to_numpy()
        order = np.argsort(rank, kind="stable")
        numbers, rows = np.unique(rank, return_counts=True)
        return cls(table.take(pa.array(order)).combine_chunks(), dict(zip(numbers.tolist(), rows.tolist(), strict=True)))

    @classmethod
    def of(cls, tables: Mapping[int, pa.Table]) -> AllCollectives:
        """The tables of some ranks, at least one, merged into one if they are separate."""
        return tables if isinstance(tables, cls) else cls.joined((rank, tables[rank]) for rank in sorted(tables))

    def __getitem__(self, rank: int) -> pa.Table:
        """The rows of a rank, which are not copied."""
        return self.whole.slice(self._first[rank], self.rows[rank])

    def __iter__(self) -> Iterator[int]:
        """The ranks."""
        return iter(self._first)

    def __len__(self) -> int:
        """The number of ranks."""
        return len(self._first)


def _in_one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
