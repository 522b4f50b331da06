"""What a recipe's `map` returned for one rank."""

from collections.abc import Iterable

import pyarrow as pa


class Part:
    """What `map` returned for one rank."""

    def __init__(self, rank: int, table: pa.Table) -> None:
        self.rank = rank
        self._table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.rank == other.rank and bool(self.table == other.table)

    def __hash__(self) -> int:
        return self.rank

    @property
    def table(self) -> pa.Table:
        return self._table

    def batches(self) -> Iterable[pa.RecordBatch]:
        """The rows of a table as `pyarrow.RecordBatch`es; those in a file are read as they are taken."""
        batches: Iterable[pa.RecordBatch] = self.table.to_batches()
        return batches
