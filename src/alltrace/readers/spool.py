"""Rows on disk between the one pass over a trace and the tables that are read one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.trace.scratch import scratch_folder, writing_scratch


class Spool:
    """Batches of several tables, in a separate folder that is removed with it."""

    def __init__(self) -> None:
        self._folder = scratch_folder("alltrace-rows-")
        self._writers: dict[str, Any] = {}
        self._rows: dict[str, int] = {}

    def _path(self, table: str) -> Path:
        return Path(self._folder.name) / f"{table}.arrows"

    def append(self, table: str, columns: dict[str, Any]) -> None:
        """Write some rows of a table. Raises `InputError`: the temporary folder is full."""
        batch = pa.RecordBatch.from_pydict(columns)
        with writing_scratch(Path(self._folder.name), "the rows of a report"):
            if table not in self._writers:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writers[table] = pa.ipc.new_stream(str(self._path(table)), batch.schema, options=options)
            self._writers[table].write_batch(batch)
        self._rows[table] = self._rows.get(table, 0) + batch.num_rows

    def finish(self) -> None:
        """Close what was written."""
        with writing_scratch(Path(self._folder.name), "the rows of a report"):
            for writer in self._writers.values():
                writer.close()

    def read(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, in batches as they were written."""
        if table not in self._writers:
            return
        with pa.OSFile(str(self._path(table))) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def rows(self, table: str) -> int:
        """The rows of a table."""
        return self._rows.get(table, 0)

    def close(self) -> None:
        """Remove everything."""
        self._folder.cleanup()


def strict(table: str, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with the types of their table, so that all batches of it have one schema."""
    from alltrace.trace.schema import TABLES

    batch = record_batch(table, {c: v for c, v in columns.items() if c in TABLES[table].column_names})
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def record_batch(table: str, columns: dict[str, Any]) -> Any:
    """The canonical batch with the given columns; others are null."""
    from alltrace.trace.schema import TABLES

    schema = TABLES[table].arrow_schema()
    count = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(values, pa.Array):
            arrays.append(values if values.type == field.type else values.cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
