"""Reads and writes the Parquet files of a run; loads no more than that takes.

`pyarrow.parquet` loads what opens remote files and data sets, which takes longer than reading most tables, and 10 MB. Its reader
and writer, which lie below it, are used where this PyArrow has them as they are known.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ORDER_KEY = b"alltrace.row_groups"
"""In the metadata of a file: its row groups in the order of the table's rows, where they lie in another."""

_ROWS_WORTH_THREADS = 100_000


def row_group_order(metadata: Any) -> list[int]:
    """The row groups of a file of a run in the order of the table's rows.

    Args:
        metadata: The file's `pyarrow.parquet.FileMetaData`.

    Raises:
        pyarrow.ArrowInvalid: The file names row groups that it does not have, or not all of them.
    """
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
    """The `columns` of a file of a run as a `pyarrow.Table`, those of `dictionaries` dictionary-encoded.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        table = _read(path, list(columns), list(dictionaries))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    return _nullable(table.unify_dictionaries() if dictionaries else table)


def read_rows(path: Path, columns: Sequence[str], of: tuple[str, int], dictionaries: Sequence[str] = ()) -> Any:
    """The rows of `read_parquet` where a column of whole numbers has some value; reads only row groups that may have such rows.

    Args:
        path: The file.
        columns: The columns wanted, that of `of` among them.
        of: The column, and its value.
        dictionaries: Those of the columns that are dictionary-encoded.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        table = _read(path, list(columns), list(dictionaries), of)
        table = pc.filter(table, pc.equal(table.column(of[0]), of[1]))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    return _nullable(table.unify_dictionaries() if dictionaries else table)


def _with(metadata: Any, of: tuple[str, int] | None) -> list[int]:
    """The row groups, in the order of the table's rows, that may have a row with the value of a column; all for None."""
    groups = row_group_order(metadata)
    if of is None or not groups:
        return groups
    name, value = of
    place = metadata.schema.names.index(name)

    def may(group: int) -> bool:
        chunk = metadata.row_group(group).column(place)
        told = chunk.statistics if chunk.is_stats_set else None
        return told is None or not told.has_min_max or bool(told.min <= value <= told.max)

    return [group for group in groups if may(group)]


def _nullable(table: Any) -> Any:
    """The table without word of which columns have no nulls: that is so in one file, and tables of several are put together."""
    if all(field.nullable for field in table.schema):
        return table
    return pa.Table.from_arrays(table.columns, schema=pa.schema([field.with_nullable(True) for field in table.schema]))


def _read(path: Path, columns: list[str], dictionaries: list[str], of: tuple[str, int] | None = None) -> Any:
    with pa.OSFile(str(path)) as file:
        reader = _light_reader(file, dictionaries)
        if reader is not None:
            columns_of = _Columns(reader, columns)
            # to hand a few rows to other threads costs more than to decode them
            threads = reader.metadata.num_rows >= _ROWS_WORTH_THREADS
            return columns_of.read(_with(reader.metadata, of), use_threads=threads and of is None)
        import pyarrow.parquet as pq

        whole = pq.ParquetFile(file, read_dictionary=dictionaries)
        return whole.read_row_groups(_with(whole.metadata, of), columns=columns)


def _light_reader(file: Any, dictionaries: list[str], metadata: Any = None) -> Any:
    """PyArrow's own reader of an open file; None where it is not as it is known."""
    try:
        from pyarrow._parquet import ParquetReader

        reader = ParquetReader()
        reader.open(file, read_dictionary=dictionaries, metadata=metadata)
        known = all(len(parts) == 1 for parts in reader.column_paths) and hasattr(reader, "read_row_groups")
    except (ImportError, AttributeError, TypeError):
        return None
    return reader if known else None


class _Columns:
    """The columns wanted of an open file; those that have nothing but nulls are made, not decoded.

    Args:
        reader: What `_light_reader` gave.
        wanted: Their names; those that the file does not have are left out.
    """

    def __init__(self, reader: Any, wanted: Sequence[str]) -> None:
        names = [parts[0] for parts in reader.column_paths]
        self._reader = reader
        self._wanted = [column for column in wanted if column in names]
        places = [names.index(column) for column in self._wanted]
        self._places = [place for place in places if not self._has_nulls_only(place)] or places[:1]
        left = {names[place] for place in places} - {names[place] for place in self._places}
        self._nulls = [reader.schema_arrow.field(name) for name in self._wanted if name in left] if left else []

    def read(self, groups: Sequence[int], *, use_threads: bool) -> Any:
        """The rows of some row groups."""
        table = self._reader.read_row_groups(groups, column_indices=self._places, use_threads=use_threads)
        for field in self._nulls:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return table.select(self._wanted) if self._nulls else table

    def _has_nulls_only(self, place: int) -> bool:
        metadata = self._reader.metadata
        groups: int = metadata.num_row_groups
        for group in range(groups):
            chunk = metadata.row_group(group).column(place)
            told = chunk.statistics if chunk.is_stats_set else None
            if told is None or not told.has_null_count or told.null_count != chunk.num_values:
                return False
        return groups > 0


