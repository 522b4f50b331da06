"""Reads and writes the Parquet files of a run."""

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.trace.arrays import Int64
from alltrace.trace.errors import InputError

ORDER_KEY = b"alltrace.row_groups"
"""In the metadata of a file: its row groups in the order of the table's rows, where they are in another."""

_ROWS_WORTH_THREADS = 100_000
_FEW_ROWS = 1 << 13  # row groups of more rows together are not held for the next rank
_WORTH_ZSTD_BYTES = 1 << 16
_WRITE_WHOLE_BYTES = 1 << 22  # a table of up to this size is encoded in memory and written at once, for the same reason
_READ_WHOLE_BYTES = 1 << 18
"""A file of up to this size is read at once: a rank of a large run has many small files, and a call for each column of
each takes as long as to decode it."""


def quick_codec() -> str:
    """The codec for a column of a small table: one that has little to set up for each column, where there is one."""
    return "lz4" if pa.Codec.is_available("lz4") else "zstd"


def write_quickly(table: Any, path: Path, row_group_rows: int | None = None) -> None:
    """Write a table that can be made again, in row groups of at most `row_group_rows`."""
    pq.write_table(table, path, row_group_rows, compression=quick_codec())


def row_group_order(metadata: Any) -> list[int]:
    """The row groups of a file in the order of the table's rows. Raises `pyarrow.ArrowInvalid`: not all, or others."""
    groups = list(range(metadata.num_row_groups))
    text = (metadata.metadata or {}).get(ORDER_KEY)
    if text is None:
        return groups
    try:
        order = json.loads(text)
        if sorted(order) == groups:
            return [int(g) for g in order]
    except (ValueError, TypeError, RecursionError):
        pass
    raise pa.ArrowInvalid("the order of its row groups is damaged")


def read_parquet(path: Path, columns: Sequence[str], dictionaries: Sequence[str] = ()) -> Any:
    """The `columns` of a file of a run as a `pyarrow.Table`, with the columns in `dictionaries` dictionary-encoded."""
    with _reading(path):
        table = _read(path, list(columns), list(dictionaries))
    return _wanted(table, columns, dictionaries)


def read_rows(path: Path, columns: Sequence[str], of: tuple[str, int], dictionaries: Sequence[str] = ()) -> Any:
    """The rows of `read_parquet` in which the column `of[0]` is `of[1]`; reads only row groups that may have such."""
    with _reading(path):
        status = path.stat()
        facts = _facts(path, of[0], status.st_size, status.st_mtime_ns)
        groups = tuple(facts.groups(of[1]))
        few = sum(facts.metadata.row_group(group).num_rows for group in groups) <= _FEW_ROWS
        read = _rows_of_groups if few else _rows_of_groups.__wrapped__
        table = read(path, facts, groups, tuple(columns), tuple(dictionaries))
        rows = np.flatnonzero(table.column(of[0]).to_numpy() == of[1])
        # they are mostly adjacent, which can be checked without a copy
        together = not len(rows) or rows[-1] - rows[0] == len(rows) - 1
        table = table.slice(rows[0] if len(rows) else 0, len(rows)) if together else table.take(pa.array(rows))
    return _wanted(table, columns, dictionaries)


@dataclass(frozen=True, eq=False)
class _Facts:
    """Of a file in which rows are looked for by a column of whole numbers."""

    metadata: Any  # the file's `pyarrow.parquet.FileMetaData`
    order: Int64  # its row groups in the order of the table's rows
    # the least value of the column in each of these; the lowest integer if the file does not state it
    low: Int64
    high: Int64  # the highest value, likewise

    def groups(self, value: int) -> list[int]:
        groups: list[int] = self.order[(self.low <= value) & (value <= self.high)].tolist()
        return groups


@lru_cache(4)  # ranks that come one after the other are often in the same row groups
def _rows_of_groups(
    path: Path, facts: _Facts, groups: tuple[int, ...], columns: tuple[str, ...], dictionaries: tuple[str, ...]
) -> Any:
    with pq.ParquetFile(path, metadata=facts.metadata, read_dictionary=list(dictionaries)) as file:
        return file.read_row_groups(list(groups), columns=list(columns), use_threads=False)


