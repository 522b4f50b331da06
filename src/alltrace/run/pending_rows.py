"""Rows that wait in memory to be sorted: held batches, joined when they are taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.run.columns import HeldColumns


class Rows:
    """Held rows of one table. `held`: the form of the table's rows in memory."""

    def __init__(self, held: HeldColumns) -> None:
        self.count: int = 0  # the number of rows
        self.nbytes: int = 0  # about what they take
        self._held = held
        self._batches: list[pa.RecordBatch] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a held batch."""
        self._batches.append(batch)
        self.count += batch.num_rows
        self.nbytes += batch.nbytes

    def look(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns of all rows, at least one, held; they stay here."""
        return self._joined([batch.select(list(names)) for batch in self._batches])

    def take(self, permutation: NDArray[np.intp] | None = None) -> pa.RecordBatch:
        """All rows, at least one, as one held batch, in the order of `permutation`; afterwards there are none."""
        rows = self._joined(self._batches)
        self._batches, self.count, self.nbytes = [], 0, 0
        return rows if permutation is None else rows.take(pa.array(permutation))

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1:
            return batches[0]
        columns = []
        for name, parts in zip(batches[0].schema.names, zip(*(b.columns for b in batches), strict=True), strict=True):
            kind = self._held.plain.field(name).type
            none = [pa.types.is_null(part.type) for part in parts]
            full = [self._held.nulls(kind, len(p)) if is_null else p for p, is_null in zip(parts, none, strict=True)]
            columns.append(pa.nulls(sum(map(len, parts))) if all(none) else pa.concat_arrays(full))
        return pa.RecordBatch.from_arrays(columns, names=batches[0].schema.names)
