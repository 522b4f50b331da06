"""Sorted runs of rows that wait on disk until all rows of a table are known."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BLOCK_BYTES = 512 * 1024
MIN_BLOCK_ROWS = 64


def spill_file(folder: Path) -> Path:
    """An unused name in `folder`."""
    return folder / f"{os.urandom(16).hex()}.spill"


class Spill:
    """One file of row blocks, written once and read once from front to back; uncompressed Arrow IPC.

    Args:
        folder: Where to make the file; made when it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path: Path = spill_file(folder)

    def write(self, blocks: Iterable[pa.RecordBatch]) -> None:
        """Write the blocks, of one schema, at least one."""
        writer: pa.RecordBatchStreamWriter | None = None
        with pa.OSFile(str(self.path), "wb") as sink:
            for block in blocks:
                if writer is None:
                    writer = pa.ipc.new_stream(sink, block.schema)
                writer.write_batch(block)
            if writer is not None:
                writer.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        """The blocks; the file is removed after the last one."""
        with pa.OSFile(str(self.path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
        self.remove()

    def remove(self) -> None:
        """Remove the file, if it is there."""
        self.path.unlink(missing_ok=True)


def block_rows(row_bytes: float) -> int:
    """How many rows of about `row_bytes` bytes make a block, so that one block of every run of a merge fits into memory."""
    return max(MIN_BLOCK_ROWS, int(BLOCK_BYTES / max(row_bytes, 1.0)))