@lru_cache(8)
def _facts(path: Path, column: str, _size_bytes: int, _written_ns: int) -> _Facts:
    """What is known of a file, read once for all ranks that have rows in it."""
    metadata = pq.read_metadata(path)
    order = row_group_order(metadata)
    place = metadata.schema.names.index(column) if order else 0
    every = np.iinfo(np.int64)
    bounds = []
    for group in order:
        chunk = metadata.row_group(group).column(place)
        stats = chunk.statistics if chunk.is_stats_set else None
        bounds.append((every.min, every.max) if stats is None or not stats.has_min_max else (stats.min, stats.max))
    low, high = np.array(bounds, np.int64).reshape(-1, 2).T
    return _Facts(metadata, np.array(order, np.int64), low, high)


def _wanted(table: Any, columns: Sequence[str], dictionaries: Sequence[str]) -> Any:
    """The table with its columns in the order wanted, one dictionary each, and all of them nullable.

    A file may say that a column has no nulls; that holds only for this file, and tables of several files are combined.
    """
    there = table.column_names
    wanted = [name for name in columns if name in there]
    if wanted != there:
        table = table.select(wanted)
    if dictionaries:
        table = table.unify_dictionaries()
    if all(field.nullable for field in table.schema):
        return table
    return pa.Table.from_arrays(table.columns, schema=pa.schema([field.with_nullable(True) for field in table.schema]))


def _read(path: Path, columns: list[str], dictionaries: list[str]) -> Any:
    with _opened(path, dictionaries) as file:
        # to hand a few rows to other threads costs more than to decode them
        threads = file.metadata.num_rows >= _ROWS_WORTH_THREADS
        return file.read_row_groups(row_group_order(file.metadata), columns=columns, use_threads=threads)


def _opened(path: Path, dictionaries: list[str]) -> Any:
    """A `pyarrow.parquet.ParquetFile`; of a small file, its bytes."""
    small = path.stat().st_size <= _READ_WHOLE_BYTES
    return pq.ParquetFile(pa.py_buffer(path.read_bytes()) if small else path, read_dictionary=dictionaries)


def write_parquet(table: Any, path: Path, **settings: Any) -> None:
    """Write a table to a separate, compressed file. Raises `pyarrow.ArrowException`: Parquet has no such type."""
    codec = "zstd" if table.get_total_buffer_size() > _WORTH_ZSTD_BYTES else quick_codec()
    write_row_group(table, path, compression=codec, **settings)


def write_row_group(table: Any, path: Path, **settings: Any) -> None:
    """Write a table as one row group; `settings` are those of `pyarrow.parquet.ParquetWriter`."""
    memory = pa.BufferOutputStream() if table.get_total_buffer_size() <= _WRITE_WHOLE_BYTES else None
    with pq.ParquetWriter(path if memory is None else memory, table.schema, **settings) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    if memory is not None:
        path.write_bytes(memory.getvalue())


def read_row_groups(
    path: Path,
    columns: Sequence[str],
    dictionaries: Sequence[str] = (),
    rows: int = 0,
    chosen: Container[int] | None = None,
) -> Iterator[Any]:
    """The row groups of `read_parquet`, one after the other in the order of the table's rows.

    `dictionaries`: the columns that are dictionary-encoded. `rows`: row groups are read together up to this many
    rows; 0 for each alone. `chosen`: the numbers of the tables that are read out of these; None for all.
    """
    with _reading(path), _opened(path, list(dictionaries)) as file:
        for number, groups in enumerate(_together(file.metadata, rows)):
            if chosen is not None and number not in chosen:
                continue
            table = file.read_row_groups(groups, columns=list(columns), use_threads=False)
            yield _wanted(table, columns, dictionaries)


def _together(metadata: Any, rows: int) -> Iterator[list[int]]:
    """A file's row groups in the order of the table's rows, as many at a time as have `rows` rows, one at least."""
    groups: list[int] = []
    count = 0
    for group in row_group_order(metadata):
        groups.append(group)
        count += metadata.row_group(group).num_rows
        if count >= rows:
            yield groups
            groups, count = [], 0
    if groups:
        yield groups


def read_metadata(path: Path) -> Any:
    """The `pyarrow.parquet.FileMetaData` of a file of a run."""
    with _reading(path):
        metadata = pq.read_metadata(path)
        row_group_order(metadata)
    return metadata


def read_row_group(
    path: Path, metadata: Any, group: int, columns: Sequence[str], dictionaries: Sequence[str] = ()
) -> Any:
    """One row group of a file, by its number in the file, as a `pyarrow.Table`; `metadata` spares reading it again."""
    with _reading(path), pq.ParquetFile(path, metadata=metadata, read_dictionary=list(dictionaries)) as file:
        table = file.read_row_group(group, columns=list(columns), use_threads=False)
        return _wanted(table, columns, dictionaries)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(path, found=f"it cannot be read ({first})", advice="import the reports again") from error
