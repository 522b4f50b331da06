"""The rows of the parts of all ranks as one relation of a statement, which is read from files on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.part import Part
from alltrace.trace.errors import AlltraceError

_RANK = "rank"


class PartRows:
    """The rows of all parts, with `rank` as a column, one batch after the other; a statement may scan them several times.

    `schema`: The types of the rows: for each column the one that holds the types of all parts; words are plain text.
    `failure`: Why the rows cannot be read, once that was tried: a statement itself fails with an error of DuckDB.
    `parts`: Parts whose `table`s have the same columns, besides `rank`, which is added if missing; at least one part.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.failure: AlltraceError | None = None
        schemas = [_plain(with_rank(part.table.schema.empty_table(), part.rank).schema) for part in parts]
        self.schema: pa.Schema = pa.unify_schemas(schemas, promote_options="permissive")

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows from the first one on, as Arrow's C stream interface has them."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[Any]:
        """The rows as `pyarrow.RecordBatch`es."""
        try:
            for part in self._parts:
                for batch in part.batches():
                    rows = with_rank(pa.Table.from_batches([batch]), part.rank)
                    yield from rows.select(self.schema.names).cast(self.schema).to_batches()
        except AlltraceError as error:
            self.failure = error
            raise


def with_rank(table: Any, rank: int) -> Any:
    """The table with the column `rank`, in front if it had none."""
    if _RANK in table.column_names:
        return table
    return table.add_column(0, _RANK, pa.array(np.full(table.num_rows, rank, np.int32)))


def _plain(schema: Any) -> Any:
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])
