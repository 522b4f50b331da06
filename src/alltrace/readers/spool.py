"""Rows on disk between the one pass over a trace and the tables that are read one after the other."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.readers.base import ReportWarning
from alltrace.trace.names import name_id
from alltrace.trace.schema import EVENT_TABLES, TABLES
from alltrace.trace.scratch import scratch_folder, writing_scratch

# The dictionaries of a report as tables, for readers that gather them row by row.


class NameIds(dict[int, str]):
    """The texts of a report by the ids that rows have in their place."""

    def add(self, text: str) -> int:
        """The id of a text."""
        key = name_id(text)
        self[key] = text
        return key


def dictionary_tables(rows: Mapping[str, list[dict[str, Any]]], names: Mapping[int, str]) -> dict[str, pa.Table]:
    """Tables of `rows` by name, columns without a value null, and of `names`; see `ReportReader.dictionaries`."""
    tables = {name: pa.Table.from_pylist(own, schema=TABLES[name].arrow_schema()) for name, own in rows.items()}
    columns = [pa.array(names.keys(), pa.int64()), pa.array(names.values(), pa.string())]
    return {**tables, "names": pa.Table.from_arrays(columns, schema=TABLES["names"].arrow_schema())}


class Spool:
    """Batches of several tables, in a separate folder that is removed with it."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._folder = scratch_folder("alltrace-rows-")
        self._advance = advance  # is called with the number of rows that were written
        self._writers: dict[str, Any] = {}

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
        if table in TABLES:
            self._advance(batch.num_rows)

    def finish(self) -> None:
        """Close what was written, to be read."""
        with writing_scratch(Path(self._folder.name), "the rows of a report"):
            while self._writers:
                self._writers.popitem()[1].close()

    def read(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, in batches as they were written."""
        if not self._path(table).is_file():
            return
        with pa.OSFile(str(self._path(table))) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def remove(self, table: str) -> None:
        """Remove the rows of a table."""
        self._path(table).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        self._folder.cleanup()


class Pass:
    """The one pass over a report, with its rows on disk."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._spool = Spool(advance)

    @contextmanager
    def _filled(self) -> Iterator[None]:
        try:
            yield
            self._spool.finish()
        except BaseException:
            self._spool.close()
            raise

    def batches(self, table: str) -> Iterator[Any]:
        """The rows of a canonical table."""
        for columns in self._spool.read(table):
            yield record_batch(table, columns)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        raise NotImplementedError

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What was left out of the tables."""
        return ()

    def close(self) -> None:
        """Remove the rows."""
        self._spool.close()


class SpooledReader:
    """A report that is read in one pass when its first rows are wanted; see `alltrace.readers.base.ReportReader`."""

    plain, packing, event_bytes = ".json", 15, 250  # what files end with, how far others are packed, bytes of an event

    def __init__(self, path: Path, tables: Collection[str]) -> None:
        self._path, self._tables = path, tables
        self.advance: Callable[[int], None] = lambda _rows: None  # is called with the rows of the pass as they are read
        self._parsed: Pass | None = None

    def _read(self) -> Pass:
        raise NotImplementedError

    def _pass(self) -> Pass:
        if self._parsed is None:
            self._parsed = self._read()
        return self._parsed

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted canonical tables; see `ReportReader.stream`."""
        for table in (t for t in EVENT_TABLES if t in tables and t in self._tables):
            for batch in self._pass().batches(table):
                yield table, batch

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        return self._pass().dictionaries()

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What the pass over the whole trace found; see `ReportReader.warnings`."""
        return self._pass().warnings()

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give, by the size of the file."""
        if not any(t in self._tables for t in tables):
            return 0
        packing = 1 if self._path.name.lower().endswith(self.plain) else self.packing
        return self._path.stat().st_size * packing // self.event_bytes

    def close(self) -> None:
        """Release the report, and remove what was made to read it."""
        if self._parsed is not None:
            self._parsed.close()
            self._parsed = None


def chosen_rows(parts: Iterable[dict[str, Any]], choose: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
    """The rows that `choose` is true of, out of columns of numbers that come some rows at a time; None without any."""
    chosen = []
    for part in parts:
        numbers = {name: column.to_numpy() for name, column in part.items()}
        if (rows := choose(numbers)).any():
            chosen.append({name: column[rows] for name, column in numbers.items()})
    return {name: np.concatenate([its[name] for its in chosen]) for name in chosen[0]} if chosen else None


def strict(table: str, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with the types of their table, so that all batches of it have one schema."""
    batch = record_batch(table, {c: v for c, v in columns.items() if c in TABLES[table].column_names})
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def record_batch(table: str, columns: dict[str, Any]) -> Any:
    """The canonical batch with the given columns; others are null."""
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
