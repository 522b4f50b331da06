"""One rank's tables, in canonical order and on the run's aligned clock: what the function of a question gets.

A `Rank` reads the files of a run directory. Its views are ranks too: with the rows that a predicate keeps (chosen
steps, NVIDIA's filters, a span of time), with later times, or with tables in memory until the last of several questions
has read them.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.clock import ClockMap, clock_map
from alltrace.run.manifest import RECORDED
from alltrace.run.overlay import SHARED_TABLES, shared_file
from alltrace.run.windows import between
from alltrace.trace.schema import DICTIONARIES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from alltrace.run.checksums import RankFiles
    from alltrace.run.host_work import HostWork
    from alltrace.run.manifest import Manifest, RankRecord
    from alltrace.run.names import Names
    from alltrace.run.overlay import Overlay
    from alltrace.trace.intervals import Merged
    from alltrace.trace.schema import Table

_Made = TypeVar("_Made")
_PIECE_ROWS = 1 << 19
_MOST_HELD_ROWS = 1 << 20
"""A table of more rows is read in pieces each time: it would take more memory than all else of a question."""

HOST_TABLES = ("kernels", "collectives")
"""The tables of which a rank without device work has other rows, if those of its host are wanted."""


class Rows(Protocol):
    """A predicate: which rows of a rank's tables count, each row judged by itself."""

    def reads(self, table: str) -> Sequence[str] | None:
        """The columns that decide in a table of events or of the alignment; None if all its rows count."""

    def keeps(self, table: str, rows: pa.Table) -> NDArray[Any]:
        """Which of some rows count, judged by these columns: a boolean array."""


class Placeable(Protocol):
    """A part with times."""

    def placed(self, clock: ClockMap) -> Self:
        """The part of a rank in the time of its files as it is on the run's clock."""


_Part = TypeVar("_Part", bound=Placeable)


class Parts(Protocol):
    """The parts of a rank that are stored with the run (`recipes.execution.kept_parts`)."""

    def get(self, rank: Rank, name: str, classes: Sequence[type], make: Callable[[Rank], _Part]) -> _Part:
        """The part of some name: the one that is kept, or a new one."""


class Piece(NamedTuple):
    """Part of a rank's table: a row group of its file."""

    group: int  # its number in the file
    first_row: int  # the row of the table that it begins with
    rows: int  # its rows
    start_ns: int | None  # its first start, aligned; None if the file does not say
    end_ns: int | None  # its last end, likewise; None also where a row has none
    last_start_ns: int | None = None  # its last start, likewise


