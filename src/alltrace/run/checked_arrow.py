"""Arrow files followed by a checksum of their bytes, for data that is derived from a run on demand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from alltrace.run.checksums import append_checksum, checked_content

if TYPE_CHECKING:
    from pathlib import Path


def write_table(path: Path, table: pa.Table) -> None:
    """Write a compressed Arrow file followed by its checksum, completely or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 3))
        with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table)
        append_checksum(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_table(path: Path) -> pa.Table:
    """What `write_table` wrote.

    Raises:
        DamageError: The file is missing or not as it was written.
    """
    return pa.ipc.open_file(checked_content(path)).read_all()
