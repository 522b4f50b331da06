"""The operations of all ranks in temporary files, in short batches that are read in the order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.align.operations import INFERRED, MATCHED_COLUMNS, operation_times
from alltrace.align.spilled_batches import SpilledBatches
from alltrace.align.spilled_timelines import TimelinesWriter
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import RankClock
    from alltrace.align.spilled_timelines import SpilledTimelines

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
    """

    def __init__(self, file: Path, ranks: int, most: int) -> None:
        fields = TABLES["collectives"].arrow_schema()
        columns = [pa.field(n, pa.string()) if n == _TEXT else fields.field(n) for n in MATCHED_COLUMNS]
        self._batches = SpilledBatches(file, pa.schema([*columns, pa.field("rank", pa.int64()), pa.field("row", pa.int64())]))
        self._file, self._most = file, most
        self._times = TimelinesWriter(_with_suffix(file, ".times"))
        self._inferred: Path | None = None
        self._batch_rows = min(max(most // (_PARTS * max(ranks, 1)), _SHORTEST), _LONGEST)
        self.rows: dict[int, int] = {}
        self.extents: dict[int, tuple[int, int]] = {}
        self.calls_only = 0
        self._rank: list[int] = []
        self._start: list[int] = []
        self._many: list[int] = []

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
        self._times.add(rank, kept, times.start[rows], times.end[rows], times.sequence[rows])
        kept = kept.append_column("rank", pa.array(np.full(len(rows), rank, np.int64))).append_column("row", pa.array(rows))
        for first in range(0, len(rows), self._batch_rows):
            part = kept.slice(first, self._batch_rows).cast(self._batches.schema)
            self._batches.add(part)
            self._rank.append(rank)
            self._start.append(int(times.start[rows[first]]))
            self._many.append(part.num_rows)

    def in_order(self, clocks: Mapping[int, RankClock]) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of all batches in the order of their first start, these starts in ns of the common time, and their rows."""
        shifted = [clocks[r].common(s) for s, r in zip(self._start, self._rank, strict=True)]
        start = np.array(shifted).astype(np.int64)
        order = np.argsort(start, kind="stable")
        return order, start[order], np.array(self._many, np.int64)[order]

    def timelines(self, texts: Callable[[Any], Any]) -> SpilledTimelines | None:
        """Times and kinds of the operations; None if there are none.

        Args:
            texts: The strings of an Arrow array of name ids.
        """
        return self._times.written(texts, self.extents, self._most) if self.extents else None

    def add_inferred(self, timelines: SpilledTimelines, found: Callable[[int], Numbers]) -> None:
        """From now on `read` gives each operation the number of its inferred communicator, -1 for none.

        Args:
            timelines: The operations.
            found: The numbers for a rank, as its timeline has the operations.
        """
        self._inferred = _with_suffix(self._file, ".inferred")
        with self._inferred.open("wb") as out:
            for rank in self.extents:
                out.write(timelines.by_start(rank, found(rank)).astype(np.int32).tobytes())

    def read(self, numbers: Sequence[int]) -> pa.Table:
        """The operations of some batches, with their `rank`, the `row` of the rank's table, and `inferred` if it is known."""
        table = self._batches.read(numbers)
        if self._inferred is None:
            return table
        first = np.concatenate(([0], np.cumsum(self._many)))
        parts = [np.fromfile(self._inferred, np.int32, self._many[n], offset=4 * int(first[n])) for n in numbers]
        return table.append_column(INFERRED, pa.array(np.concatenate(parts)))

    def remove(self) -> None:
        """Remove the files."""
        self._batches.remove()
        self._times.remove()
        if self._inferred is not None:
            self._inferred.unlink()


def _with_suffix(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)
