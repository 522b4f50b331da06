"""Record batches in a temporary file, each of which can be read alone: what all ranks have, where it does not fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc as ipc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class SpilledBatches:
    """A file of record batches of one schema: first all are written, then they are read.

    Args:
        file: The file, which must not exist.
        schema: Their schema, without dictionaries.

    Attributes:
        count: The number of batches.
    """

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self._file, self.schema = file, schema
        self._writer: ipc.RecordBatchFileWriter | None = ipc.new_file(str(file), schema)
        self._reader: ipc.RecordBatchFileReader | None = None
        self.count = 0

    def add(self, table: pa.Table) -> int:
        """Write a table of at least one row as one batch; returns the number of the batch."""
        if self._writer is None:
            raise ValueError("batches are read, so none can be written")
        self._writer.write_table(table.combine_chunks())
        self.count += 1
        return self.count - 1

    def read(self, numbers: Sequence[int]) -> pa.Table:
        """The rows of some batches, in this order."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reader is None:
            self._reader = ipc.open_file(pa.OSFile(str(self._file)))
        return pa.Table.from_batches([self._reader.get_batch(n) for n in numbers], self.schema)

    def remove(self) -> None:
        """Remove the file."""
        self._reader = None
        self._file.unlink()
