"""What reports gave a rank: a folder of tables, and the writers that fill it."""

from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.base import ReportWarning
from alltrace.run.bounds import Bounds
from alltrace.run.manifest import NAMES
from alltrace.run.names import Names
from alltrace.run.parquet import read_metadata, read_parquet, read_row_groups, write_parquet
from alltrace.run.writer import TableWriter
from alltrace.trace.arrays import BLOCK_ROWS, Int64, integers
from alltrace.trace.schema import TABLES

_TOGETHER = ("ranges", "marks")
"""Tables that come from one table of a source and are read together: open ranges end with the last of either."""

_GPU_WORK = ("kernels", "copies", "graphs", "memory", "allocations")
"""Tables with rows that show that a rank used a device."""

_HELD_BYTES = 8 << 20
"""What a piece's tables take in memory at most until the import has looked at them: small files open slower."""


def grouped(tables: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The tables, those that are read together in one group."""
    together = tuple(t for t in tables if t in _TOGETHER)
    for table in tables:
        if table not in together:
            yield (table,)
        elif table == together[0]:
            yield together


class Piece:
    """What one report, or several joined, gave one rank: a folder of tables in one numbering and time."""

    def __init__(self, folder: Path, rows: Mapping[str, int] | None = None, report: int = 0) -> None:
        self.folder = folder
        self.report = report  # the report's row in the manifest
        self.rows: dict[str, int] = dict(rows or {})
        self._held: dict[str, pa.Table] = {}
        self._held_bytes: dict[str, int] = {}
        self._room_bytes = _HELD_BYTES
        self.crossing = False  # whether ranges of a thread cross
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.open_end_ns: int | None = None
        self.devices: set[int] = set()
        self.processes = 0  # how many it has, if its dictionary has been written
        self.warnings: tuple[ReportWarning, ...] = ()
        self.row_warnings: tuple[ReportWarning, ...] = ()
        self.lacking: dict[str, tuple[str, ...]] = {}
        self.unreachable: dict[str, list[Any]] = {}
        self.doubt: str | None = None
        self.windows: tuple[tuple[int, int], ...] = ()  # what was recorded, where its profiler paused

    def saw(self, start: int | None, end: int | None) -> None:
        """The first start and the last end of a table."""
        self.start_ns = min((t for t in (start, self.start_ns) if t is not None), default=None)
        self.end_ns = max((t for t in (end, self.end_ns) if t is not None), default=None)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The spans of time that were recorded."""
        return self.windows or (() if self.start_ns is None or self.end_ns is None else ((self.start_ns, self.end_ns),))

    @cached_property
    def names(self) -> Names:
        """The strings of its tables."""
        path = self.folder / NAMES
        return Names(lambda: [path] if path.is_file() else [], lambda _, columns: self.read("names", columns))

    def read(self, name: str, columns: Sequence[str], dictionaries: Sequence[str] = ()) -> pa.Table:
        """Columns of a table with rows; those in `dictionaries` are dictionary-encoded."""
        in_memory = self._held.get(name)
        if in_memory is None:
            return read_parquet(self.folder / f"{name}.parquet", columns, dictionaries)
        table = in_memory.select(columns)
        for at, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type) and field.name not in dictionaries:
                table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
        return table

    def parts(
        self, name: str, columns: Sequence[str], dictionaries: Sequence[str] = (), chosen: Container[int] | None = None
    ) -> Iterator[pa.Table]:
        """The same, some rows at a time, so that memory does not grow with the table; `chosen` are numbers of parts."""
        if name not in self._held:
            yield from read_row_groups(self.folder / f"{name}.parquet", columns, dictionaries, BLOCK_ROWS, chosen)
        elif chosen is None or 0 in chosen:
            yield self.read(name, columns, dictionaries)

    def numbers(self, name: str, column: str, null: int = 0) -> Int64:
        """A whole column of whole numbers."""
        if name in self._held:
            return integers(self.read(name, [column]).column(column), null)
        values, row = np.empty(self.rows[name], np.int64), 0
        for part in self.parts(name, [column]):
            values[row : row + len(part)] = integers(part.column(column), null)
            row += len(part)
        return values

    def take(self, name: str, columns: Sequence[str], rows: Int64) -> pa.Table:
        """Some rows of a table, by their ascending numbers."""
        selections, first = [], 0
        for part in self.parts(name, columns):
            low, high = np.searchsorted(rows, (first, first + len(part)))
            selections.append(part.take(pa.array(rows[low:high] - first)))
            first += len(part)
        return pa.concat_tables(selections)

    def named(self, name: str, pattern: str) -> dict[int, str]:
        """The names of the rows of a table that begin as a regular expression says, by id."""
        if not self.rows.get(name):
            return {}
        names = self.names.table()
        like = names.filter(pc.match_substring_regex(names.column("value"), f"^(?:{pattern})"))
        if not like.num_rows:  # as in most reports; then the table need not be looked at
            return {}
        used = pc.is_in(like.column("id"), value_set=self.distinct(name, "name"))
        return dict(zip(*like.filter(used).to_pydict().values(), strict=True))

    def distinct(self, name: str, column: str) -> pa.Array:
        """The distinct values of a column, null among them."""
        parts = [pc.unique(part.column(column)) for part in self.parts(name, [column])]
        return parts[0] if len(parts) == 1 else pc.unique(pa.concat_arrays(parts))

    def nulls(self, name: str, column: str) -> int:
        """How many rows of a table have no value in a column; it is not read if its file says that it has none."""
        if (
            name not in self._held
            and not read_metadata(self.folder / f"{name}.parquet").schema.to_arrow_schema().field(column).nullable
        ):
            return 0
        return sum(
            part.column(column).null_count for part in self.parts(name, [column], [column] if column == "kind" else ())
        )

    def hold(self, name: str, table: pa.Table | None) -> None:
        """Keep a table that was written in memory, if it is small; None releases one that was written again."""
        self._held.pop(name, None)
        self._held_bytes.pop(name, None)
        room = self._room_bytes - sum(self._held_bytes.values())
        if table is not None and (size := table.get_total_buffer_size()) <= room:
            self._held[name], self._held_bytes[name] = table, size

    def release(self) -> None:
        """Release all tables in memory, and hold none from now on."""
        self._held.clear()
        self._held_bytes.clear()
        vars(self).pop("names", None)  # it refers to the piece, which would not be freed before Python looks for cycles
        self._room_bytes = 0

    def write_dictionary(self, name: str, table: Any) -> None:
        """Write the dictionary `name`; one without rows gets no file."""
        if name == "processes":
            self.processes = table.num_rows
        if name == "names":  # by id, because a reader has them in the order in which it was asked
            table = table.take(pc.sort_indices(table.column("id")))
        if table.num_rows:
            write_parquet(
                written := table.cast(TABLES[name].arrow_schema()), self.folder / f"{name}.parquet", store_schema=False
            )
            self.hold(name, written)