class Rank:
    """One rank's tables; those of events are sorted by the `sort_keys` of their schema.

    Methods with `file` or `piece` in their names are about the files, also of a view.

    Attributes:
        rank: Its number.
        host: Its host.
        record: What the manifest says of it.
        clock: The map from the time of its files to that of the tables.
        as_recorded: Whether tables hold the rows that cannot be true too, as the reports of Nsight Systems do.
        memo: What `recipes.execution.shared_tables.once` made of these tables; None if nothing is kept, as for files.
        kept: The parts of the rank that are stored with the run, or None.
        reads: How often each table in memory was read.
        host_work: Rows in place of those of device work (`with_host_work`), or None.
    """

    def __init__(
        self,
        files: RankFiles,
        manifest: Manifest,
        record: RankRecord,
        names: Names,
        overlay: Overlay | None = None,
        origin_ns: int = 0,
        *,
        as_recorded: bool = False,
    ) -> None:
        self.record = record
        self.rank: int = record.rank
        self.host: str = record.host
        self.clock: ClockMap = clock_map(manifest, record)._replace(origin_ns=origin_ns)
        self.memo: dict[Hashable, Any] | None = None
        self.kept: Parts | None = None
        self.reads: dict[str, int] = {}
        self.host_work: HostWork | None = None
        self._files = files
        self._manifest = manifest
        self._names = names
        self._overlay = overlay
        self._as_recorded = as_recorded and record.rows.get("suspects", 0) > 0
        self._metadata: dict[str, tuple[Path, pq.FileMetaData]] = {}
        self._pieces: dict[str, list[Piece]] = {}
        self._in_file_time_of: ClockMap | None = None
        self._tables: dict[str, pa.Table] = {}
        self._source: Rank | None = None
        self._read: Callable[[str, list[str]], pa.Table] | None = None
        self._rows: Rows | None = None
        self._later_ns = 0
        self._wanted: Mapping[str, Sequence[str]] | None = None

    def view(
        self,
        rows: Rows | None = None,
        *,
        later_ns: int = 0,
        wanted: Mapping[str, Sequence[str]] | None = None,
        kept: Parts | None = None,
        read: Callable[[str, list[str]], pa.Table] | None = None,
    ) -> Rank:
        """The same rank with other tables; dictionaries are whole.

        `rows`: those that count. `later_ns`: added to every time. `wanted`: the tables and columns that will be read,
        which the first read of a table keeps in memory; None to keep nothing. `kept`: the rank's parts that are stored
        with the run. `read`: returns columns of a table instead of this rank.
        """
        view = copy(self)
        view.clock = self.clock._replace(origin_ns=self.clock.origin_ns - later_ns)
        vars(view).update(memo={}, kept=kept, reads={}, _metadata={}, _pieces={}, _tables={})
        vars(view).update(_source=self, _rows=rows, _later_ns=later_ns, _wanted=wanted, _read=read)
        return view

    def in_file_time(self) -> Rank:
        """The same rank in the time of its files, for what must not depend on clocks."""
        rank = Rank(self._files, self._manifest, self.record, self._names, self._overlay, as_recorded=self._as_recorded)
        rank.clock, rank._in_file_time_of = ClockMap(0), rank.clock
        rank.host_work = self.host_work
        return rank

    def with_host_work(self) -> Rank:
        """The same rank with its host's work in place of a device's, if nothing ran on devices (`run.host_work`)."""
        from alltrace.run.host_work import HostWork

        if self.host_work is not None or self._source is not None or not self._manifest.works_on_host(self.record):
            return self
        other = copy(self)
        other.host_work = HostWork(self)
        return other

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`, whether they count or not."""
        stands_in = self.host_work is not None and table == "kernels"
        return stands_in or has_rows(self._files, self.record, table, self._overlay) or self._recorded(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table`, empty if the rank has none; `columns` in order, None for all."""
        order = TABLES[table].column_names
        wanted = list(order if columns is None else columns)
        if self._wanted is None or self.large(table):
            return self._table(table, wanted)
        whole = self._tables.get(table)
        if whole is None or not set(wanted) <= set(whole.column_names):
            known = {*wanted, *self._wanted.get(table, ()), *(whole.column_names if whole is not None else ())}
            # a dictionary is small, and questions look up this and that in it
            whole = self._tables[table] = self._table(table, [c for c in order if c in known or table in DICTIONARIES])
            self.reads[table] = self.reads.get(table, 0) + 1
        return whole.select(wanted)

    def release(self, tables: Iterable[str]) -> None:
        """Forget these tables, which are no longer needed."""
        for table in tables:
            self._tables.pop(table, None)

    def _table(self, table: str, columns: list[str]) -> pa.Table:
        """A table as its source has it, with the rows that count, and times moved."""
        source, judged = self._source, self._judged(table)
        if source is None:
            return self._aligned(self.file_table(table, columns), TABLES[table].time_columns())
        if judged is None:
            return self._moved((self._read or source.table)(table, columns), TABLES[table].time_columns())
        read = list(dict.fromkeys([*columns, *judged]))
        if self._read is not None or source.holds(table):
            return self._counting(table, columns, [(self._read or source.table)(table, read)])
        return self._counting(table, columns, source.batches(table, read, _PIECE_ROWS))

    def holds(self, table: str) -> bool:
        """Whether a table is not read from its file each time."""
        if self._read is not None or (self._wanted is not None and not self.large(table)):
            return True
        return self._source is not None and self._source.holds(table)

    @property
    def whole(self) -> bool:
        """Whether the tables have all rows of the files."""
        own = self._rows is None and self._read is None and self.host_work is None
        return own and (self._source is None or self._source.whole)

    def large(self, table: str) -> bool:
        """Whether a table is not to be in memory as a whole."""
        return self.record.rows.get(table, 0) > _MOST_HELD_ROWS and (self.host_work is None or table not in HOST_TABLES)

    def _judged(self, table: str) -> Sequence[str] | None:
        """The columns of a table of events by which rows count; None if all do."""
        if self._rows is None or table in DICTIONARIES or TABLES[table].order is None:
            return None
        return self._rows.reads(table)

    def _counting(self, table: str, columns: list[str], pieces: Iterable[pa.Table]) -> pa.Table:
        """The rows that count of all pieces of a table, with their times moved."""
        import numpy as np

        assert self._rows is not None  # noqa: S101  only called if there are predicates
        counted = [TABLES[table].arrow_schema(columns).empty_table()]
        keeps = []
        for piece in pieces:
            keeps.append(self._rows.keeps(table, piece))
            counted.append(piece.select(columns).filter(pa.array(keeps[-1])))
        whole = pa.concat_tables(counted).unify_dictionaries()
        if table == "ranges" and "parent" in columns:
            whole = _with_parents(whole, np.concatenate(keeps) if keeps else np.zeros(0, bool))
        return self._moved(whole, TABLES[table].time_columns())

    def collective_rows(self) -> NDArray[Any]:
        """For each row of the whole `collectives` its row among those that count, -1 for none: int64 array."""
        import numpy as np

        source, judged = self._source or self, self._judged("collectives")
        if self._rows is None or judged is None:
            return np.arange(source.table("collectives", ["start"]).num_rows)
        keeps = self._rows.keeps("collectives", source.table("collectives", judged))
        rows: NDArray[Any] = np.where(keeps, np.cumsum(keeps) - 1, -1)
        return rows

    def _moved(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        for name in times if self._later_ns else ():
            if name in table.column_names:
                at = table.column_names.index(name)
                table = table.set_column(at, table.field(at), pc.add(table.column(at), self._later_ns))
        return table

    def _once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        if self._wanted is None or self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        value: _Made = self.memo[key]
        return value

    def file_table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The same in the time of the rank's files, for what must not depend on clocks."""
        from alltrace.run.parquet import read_parquet

        wanted, enums = _wanted(TABLES[table], columns)
        if self.host_work is not None and table in HOST_TABLES:
            return self.host_work.table(table, wanted)
        in_memory = self._tables.get(table) if self._source is None else None
        if in_memory is not None and set(wanted) <= set(in_memory.column_names):
            return in_memory.select(wanted)
        schema = TABLES[table].arrow_schema(wanted)
        if not self.has(table):
            return schema.empty_table()
        read = self._to_read(table, wanted)
        return self._finished(table, read_parquet(self._path(table), read, enums), schema)

    def hold(self, table: str, columns: Sequence[str]) -> None:
        """Read columns of a table once, if it is not large: a file costs as much to open as a few columns to decode."""
        if not self.large(table):
            self._tables[table] = self.file_table(table, columns)

    def unrecorded(self, work: Merged | None = None) -> Merged:
        """When work may have run of which records are lost, and the time between windows that were recorded.

        With the `work` of a device, that time reaches from its last work in one window to its first in the next.
        """
        import numpy as np

        from alltrace.trace.intervals import merge, union

        def of(spans: Sequence[tuple[int, int]]) -> Merged:
            times = self.clock.apply(np.array(spans, np.int64).reshape(-1))
            return merge(times[::2].copy(), times[1::2].copy())

        spans = of(self.record.unrecorded)
        if work is None or not self.record.windows or not len(work.starts):
            return spans
        gaps = of(between(self.record.windows))
        before = np.searchsorted(work.ends, gaps.starts, "right") - 1
        behind = np.searchsorted(work.starts, gaps.ends, "left")
        starts = np.where(before < 0, gaps.starts, work.ends[np.maximum(before, 0)])
        last = len(work.starts) - 1
        ends = np.where(behind > last, gaps.ends, work.starts[np.minimum(behind, last)])
        return union((spans, merge(starts, ends)))

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """Samples of the rank's GPUs, in any report of its host, in no order; `device`: the row in its `devices`."""
        if self._source is None:
            from alltrace.run.host_samples import samplers, samples_of_host

            return samples_of_host(self, samplers(self._manifest, self.record), self._beside, columns)
        read = list(columns) if self._wanted is None else list(TABLES["gpu_metrics"].column_names)
        return self._once("gpu samples", lambda: self._gpu_samples(read)).select(list(columns))

    def _gpu_samples(self, columns: list[str]) -> pa.Table:
        source, judged = self._source or self, self._judged("gpu_metrics")
        samples = source.gpu_samples(list(dict.fromkeys([*columns, *(judged or ())])))
        return (
            self._moved(samples, TABLES["gpu_metrics"].time_columns())
            if judged is None
            else self._counting("gpu_metrics", columns, [samples])
        )

    def gpu_sample_sources(self) -> list[tuple[Rank, dict[int, int]]]:
        """Where the samples of the rank's GPUs are, piece by piece (see `alltrace.run.host_samples.sample_sources`)."""
        from alltrace.run.host_samples import sample_sources, samplers

        return sample_sources(self, self._manifest, samplers(self._manifest, self.record), self._beside)

    def _beside(self, record: RankRecord) -> Rank:
        rank = Rank(self._files, self._manifest, record, self._names, self._overlay, self.clock.origin_ns)
        if self._in_file_time_of is not None:  # ranks of a host share its clock, but have their own time bases
            rank.clock = ClockMap(rank.clock.shift_ns - self._in_file_time_of.shift_ns)
        return rank

    def batches(self, table: str, columns: Sequence[str] | None = None, rows: int = 0) -> Iterator[pa.RecordBatch]:
        """The `table` as tables in order: row groups joined up to `rows` rows; 0 for each alone."""
        if not self.has(table):
            return
        declared = TABLES[table]
        if self._source is not None:
            yield from self._view_batches(table, list(declared.column_names if columns is None else columns), rows)
            return
        if self.host_work is not None and table in HOST_TABLES:
            yield self.table(table, columns)
            return
        from alltrace.run.parquet import read_row_groups

        wanted, enums = _wanted(declared, columns)
        schema = declared.arrow_schema(wanted)
        for rows_read in read_row_groups(self._path(table), self._to_read(table, wanted), enums, rows):
            yield self._aligned(self._finished(table, rows_read, schema), declared.time_columns())

    def _view_batches(self, table: str, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        source, judged = self._source, self._judged(table)
        if source is None or self.holds(table) or (table == "ranges" and judged is not None):
            yield self.table(table, columns)
            return
        read = columns if judged is None else list(dict.fromkeys([*columns, *judged]))
        for piece in source.batches(table, read, rows):
            yield (
                self._moved(piece, TABLES[table].time_columns())
                if judged is None
                else self._counting(table, columns, [piece])
            )

    def pieces(self, table: str) -> list[Piece]:
        """The pieces that `table` can be read in, in the order of its rows; each says when its rows are."""
        if not self.has(table):
            return []
        if table in self._pieces:
            return self._pieces[table]
        from alltrace.run.parquet import row_group_order

        _, metadata = self._file(table)
        declared = TABLES[table]
        starts, ends = (
            ("start", "end")
            if "end" in declared.column_names
            else (declared.order or "start", declared.order or "start")
        )
        first = 0
        pieces = []
        for group in row_group_order(metadata):
            facts = metadata.row_group(group)
            (low, last), (_, high) = _bounds_of(facts, starts), _bounds_of(facts, ends)
            times = (None if time is None else self.clock.apply_one(time) for time in (low, high, last))
            pieces.append(Piece(group, first, facts.num_rows, *times))
            first += facts.num_rows
        self._pieces[table] = pieces
        return pieces

    def piece(self, table: str, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one of `pieces`, as `table`."""
        return self._aligned(self.file_piece(table, group, columns), TABLES[table].time_columns())

    def file_piece(self, table: str, group: int, columns: Sequence[str]) -> pa.Table:
        """The same in the time of the rank's files."""
        from alltrace.run.parquet import read_row_group

        path, metadata = self._file(table)
        wanted, enums = _wanted(TABLES[table], columns)
        rows = read_row_group(path, metadata, group, self._to_read(table, wanted), enums)
        return self._finished(table, rows, TABLES[table].arrow_schema(wanted))

    def _to_read(self, table: str, wanted: list[str]) -> list[str]:
        """The columns to read for those wanted: the names of kernels tell in which of them ranks meet."""
        if table != "kernels" or "kind" not in wanted or not self._manifest.meeting:
            return wanted
        return list(dict.fromkeys([*wanted, "name", "short_name"]))

    def _finished(self, table: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """What was read of a table as `schema` has it, with the kind of kernels in which ranks meet."""
        if table == "kernels" and "kind" in schema.names and self._manifest.meeting:
            from alltrace.run.meeting_kernels import with_meeting_kind

            rows = with_meeting_kind(rows, self._manifest.meeting).select(schema.names)
        return _complete(rows, schema)

    def bounds(self, table: str, group: int, column: str) -> tuple[int | None, int | None]:
        """Least and most of a column of whole numbers in one of `pieces`, as in its file; None if it does not say."""
        return _bounds_of(self._file(table)[1].row_group(group), column)

    def constant(self, table: str, group: int, column: str) -> int | None:
        """The value of a whole-number column in every row of one of `pieces`; None if they differ or are unknown."""
        low, high = self.bounds(table, group, column)
        return low if low == high else None

    def pieces_of_devices(self, table: str, devices: Collection[int]) -> list[int]:
        """The numbers of the pieces of `table` that can hold rows of some devices, in the order of its rows."""
        if not self.has(table):
            return []
        from alltrace.run.parquet import row_group_order

        _, metadata = self._file(table)
        groups = []
        for group in row_group_order(metadata):
            low, high = _bounds_of(metadata.row_group(group), "device")
            if low is None or high is None or any(low <= d <= high for d in devices):
                groups.append(group)
        return groups

    def _file(self, table: str) -> tuple[Path, pq.FileMetaData]:
        """The file of a table that the rank has, and its metadata, which is read once."""
        from alltrace.run.parquet import read_metadata

        if table not in self._metadata:
            path = self._path(table)
            self._metadata[table] = (path, read_metadata(path))
        return self._metadata[table]

    def _path(self, table: str) -> Path:
        if table == "collectives" and self._overlay is not None:
            return self._overlay.collectives(self.rank)
        return self._files.of(self.record).path(f"{RECORDED if self._recorded(table) else ''}{table}.parquet")

    def _recorded(self, table: str) -> bool:
        """Whether rows are read that a report has and that cannot be true (`alltrace.run.plausibility`)."""
        return self._as_recorded and self._files.of(self.record).has(f"{RECORDED}{table}.parquet")

    def shared(self, table: str) -> pa.Table | None:
        """The rows of one of `SHARED_TABLES` that count, or None without any; `row` of `members` counts in `table`."""
        return self._once(("shared", table), lambda: self._shared(table))

    def _shared(self, table: str) -> pa.Table | None:
        if self._source is None:
            return self._shared_file(table)
        rows = self._source.shared(table)
        timed = bool(SHARED_TABLES[table].time_columns())
        if rows is not None and timed and self._rows is not None and self._rows.reads(table) is not None:
            if table == "members":
                row = self.collective_rows()[rows.column("row").to_numpy()]
                rows = rows.filter(pa.array(row >= 0))
                rows = rows.set_column(rows.column_names.index("row"), "row", pa.array(row[row >= 0], pa.int64()))
            else:
                rows = rows.filter(pa.array(self._rows.keeps(table, rows)))
        return None if rows is None else self._moved(rows, SHARED_TABLES[table].time_columns())

    def _shared_file(self, table: str) -> pa.Table | None:
        path = shared_file(self._files, self._overlay, table)
        if path is None:
            return None
        from alltrace.run.parquet import read_rows

        declared = SHARED_TABLES[table]
        names, enums = _wanted(declared, None)
        rows = read_rows(path, names, ("rank", self.rank), enums)
        return self._aligned(rows, declared.time_columns())

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""
        return self._names.texts(ids)

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._names.table()

    def _aligned(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        if self.clock == ClockMap(0):
            return table
        for name in times:
            if name not in table.column_names:
                continue
            column = table.column(name).combine_chunks()
            valid = pc.is_valid(column).to_numpy(zero_copy_only=False) if column.null_count else None
            values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False) if column.null_count else column.to_numpy()
            moved = pa.array(self.clock.apply(values), mask=None if valid is None else ~valid)
            table = table.set_column(table.column_names.index(name), name, moved)
        return table


def has_rows(files: RankFiles, record: RankRecord, table: str, overlay: Overlay | None) -> bool:
    """Whether a rank has rows of a table; the manifest counts events only, a dictionary is there or not."""
    if table in DICTIONARIES:
        return files.of(record).has(f"{table}.parquet")
    if table == "collectives" and overlay is not None:
        return overlay.rows.get(record.rank, 0) > 0
    return record.rows.get(table, 0) > 0


def _wanted(table: Table, columns: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The selected columns of a table, all for None; and which of them are enums."""
    wanted = list(table.column_names if columns is None else columns)
    return wanted, [c for c in wanted if table.column(c).type == "enum"]


def _complete(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of `schema`; a column that a run of an earlier version lacks is null."""
    if table.schema == schema:
        return table
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)


def _with_parents(ranges: pa.Table, keeps: NDArray[Any]) -> pa.Table:
    """The ranges with `parent` as it is once the other rows are gone: a parent that is not kept is none."""
    import numpy as np

    at = ranges.column_names.index("parent")
    column = ranges.column("parent")
    parent = column.fill_null(-1).to_numpy()
    there = (parent >= 0) & keeps[np.clip(parent, 0, max(len(keeps) - 1, 0))] if len(keeps) else np.zeros(0, bool)
    renumbered = (np.cumsum(keeps) - 1)[np.where(there, parent, 0)] if len(keeps) else parent
    return ranges.set_column(at, "parent", pa.array(renumbered, column.type, mask=~there))


def _bounds_of(group: pq.RowGroupMetaData, column: str) -> tuple[int | None, int | None]:
    """Least and most value of a column in a row group; None if the file does not say, or not for all of its rows."""
    for number in range(group.num_columns):
        facts = group.column(number)
        if facts.path_in_schema == column:
            known = facts.statistics
            if known is None or not known.has_min_max or known.null_count:
                return None, None
            return int(known.min), int(known.max)
    return None, None
