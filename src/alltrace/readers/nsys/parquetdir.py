"""The export as a folder of Parquet files, one for each table."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.small import rows_of_batches
from alltrace.readers.nsys.source import rows_per_batch
from alltrace.trace.errors import InputError, printable

_SUFFIX = ".parquet"


class ParquetFolder:
    """A `RawSource` over `<table>.parquet` files, with the same tables as an SQLite export of the report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables: dict[str, dict[str, str]] = {}
        self._files: dict[str, Any] = {}
        file = path
        try:
            for file in sorted(path.iterdir()):
                if file.name.endswith(_SUFFIX) and file.is_file():
                    table = file.name[: -len(_SUFFIX)]
                    self._files[table] = _opened(file)
                    self.tables[table] = {f.name: _type(f.type) for f in self._files[table].schema_arrow}
        except (OSError, pa.ArrowException) as error:
            self.close()
            raise InputError(
                file,
                found=f"it cannot be read as Parquet ({_first_line(error)})",
                expected="a table of an nsys export",
                advice="export the report again",
            ) from error
        if not self._files:
            raise InputError(
                path, found="the folder has no .parquet files", expected="an export by nsys export -t parquetdir"
            )

    def count_about(self, table: str) -> int:
        """The number of rows of `table`, which the file's footer has."""
        return int(self._files[table].metadata.num_rows)

    def batches(self, table: str, columns: Mapping[str, Any], batch_rows: int | None = None) -> Iterator[Any]:
        """The rows of `table` in batches of several of nsys's small row groups; see `RawSource.batches`."""
        schema = pa.schema(list(columns.items()))
        size = batch_rows or rows_per_batch(columns)
        try:
            for batch in self._files[table].iter_batches(batch_size=size, columns=list(columns)):
                yield self._delivered(table, batch, schema)
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                self.path / f"{table}{_SUFFIX}",
                found=f"the table cannot be read ({_first_line(error)})",
                advice="export the report again",
            ) from error

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a small `table` as Python values; see `RawSource.rows`."""
        return rows_of_batches(self, table, columns)

    def _delivered(self, table: str, batch: Any, schema: Any) -> Any:
        arrays = []
        for wanted in schema:
            values = batch.column(wanted.name)
            try:
                arrays.append(_converted(values, wanted.type))
            except pa.ArrowInvalid as error:
                raise InputError(
                    self.path, found=f"table {table}, column {wanted.name}: a value does not fit {wanted.type}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def warnings(self) -> Mapping[str, str]:
        """Nothing: what is damaged is an error."""
        return {}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close(force=True)


def _opened(file: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except UnicodeEncodeError:  # Arrow does not open paths that are not UTF-8
        return pq.ParquetFile(file.open("rb"))


def _type(kind: Any) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    if pa.types.is_floating(kind):
        return "float64"
    return "binary" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "string"


def _converted(values: Any, wanted: Any) -> Any:
    if values.type == wanted:
        return _sound(values)
    if values.type == pa.uint64() and pa.types.is_integer(wanted):
        values = values.view(pa.int64())  # ids with the highest bit set are negative in SQLite as well
        return values if wanted == pa.int64() else pc.cast(values, wanted)
    if pa.types.is_string(values.type) and pa.types.is_binary(wanted):
        return values.view(wanted)
    return _sound(pc.cast(values, wanted))


def _sound(values: Any) -> Any:
    """Strings with what is not UTF-8 replaced, as the Parquet file may claim UTF-8 falsely."""
    if not pa.types.is_string(values.type):
        return values
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.view(pa.binary()).to_pylist()
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in raw], pa.string())
    return values


def _first_line(error: BaseException) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0][:200])