class Sinks:
    """The writers of one group of tables, made as rows come; a table without rows gets no file.

    As a context manager it finishes the files where the block ends, and removes them where it fails.
    `pieces`: what is filled, by number. `spill`: a folder for temporary files. `memory_bytes`: what each writer may
    take. `encoder`: where row groups are encoded; None for one thread per file. `report`: the report of the rows,
    to check their numbers; empty if they were checked.
    """

    def __init__(
        self,
        pieces: Mapping[int, Piece],
        spill: Path,
        memory_bytes: int,
        encoder: ThreadPoolExecutor | None = None,
        report: str = "",
    ) -> None:
        self._pieces = pieces
        self._spill = spill
        self._memory_bytes = memory_bytes
        self._encoder = encoder
        self._report = report
        self._bounds: dict[tuple[str, int], Bounds] = {}
        self._writers: dict[tuple[str, int], TableWriter] = {}
        self._latest: dict[int, int] = {}

    def append(self, name: str, piece: int, batch: Any) -> None:
        """Add rows of the table `name` to a piece."""
        if batch.num_rows == 0:
            return
        key = (name, piece)
        if key not in self._writers:
            path = self._pieces[piece].folder / f"{name}.parquet"
            self._writers[key] = TableWriter(TABLES[name], path, self._spill, self._memory_bytes, self._encoder)
            if self._report:
                self._bounds[key] = Bounds(self._report, TABLES[name])
        if key in self._bounds:
            batch = self._bounds[key].checked(batch)
        self._writers[key].append(batch)
        if name in _GPU_WORK:
            self._pieces[piece].devices.update(
                d for d in pc.unique(batch.column("device")).to_pylist() if d is not None
            )
        if name in _TOGETHER:
            times = (pc.max(batch.column(c)).as_py() for c in ("start", "end", "time") if c in batch.schema.names)
            known = [t for t in (*times, self._latest.get(piece)) if t is not None]
            if known:
                self._latest[piece] = max(known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for (name, n), writer in self._writers.items() if error is None else ():
                piece = self._pieces[n]
                piece.open_end_ns = self._latest.get(n, piece.open_end_ns)
                stats = writer.finish(open_end_ns=self._latest.get(n))
                piece.rows[name] = stats.rows
                piece.crossing |= stats.crossing
                piece.hold(name, stats.whole)
                if stats.whole is None:  # in addition to a large table, to read small ones takes little
                    piece.release()
                piece.saw(stats.first_start_ns, stats.last_end_ns)
                if (name, n) in self._bounds:
                    piece.row_warnings += self._bounds[name, n].warnings()
                    piece.lacking[name] = self._bounds[name, n].lacking()
                    if self._bounds[name, n].unreachable:
                        piece.unreachable[name] = self._bounds[name, n].unreachable
        finally:
            for writer in self._writers.values():
                writer.abort()  # nothing is left to do where it has finished
