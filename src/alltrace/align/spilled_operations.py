"""The operations of all ranks in a temporary file, in short batches that are read in the order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.operations import MATCHED_COLUMNS, operation_times
from alltrace.align.spilled_batches import SpilledBatches
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import RankClock

    Numbers = NDArray[np.int64]

_PARTS = 8
_SHORTEST, _LONGEST = 32, 4096
_TEXT = "evidence"


class SpilledOperations:
    """The operations that can be members of an instance, each with its rank and the row of the rank's table.

    Args:
        file: The file, which must not exist.
        ranks: The number of ranks.
        most: How many operations are to be in memory at once; a batch of each rank is an eighth of them, if that is not too few.

    Attributes:
        rows: For each rank the rows of its table.
        extents: For each rank with such operations the first and the last end, ns in the time of its files.
        calls_only: The number of operations known by their call alone.
        communicators: For the name id of each communicator how many operations each of its ranks has in it.
        unnamed: The number of operations without a communicator.
    """

    def __init__(self, file: Path, ranks: int, most: int) -> None:
        fields = TABLES["collectives"].arrow_schema()
        columns = [pa.field(n, pa.string()) if n == _TEXT else fields.field(n) for n in MATCHED_COLUMNS]
        self._batches = SpilledBatches(file, pa.schema([*columns, pa.field("rank", pa.int64()), pa.field("row", pa.int64())]))
        self._batch_rows = min(max(most // (_PARTS * max(ranks, 1)), _SHORTEST), _LONGEST)
        self.rows: dict[int, int] = {}
        self.extents: dict[int, tuple[int, int]] = {}
        self.calls_only = self.unnamed = 0
        self.communicators: dict[int, dict[int, int]] = {}
        self._rank: list[int] = []
        self._start: list[int] = []
        self._many: list[int] = []
        self._of_rank: dict[int, list[int]] = {}

    def add(self, rank: int, table: pa.Table) -> None:
        """Write the operations of a rank, a table with `MATCHED_COLUMNS`."""
        times = operation_times(table)
        self.rows[rank] = table.num_rows
        self.calls_only += times.calls_only
        rows = np.flatnonzero(times.matchable)
        if not len(rows):
            return
        rows = rows[np.argsort(times.start[rows], kind="stable")]
        self.extents[rank] = int(times.end[rows].min()), int(times.end[rows].max())
        kept = table.select(MATCHED_COLUMNS).take(pa.array(rows))
        kept = kept.set_column(MATCHED_COLUMNS.index(_TEXT), _TEXT, kept.column(_TEXT).cast(pa.string()))
        for number, count in zip(*(c.to_pylist() for c in kept.column("communicator").value_counts().flatten()), strict=True):
            if number is None:
                self.unnamed += count
            else:
                self.communicators.setdefault(number, {})[rank] = count
        kept = kept.append_column("rank", pa.array(np.full(len(rows), rank, np.int64))).append_column("row", pa.array(rows))
        for first in range(0, len(rows), self._batch_rows):
            part = kept.slice(first, self._batch_rows).cast(self._batches.schema)
            self._of_rank.setdefault(rank, []).append(self._batches.add(part))
            self._rank.append(rank)
            self._start.append(int(times.start[rows[first]]))
            self._many.append(part.num_rows)

    def in_order(self, clocks: Mapping[int, RankClock]) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of all batches in the order of their first start, these starts in ns of the common time, and their rows."""
        shifted = [clocks[r].common(s) for s, r in zip(self._start, self._rank, strict=True)]
        start = np.array(shifted).astype(np.int64)
        order = np.argsort(start, kind="stable")
        return order, start[order], np.array(self._many, np.int64)[order]

    def read(self, numbers: Sequence[int]) -> pa.Table:
        """The operations of some batches, with their `rank` and the `row` of the rank's table."""
        return self._batches.read(numbers)

    def of_communicator(self, communicator: int, ranks: Collection[int]) -> pa.Table:
        """The operations of some ranks in a communicator, like those of `read`."""
        wanted = pc.equal(pc.field("communicator"), communicator)
        return pa.concat_tables([self.read(self._of_rank[rank]).filter(wanted) for rank in ranks])

    def remove(self) -> None:
        """Remove the file."""
        self._batches.remove()
