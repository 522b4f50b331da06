"""Arrow files followed by a checksum of their bytes, with the signature of what they were derived from."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from alltrace.run.checksums import append_checksum, checked_content
from alltrace.run.derived import draft_of
from alltrace.trace.errors import DamageError

_SIGNATURE = b"alltrace.signature"


def write_table(path: Path, table: pa.Table, signature: str = "") -> None:
    """Write a compressed Arrow file followed by its checksum, completely or not at all."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _SIGNATURE: signature.encode()})
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 3))
    with draft_of(path) as draft:
        with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table)
        append_checksum(draft)


def read_table(path: Path) -> pa.Table:
    """What `write_table` wrote, with its metadata.

    Raises `DamageError`: the file is missing or not as it was written.
    """
    return _read(_opened(path))


def read_signed(path: Path, signature: str) -> pa.Table | None:
    """The same; None if it has another signature."""
    file = _opened(path)
    return _read(file) if _signature(file) == signature else None


def has_signature(path: Path, signature: str) -> bool:
    """Whether the file is as it was written, with `signature`."""
    try:
        return _signature(_opened(path)) == signature
    except DamageError:
        return False


def _opened(path: Path) -> pa.RecordBatchFileReader:
    return pa.ipc.open_file(checked_content(path))


def _signature(file: pa.RecordBatchFileReader) -> str:
    return str((file.schema.metadata or {}).get(_SIGNATURE, b"").decode())


def _read(file: pa.RecordBatchFileReader) -> pa.Table:
    table = file.read_all()
    facts = {name: fact for name, fact in (table.schema.metadata or {}).items() if name != _SIGNATURE}
    return table.replace_schema_metadata(facts or None)
