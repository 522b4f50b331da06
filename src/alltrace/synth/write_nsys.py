"""Writes tables as an Nsight Systems export: one SQLite file, or a folder with one Parquet file for each table."""

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.synth.nsys_schema import Column, schema
from alltrace.synth.nsys_tables import Table

_CHUNK_ROWS = 65_536
# As the real exporter writes them.
_PARQUET_GROUP_ROWS = 2_048
_ONLY_IN_SQLITE = "META_DATA_CAPTURE"
_ARROW_TYPES = {
    "i64": "int64",
    "u64": "uint64",
    "i32": "int32",
    "f64": "float64",
    "f32": "float32",
    "bool": "bool",
    "text": "string",
}


def write_sqlite(tables: Mapping[str, Table], path: Path, version: str, page_bytes: int = 4096) -> None:
    """Writes `path`, completely or not at all."""
    # `tables`: tables by name; only these are created, as the lazy export of nsys does. `path`: the file; one that is
    # there is replaced. `page_bytes`: the file's page size, a power of two from 512 to 65536.
    columns = schema(version)
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {page_bytes:d}")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for name, table in tables.items():
            _insert(connection, name, table, columns[name])
        connection.execute("COMMIT")
        connection.close()
        partial.replace(path)
    except BaseException:
        connection.close()
        partial.unlink(missing_ok=True)
        raise


def _insert(connection: sqlite3.Connection, name: str, table: Table, columns: tuple[Column, ...]) -> None:
    declared = ",\n    ".join(column.declaration for column in columns)
    connection.execute(f"CREATE TABLE {name} (\n    {declared}\n)")
    many = [c.name for c in columns if _is_column(table.columns.get(c.name))]
    fixed = {c.name: table.columns.get(c.name) for c in columns if c.name not in many}
    # one value for all rows is in the statement, so it costs nothing per row
    values = ", ".join(_literal(fixed[c.name]) if c.name in fixed else "?" for c in columns)
    statement = " ".join(("INSERT INTO", name, "VALUES (", values, ")"))
    for first in range(0, table.rows, _CHUNK_ROWS):
        last = min(first + _CHUNK_ROWS, table.rows)
        parts = [_plain(table.columns[column], first, last) for column in many]
        connection.executemany(statement, zip(*parts, strict=True) if parts else repeat((), last - first))


def _is_column(values: object) -> bool:
    return isinstance(values, (np.ndarray, list, tuple))


def _plain(values: Any, first: int, last: int) -> Any:
    part = values[first:last]
    return part.tolist() if isinstance(part, np.ndarray) else part


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def write_parquetdir(tables: Mapping[str, Table], folder: Path, version: str) -> None:
    """Writes `folder` with `TABLE.parquet` for each table, completely or not at all."""
    # `tables`: tables by name. The real exporter leaves the capture's metadata out of this form, and so does this.
    # `folder`: the folder, by nsys' custom named `<report>_pqtdir`; one that is there is replaced.
    columns = schema(version)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for name, table in tables.items():
            if name != _ONLY_IN_SQLITE:
                _write_parquet(partial / f"{name}.parquet", table, columns[name])
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_parquet(path: Path, table: Table, columns: tuple[Column, ...]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = [
        pa.field(c.name, getattr(pa, _ARROW_TYPES[c.type].replace("bool", "bool_"))(), not c.required) for c in columns
    ]
    layout = pa.schema(types)
    with pq.ParquetWriter(path, layout, compression="NONE", version="1.0", store_schema=False) as writer:
        for batch in _batches(table, layout):
            writer.write_table(batch, row_group_size=_PARQUET_GROUP_ROWS)


def _batches(table: Table, layout: Any) -> Iterator[Any]:
    import pyarrow as pa

    for first in range(0, table.rows, _CHUNK_ROWS):
        last = min(first + _CHUNK_ROWS, table.rows)
        arrays = []
        for field in layout:
            values = table.columns.get(field.name)
            part = _plain(values, first, last) if _is_column(values) else [values] * (last - first)
            # Arrow makes truth of numbers, but not while it reads them
            arrays.append(
                pa.array(part).cast(field.type) if pa.types.is_boolean(field.type) else pa.array(part, field.type)
            )
        yield pa.Table.from_arrays(arrays, schema=layout)
