"""The row groups of a table's Parquet file: how they are encoded and written, and the order in which they are read.

The order of row groups in the file may differ from that of the table's rows. The order of the rows is then in the
file's metadata, and a reader that needs sorted rows reads the row groups in that order.
"""

import json
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alltrace.run.columns import HeldColumns
from alltrace.run.parquet import ORDER_KEY, quick_codec, read_metadata, read_row_group, write_row_group
from alltrace.trace.arrays import extremes
from alltrace.trace.schema import Table

ROW_GROUP_ROWS = 65_536

_DELTA_IDS = frozenset(
    {"correlation", "id", "sequence", "parent", "graph_node", "request", "event", "address", "cycles"}
)
_TINY_ROWS = 64
_SMALL_ROWS = 4096
_PLAIN_BITS = 32
_ZSTD_LEVEL = -1
_QUEUE = 2  # row groups that may wait for the encoder, so that it works on while others are decoded and sorted


def one_thread() -> ThreadPoolExecutor:
    """An encoder for `RowGroups`; one for many files saves memory, which Arrow's allocator keeps for each thread."""
    return ThreadPoolExecutor(1, "alltrace-encode")


class RowGroups:
    """Collects sorted rows and writes them as row groups; one row group is encoded while the next is prepared.

    `path`: the file to write. `encoder`: where row groups are encoded; None for a separate thread.
    """

    def __init__(self, table: Table, path: Path, held: HeldColumns, encoder: ThreadPoolExecutor | None = None) -> None:
        self.nesting: Any = None  # fills `depth` and `parent` of `ranges` as rows pass; None for other tables
        self.whole: pa.Table | None = None  # all rows, if they are one row group
        self.order: list[int] = []  # the row groups written so far in the order of the rows, as far as it is known
        self._table = table
        self._path = path
        self._held = held
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._count = 0
        self._encoder = encoder
        self._pool: ThreadPoolExecutor | None = None  # a separate encoder
        self._jobs: deque[Future[None]] = deque()
        self._writer: Any = None
        self._complete: frozenset[str] = frozenset()  # columns of the file without nulls, declared as such
        self._relaxed = False

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the next rows, which go into row groups as they come."""
        for batch in batches:
            if not batch.num_rows:
                continue
            self._pending.append(batch)
            self._pending_rows += batch.num_rows
            while self._pending_rows >= ROW_GROUP_ROWS:
                self._write(ROW_GROUP_ROWS, last=False)

    def put(self, batch: pa.RecordBatch) -> int:
        """Write rows as a separate row group whose place is not known yet; returns its number in the file."""
        self._encode([batch], batch.num_rows, last=False)
        return self._count - 1

    def place(self, groups: Iterable[int]) -> None:
        """Say that row groups that were `put` come next in the order."""
        self.flush()
        self.order.extend(groups)

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if self._pending_rows:
            self._write(self._pending_rows, last=False)

    def close(self) -> None:
        """Write what waits, and the end of the file."""
        if self._pending_rows:
            self._write(self._pending_rows, last=True)
        elif self._writer is None:
            self._writer = _parquet_writer(self._table, self._path, None, frozenset())
        self._wait(0)
        if self._pool is not None:
            self._pool.shutdown()
        if self._writer is not None:
            if self.order != list(range(self._count)):
                self._writer.add_key_value_metadata({ORDER_KEY.decode(): json.dumps(self.order)})
            self._writer.close()

    def abandon(self) -> None:
        """Give up; the file is left as it is."""
        self._pending.clear()
        wait(self._jobs)
        if self._pool is not None:
            self._pool.shutdown()
        if self._writer is not None:
            self._writer.close()

    def _write(self, rows: int, *, last: bool) -> None:
        group = []
        missing = rows
        while missing:
            batch = self._pending.pop(0)
            if batch.num_rows > missing:
                self._pending.insert(0, batch.slice(missing))
                batch = batch.slice(0, missing)
            group.append(batch)
            missing -= batch.num_rows
        self._pending_rows -= rows
        self.order.append(self._count)
        self._encode(group, rows, last=last)

    def _encode(self, group: list[pa.RecordBatch], rows: int, *, last: bool) -> None:
        released = self._held.release(group)
        if self.nesting is not None:
            released = self.nesting.fill(released)
        self._wait(_QUEUE - 1)
        if self._writer is None:
            self._complete = frozenset(_columns_without_nulls(released) if rows > _SMALL_ROWS else ())
            if last:  # one row group: a thread would gain nothing
                self._count = 1
                self.whole = _as_written(released, self._complete)
                write_row_group(self.whole, self._path, **_settings(self._table, released))
                return
            self._writer = _parquet_writer(self._table, self._path, released, self._complete)
        elif not self._complete <= (whole := _columns_without_nulls(released)):
            self._relax(whole)
        released = _as_written(released, self._complete)
        self._count += 1
        if self._encoder is None:
            self._encoder = self._pool = one_thread()
        self._jobs.append(self._encoder.submit(self._writer.write_table, released, row_group_size=rows))

    def _relax(self, whole: set[str]) -> None:
        """Write the file again, with space for nulls in columns that had none so far; at most twice."""
        self._wait(0)
        self._writer.close()
        self._complete = frozenset() if self._relaxed else self._complete & whole
        self._relaxed = True
        before = self._path.rename(self._path.with_name(f"{self._path.name}.before"))
        try:
            metadata = read_metadata(before)
            enums = [f.name for f in self._held.schema if pa.types.is_dictionary(f.type)]
            self._writer = None
            for group in range(self._count):
                rows = read_row_group(before, metadata, group, self._held.schema.names, enums)
                if self._writer is None:
                    self._writer = _parquet_writer(self._table, self._path, rows, self._complete)
                self._writer.write_table(_as_written(rows, self._complete), row_group_size=rows.num_rows)
        finally:
            before.unlink(missing_ok=True)

    def _wait(self, left: int) -> None:
        """Until at most `left` row groups wait to be encoded."""
        while len(self._jobs) > left:
            self._jobs.popleft().result()


def _columns_without_nulls(rows: pa.Table) -> set[str]:
    return {name for name, column in zip(rows.column_names, rows.columns, strict=True) if not column.null_count}


def _as_written(rows: pa.Table, complete: frozenset[str]) -> pa.Table:
    """The rows with a schema that says which columns have no nulls."""
    if not complete:
        return rows
    return pa.Table.from_arrays(rows.columns, schema=_without_nulls(rows.schema, complete))


def _without_nulls(schema: pa.Schema, complete: frozenset[str]) -> pa.Schema:
    return pa.schema([field.with_nullable(field.name not in complete) for field in schema])


def _parquet_writer(table: Table, path: Path, first: pa.Table | None, complete: frozenset[str]) -> Any:
    """A writer of a table with the `_settings` for its first row group.

    A column of `complete` has no nulls: then nothing is written of which values there are, which takes a third off the
    time that writing and reading take.
    """
    return pq.ParquetWriter(path, _without_nulls(table.arrow_schema(), complete), **_settings(table, first))


def _settings(table: Table, first: pa.Table | None) -> dict[str, Any]:
    """The encodings of a table, from its first row group, or None for a table without rows.

    Differences suit what ascends or varies (times 2.0 to 2.3 bytes a value, against 4.7 to 5.0 with a dictionary, at a
    tenth of the time); a dictionary suits what repeats, above all names (0.6 against 3.2). Differences are packed so
    closely that zstd saves a twentieth of them and takes a fifth of the time; what is always the same is a few bytes,
    for which zstd sets up as much as for all others, so a codec that sets up nothing takes it. Numbers of up to 32 bits
    that are always the same are packed as well without a dictionary, in half of the time. LZ4 takes all else: zstd sets
    up its tables anew for each page of a large table, a twentieth of an import, to save a twelfth of the bytes, and for
    each column of a small one, which takes as long as to write it and two thirds of the time that it takes to read it.
    The footer is most of a small file, and there are thousands of those: no Arrow schema, statistics only of the sort
    keys, times and correlations, by which rows are looked for, below a row group's worth of the sort keys alone, and no
    dictionary below that.
    """
    rows = 0 if first is None else first.num_rows
    encoding = {c.name: "DELTA_BINARY_PACKED" for c in table.columns if c.type == "time" or c.name in _DELTA_IDS}
    packed = set(encoding) if rows > _SMALL_ROWS else set()
    if table.name == "names":  # no string occurs twice
        encoding["value"] = "DELTA_BYTE_ARRAY"
    dictionary = [c.name for c in table.columns if c.name not in encoding]
    usual = quick_codec()
    codecs = {name: "none" if name in packed else usual for name in table.column_names}
    if first is not None and rows > _SMALL_ROWS:
        same = [name for name in dictionary if _is_one_value(first.column(name))]
        plain = {name for name in same if _packs_well(first.column(name))}
        dictionary = [name for name in dictionary if name not in plain]
        if pa.Codec.is_available("snappy"):
            codecs.update((name, "snappy") for name in same if name not in plain)
    looked_for = {*table.sort_keys, "end", *((*table.time_columns(), "correlation") if rows > _SMALL_ROWS else ())}
    statistics = [n for n in table.column_names if n in looked_for]
    return {
        "compression": codecs,
        "compression_level": {name: _ZSTD_LEVEL for name, codec in codecs.items() if codec == "zstd"},
        "use_dictionary": dictionary if rows > _TINY_ROWS else False,
        "column_encoding": encoding,
        "write_statistics": statistics or False,
        "store_schema": False,
    }


def _is_one_value(column: Any) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_signed_integer(column.type) and column.num_chunks == 1:
        low, high = extremes(column.chunk(0))
        return low == high
    return len(pc.unique(column)) == 1


def _packs_well(column: Any) -> bool:
    return not column.null_count and pa.types.is_integer(column.type) and column.type.bit_width <= _PLAIN_BITS