class _LightWriter:
    """PyArrow's own writer, with the methods of `pyarrow.parquet.ParquetWriter` that are used here."""

    def __init__(self, path: Path, schema: Any, settings: dict[str, Any]) -> None:
        from pyarrow import _parquet

        self._schema = schema
        self._file = pa.OSFile(str(path), "wb")
        try:
            self._writer = _parquet.ParquetWriter(
                self._file, schema, version="2.6", writer_engine_version="V2", data_page_version="1.0", **settings
            )
        except BaseException:
            self._file.close()
            raise

    def write_table(self, table: Any, row_group_size: int) -> None:
        if not table.schema.equals(self._schema):
            raise ValueError(f"expected columns {self._schema}, got {table.schema}")
        self._writer.write_table(table, row_group_size=row_group_size)

    def add_key_value_metadata(self, entries: dict[str, str]) -> None:
        self._writer.add_key_value_metadata(entries)

    def close(self) -> None:
        """Write the end of the file; once only."""
        if self._file.closed:
            return
        try:
            self._writer.close()
        finally:
            self._file.close()


def open_writer(path: Path, schema: Any, **settings: Any) -> Any:
    """A writer of a Parquet file, with `write_table`, `add_key_value_metadata` where this PyArrow has it, and `close`.

    Args:
        path: The file.
        schema: Of the tables that will be written.
        settings: As `pyarrow.parquet.ParquetWriter` takes them.
    """
    try:
        return _LightWriter(path, schema, settings)
    except (ImportError, AttributeError, TypeError):
        import pyarrow.parquet as pq

        return pq.ParquetWriter(str(path), schema, **settings)


def can_add_metadata() -> bool:
    """Whether this PyArrow can write metadata of a file after its rows; before release 17 it cannot."""
    from pyarrow import _parquet

    return hasattr(_parquet.ParquetWriter, "add_key_value_metadata")


def write_parquet(table: Any, path: Path, **settings: Any) -> None:
    """Write a table to a file of its own, compressed.

    Raises:
        OSError: The file cannot be written.
        pyarrow.ArrowException: Parquet has no such type.
    """
    writer = open_writer(path, table.schema, compression="zstd", **settings)
    try:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    finally:
        writer.close()


def read_row_groups(path: Path, columns: Sequence[str], dictionaries: Sequence[str] = (), rows: int = 0) -> Iterator[Any]:
    """The row groups of `read_parquet`, one after the other in the order of the table's rows.

    Args:
        path: The file.
        columns: The columns wanted.
        dictionaries: Those of them that are dictionary-encoded.
        rows: Row groups are read together until they have so many rows; 0 for each alone.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with pa.OSFile(str(path)) as file:
            for table in _read_groups(file, list(columns), list(dictionaries), rows):
                yield _nullable(table.unify_dictionaries() if dictionaries else table)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read_groups(file: Any, columns: list[str], dictionaries: list[str], rows: int) -> Iterator[Any]:
    reader = _light_reader(file, dictionaries)
    if reader is not None:
        columns_of = _Columns(reader, columns)
        for groups in _together(reader.metadata, rows):
            yield columns_of.read(groups, use_threads=False)
        return
    import pyarrow.parquet as pq

    whole = pq.ParquetFile(file, read_dictionary=dictionaries)
    for groups in _together(whole.metadata, rows):
        yield whole.read_row_groups(groups, columns=columns, use_threads=False)


def _together(metadata: Any, rows: int) -> Iterator[list[int]]:
    """The row groups of a file in the order of the table's rows, as many at a time as have `rows` rows, one at least."""
    groups: list[int] = []
    found = 0
    for group in row_group_order(metadata):
        groups.append(group)
        found += metadata.row_group(group).num_rows
        if found >= rows:
            yield groups
            groups, found = [], 0
    if groups:
        yield groups


def read_metadata(path: Path) -> Any:
    """The `pyarrow.parquet.FileMetaData` of a file of a run.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        metadata = _read_metadata(path)
        row_group_order(metadata)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    return metadata


def _read_metadata(path: Path) -> Any:
    with pa.OSFile(str(path)) as file:
        reader = _light_reader(file, [])
        if reader is not None:
            return reader.metadata
        import pyarrow.parquet as pq

        return pq.read_metadata(file)


def read_row_group(path: Path, metadata: Any, group: int, columns: Sequence[str], dictionaries: Sequence[str] = ()) -> Any:
    """One row group of a file, by its number in the file, as a `pyarrow.Table`; `metadata` spares reading it again.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        table = _read_group(path, metadata, group, list(columns), list(dictionaries))
        return _nullable(table.unify_dictionaries() if dictionaries else table)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read_group(path: Path, metadata: Any, group: int, columns: list[str], dictionaries: list[str]) -> Any:
    with pa.OSFile(str(path)) as file:
        reader = _light_reader(file, dictionaries, metadata)
        if reader is not None:
            names = [parts[0] for parts in reader.column_paths]
            places = [names.index(column) for column in columns if column in names]
            return reader.read_row_groups([group], column_indices=places, use_threads=False)
        import pyarrow.parquet as pq

        whole = pq.ParquetFile(file, metadata=metadata, read_dictionary=dictionaries)
        return whole.read_row_group(group, columns=columns, use_threads=False)


def _unreadable(path: Path, error: Exception) -> InputError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(path, found=f"it cannot be read ({first})", advice="import the reports again")
