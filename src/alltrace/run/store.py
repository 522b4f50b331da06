"""A run directory, opened: its facts, its tables on the aligned clock, and SQL over all ranks."""

from __future__ import annotations

from bisect import bisect_left
from copy import copy
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.checksums import CheckedFiles, RankFiles
from alltrace.run.clock import ClockMap, clock_map
from alltrace.run.manifest import NAMES, Manifest, Rank, read_manifest
from alltrace.run.overlay import SHARED_TABLES, Overlay, find_overlay, shared_file, unaligned
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Self

    import duckdb
    import numpy as np
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from alltrace.trace.intervals import Merged
    from alltrace.trace.schema import Table

_FEW_TEXTS = 1_000
_number_of = attrgetter("rank")


class Names:
    """The interned strings of a run: looks up the text of ids.

    Args:
        paths: Returns the files with the names when the first text is needed; a name may be in several.
    """

    def __init__(self, paths: Callable[[], Iterable[Path]]) -> None:
        self._paths = paths

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], pa.Array]:
        import numpy as np

        from alltrace.run.parquet import read_parquet

        paths = list(self._paths())
        table = pa.concat_tables(
            [read_parquet(p, ["id", "value"]) for p in paths] or [TABLES["names"].arrow_schema().empty_table()]
        )
        ids = table.column("id").to_numpy()
        if np.any(ids[1:] < ids[:-1]):
            table = pc.take(table, pa.array(np.argsort(ids, kind="stable")))
        table = table.combine_chunks()
        ids = table.column("id").to_numpy()
        if len(paths) > 1 and len(ids):
            again = ids[1:] == ids[:-1]
            values = table.column("value").combine_chunks()
            if again.any() and pc.any(pc.filter(pc.not_equal(values[1:], values[:-1]), pa.array(again))).as_py():
                raise InputError(paths[0], found="two different names share an id", advice="report this as a bug")
            table = pc.filter(table, pa.array(np.concatenate(([True], ~again))))
            ids = table.column("id").to_numpy()
        return ids, table.column("value").combine_chunks()

    def table(self) -> pa.Table:
        """All strings, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        ids, values = self._sorted
        return pa.table({"id": pa.array(ids), "value": values})

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of ids, as a string array; null if the id is null or unknown."""
        import numpy as np

        known, values = self._sorted
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if len(known) == 0:
            return pa.nulls(len(ids), pa.string())
        if len(ids) <= _FEW_TEXTS:  # what takes many, loads for longer than these take
            few = ids.to_pylist()
            at = np.minimum(np.searchsorted(known, np.array([n or 0 for n in few], np.int64)), len(known) - 1)
            pairs = zip(few, at.tolist(), known[at].tolist(), strict=True)
            return pa.array([values[n].as_py() if wanted == id_ else None for wanted, n, id_ in pairs], values.type)
        wanted = ids if ids.type == pa.int64() else pc.cast(ids, pa.int64())
        wanted = (pc.fill_null(wanted, 0) if ids.null_count else wanted).to_numpy(zero_copy_only=False)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found = known[at] == wanted
        if ids.null_count:
            found &= pc.is_valid(ids).to_numpy(zero_copy_only=False)
        return pc.take(values, pa.array(at, mask=~found))


def _has(files: RankFiles, record: Rank, table: str, overlay: Overlay | None) -> bool:
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


class Piece(NamedTuple):
    """Part of a rank's table: a row group of its file.

    Attributes:
        group: Its number in the file.
        first_row: The row of the table that it begins with.
        rows: Its rows.
        start_ns: Its first start, aligned; None if the file does not say.
        end_ns: Its last end, likewise; None also where a row has none.
        last_start_ns: Its last start, likewise.
    """

    group: int
    first_row: int
    rows: int
    start_ns: int | None
    end_ns: int | None
    last_start_ns: int | None = None


class StoredRank:
    """One rank's tables in a run directory; the argument of a recipe's `map`."""

    def __init__(
        self,
        files: RankFiles,
        manifest: Manifest,
        record: Rank,
        names: Names,
        overlay: Overlay | None = None,
        origin_ns: int = 0,
    ) -> None:
        self.record = record
        self.rank: int = record.rank
        self.host: str = record.host
        self.clock: ClockMap = clock_map(manifest, record)._replace(origin_ns=origin_ns)
        self._files = files
        self._manifest = manifest
        self._names = names
        self._overlay = overlay
        self._metadata: dict[str, tuple[Path, pq.FileMetaData]] = {}
        self._pieces: dict[str, list[Piece]] = {}
        self._in_file_time_of: ClockMap | None = None
        self._held: dict[str, pa.Table] = {}

    def in_file_time(self) -> StoredRank:
        """The same rank in the time of its files, for what must not depend on clocks."""
        found = StoredRank(self._files, self._manifest, self.record, self._names, self._overlay)
        found.clock, found._in_file_time_of = ClockMap(0), found.clock
        return found

    def has(self, table: str) -> bool:
        """Whether the rank has rows of the canonical `table`."""
        return _has(self._files, self.record, table, self._overlay)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The canonical `table` as a `pyarrow.Table`, on the run's aligned clock (see `RankTables.table`)."""
        return self._aligned(self.file_table(table, columns), TABLES[table].time_columns())

    def file_table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The same in the time of the rank's files, for what must not depend on clocks."""
        from alltrace.run.parquet import read_parquet

        wanted, enums = _wanted(TABLES[table], columns)
        held = self._held.get(table)
        if held is not None and set(wanted) <= set(held.column_names):
            return held.select(wanted)
        schema = TABLES[table].arrow_schema(wanted)
        if not self.has(table):
            return schema.empty_table()
        read = self._to_read(table, wanted)
        return self._finished(table, read_parquet(self._path(table), read, enums), schema)

    def hold(self, table: str, columns: Sequence[str]) -> None:
        """Read columns of a table once for all who take some of them: a file costs as much to open as a few columns to decode."""
        self._held[table] = self.file_table(table, columns)

    def unrecorded(self) -> Merged:
        """When work of which the reports lost the records may have run (see `RankTables.unrecorded`)."""
        import numpy as np

        from alltrace.trace.intervals import merge

        times = self.clock.apply(np.array(self.record.unrecorded, np.int64).reshape(-1))
        return merge(times[::2].copy(), times[1::2].copy())

    def gpu_samples(self, columns: Sequence[str]) -> pa.Table:
        """The samples of the rank's GPUs, whichever report of its host has them (see `RankTables.gpu_samples`)."""
        from alltrace.run.host_samples import samplers, samples_of_host

        return samples_of_host(self, samplers(self._manifest, self.record), self._beside, columns)

    def gpu_sample_sources(self) -> list[tuple[StoredRank, dict[int, int]]]:
        """Where the samples of the rank's GPUs are, piece by piece (see `alltrace.run.host_samples.sample_sources`)."""
        from alltrace.run.host_samples import sample_sources, samplers

        return sample_sources(self, self._manifest, samplers(self._manifest, self.record), self._beside)

    def _beside(self, record: Rank) -> StoredRank:
        found = StoredRank(self._files, self._manifest, record, self._names, self._overlay, self.clock.origin_ns)
        if self._in_file_time_of is not None:  # ranks of a host share its clock, but have their own time bases
            found.clock = ClockMap(found.clock.shift_ns - self._in_file_time_of.shift_ns)
        return found

    def batches(
        self, table: str, columns: Sequence[str] | None = None, rows: int = 0, *, lengths: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The canonical `table` piece by piece, as `pyarrow.Table`s in the order of its rows; otherwise as `table`.

        Args:
            table: A key of `alltrace.trace.schema.TABLES`.
            columns: The columns to read, in order; None for all.
            rows: Row groups are joined up to this many rows; 0 for each alone. This bounds memory.
            lengths: Only durations are needed, so times may stay as in the file if its clock does not drift.
        """
        from alltrace.run.parquet import read_row_groups

        if not self.has(table):
            return
        declared = TABLES[table]
        wanted, enums = _wanted(declared, columns)
        schema = declared.arrow_schema(wanted)
        for found in read_row_groups(self._path(table), self._to_read(table, wanted), enums, rows):
            whole = self._finished(table, found, schema)
            yield whole if lengths and not self.clock.drift else self._aligned(whole, declared.time_columns())

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
            ("start", "end") if "end" in declared.column_names else (declared.order or "start", declared.order or "start")
        )
        first = 0
        found = []
        for group in row_group_order(metadata):
            facts = metadata.row_group(group)
            (low, last), (_, high) = _bounds_of(facts, starts), _bounds_of(facts, ends)
            times = (None if time is None else self.clock.apply_one(time) for time in (low, high, last))
            found.append(Piece(group, first, facts.num_rows, *times))
            first += facts.num_rows
        self._pieces[table] = found
        return found

    def piece(self, table: str, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one of `pieces`, as `table`."""
        return self._aligned(self.file_piece(table, group, columns), TABLES[table].time_columns())

    def file_piece(self, table: str, group: int, columns: Sequence[str]) -> pa.Table:
        """The same in the time of the rank's files."""
        from alltrace.run.parquet import read_row_group

        path, metadata = self._file(table)
        wanted, enums = _wanted(TABLES[table], columns)
        found = read_row_group(path, metadata, group, self._to_read(table, wanted), enums)
        return self._finished(table, found, TABLES[table].arrow_schema(wanted))

    def _to_read(self, table: str, wanted: list[str]) -> list[str]:
        """The columns to read for those wanted: the names of kernels tell in which of them ranks meet."""
        if table != "kernels" or "kind" not in wanted or not self._manifest.meeting:
            return wanted
        return list(dict.fromkeys([*wanted, "name", "short_name"]))

    def _finished(self, table: str, found: pa.Table, schema: pa.Schema) -> pa.Table:
        """What was read of a table as `schema` has it, with the kind of kernels in which ranks meet."""
        if table == "kernels" and "kind" in schema.names and self._manifest.meeting:
            from alltrace.run.meeting_kernels import with_meeting_kind

            found = with_meeting_kind(found, self._manifest.meeting).select(schema.names)
        return _complete(found, schema)

    def bounds(self, table: str, group: int, column: str) -> tuple[int | None, int | None]:
        """Least and most value of a column of whole numbers in one of `pieces`, as in its file; None if it does not say."""
        return _bounds_of(self._file(table)[1].row_group(group), column)

    def constant(self, table: str, group: int, column: str) -> int | None:
        """The value that a column of whole numbers has in every row of one of `pieces`; None if they differ or are unknown."""
        low, high = self.bounds(table, group, column)
        return low if low == high else None

    def pieces_of_devices(self, table: str, devices: Collection[int]) -> list[int]:
        """The numbers of the pieces of `table` that can hold rows of some devices, in the order of its rows."""
        if not self.has(table):
            return []
        from alltrace.run.parquet import row_group_order

        _, metadata = self._file(table)
        found = []
        for group in row_group_order(metadata):
            low, high = _bounds_of(metadata.row_group(group), "device")
            if low is None or high is None or any(low <= d <= high for d in devices):
                found.append(group)
        return found

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
        return self._files.of(self.record).path(f"{table}.parquet")

    def shared(self, table: str) -> pa.Table | None:
        """The rank's rows of `gpu_log`, `inspector`, `members` or `steps`, as a `pyarrow.Table`; None if there are none."""
        path = shared_file(self._files, self._overlay, table)
        if path is None:
            return None
        from alltrace.run.parquet import read_rows

        declared = SHARED_TABLES[table]
        names, enums = _wanted(declared, None)
        found = read_rows(path, names, ("rank", self.rank), enums)
        return self._aligned(found, declared.time_columns())

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


class Run:
    """A run directory, opened for reading.

    It is read as imported until an alignment is adopted: an answer must not depend on whether an earlier question
    has stored one.

    Args:
        path: The run directory.
        align: The folder of an alignment to read it by, if that is one of this run.

    Raises:
        InputError: `path` is not a run directory, its import did not finish, or its manifest is damaged.

    Attributes:
        in_session: Whether times count from the session's start, and not from the run's first event.
    """

    in_session = False

    def __init__(self, path: str | Path, *, align: Path | None = None) -> None:
        self.path: Path = Path(path)
        self._manifest = read_manifest(self.path)
        if not self._manifest.complete:
            raise InputError(
                path,
                found="its import did not finish",
                expected="a whole run",
                advice="run the same `alltrace import` again; it continues where it stopped",
            )
        self._imported = self._manifest = unaligned(self._manifest)
        self.overlay: Overlay | None = None if align is None else find_overlay(self._manifest, align)
        if self.overlay is not None:
            self._manifest = self.overlay.over(self._manifest)
        self.files: RankFiles = RankFiles(self.path)
        self._names = Names(self.name_files)
        self.alignment: Any = None  # of a layer above, which has no name here
        """The alignment (`alltrace.align.aligned.Aligned`) once a question needed it."""

    def adopt(self, overlay: Overlay) -> None:
        """Read the run by this alignment from now on."""
        self.overlay = overlay
        self._read(overlay.over(self._imported))

    def _read(self, manifest: Manifest) -> None:
        """Go by these facts from now on."""
        self._manifest = manifest
        self._names = Names(self.name_files)
        self._forget_times()

    def _forget_times(self) -> None:
        for name in ("origin_ns", "span_ns"):
            self.__dict__.pop(name, None)

    def as_imported(self) -> Self:
        """The run without the alignment that it has adopted."""
        if self.overlay is None:
            return self
        run = copy(self)
        run.overlay = run.alignment = None
        run._read(self._imported)  # noqa: SLF001  a copy of this one
        return run

    def in_session_time(self) -> Self:
        """The run with times as in the profiler's own tools: from the start of the first report's session."""
        run = copy(self)
        run.in_session = True
        run.alignment = None
        run._forget_times()  # noqa: SLF001  a copy of this one
        return run

    def has(self, record: Rank, table: str) -> bool:
        """Whether a rank has rows of the canonical `table`."""
        return _has(self.files, record, table, self.overlay)

    def left_out(self) -> tuple[str, ...]:
        """The event tables that the import left out on request and no alignment has added since; their rows are unknown."""
        manifest = self._manifest
        if manifest.tables is None:
            return ()
        return tuple(t for t in EVENT_TABLES if t not in manifest.tables and not (t == "collectives" and self.overlay is not None))

    def is_sampled(self, record: Rank) -> bool:
        """Whether a report of the rank's host has samples of GPU metrics."""
        return record.host in self._sampled_hosts

    @cached_property
    def _sampled_hosts(self) -> frozenset[str]:
        return frozenset(r.host for r in self.ranks if r.rows.get("gpu_metrics"))

    @property
    def samples_for_others(self) -> bool:
        """Whether some rank has no samples of GPU metrics, and another rank of its host has."""
        return any(not r.rows.get("gpu_metrics") and self.is_sampled(r) for r in self.ranks)

    @property
    def manifest(self) -> Manifest:
        """The facts of the run."""
        return self._manifest

    def name_files(self) -> Iterator[Path]:
        """The files with the names of the whole run, and those of the alignment; each is checked on first use.

        Raises:
            DamageError: A file is not as it was written.
        """
        yield CheckedFiles(self.path, self._manifest.files).path(NAMES)
        if self.overlay is not None and self.overlay.files.has(NAMES):
            yield self.overlay.files.path(NAMES)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks, by number."""
        return self.manifest.ranks

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in the order of their first rank."""
        return self.manifest.hosts

    @cached_property
    def origin_ns(self) -> int:
        """The time of the run's first event, counted from the session's start: what is time 0 of the run."""
        if self.in_session:
            return 0
        starts = [clock_map(self.manifest, r).apply_one(r.start_ns) for r in self.ranks if r.start_ns is not None]
        return min(starts, default=0)

    def clock(self, record: Rank) -> ClockMap:
        """The map from the time in the files of a rank to the run's aligned clock."""
        return clock_map(self.manifest, record)._replace(origin_ns=self.origin_ns)

    @cached_property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of any event of any rank, on the aligned clock; (0, 0) without events."""
        spans = [
            (clock.apply_one(r.start_ns), clock.apply_one(r.end_ns))
            for r in self.ranks
            if r.start_ns is not None and r.end_ns is not None
            for clock in [self.clock(r)]
        ]
        return (min(s for s, _ in spans), max(e for _, e in spans)) if spans else (0, 0)

    @property
    def device_count(self) -> int:
        """The number of distinct GPUs, by (host, UUID)."""
        return len({d.identity for r in self.ranks for d in r.devices})

    def facts(self) -> dict[str, int]:
        """Ranks, hosts, devices and span of the run: what every answer says of it.

        The span is the longest of any host by its own clock, so that it is the same with and without an alignment.
        """
        manifest = self._imported
        bounds: dict[str, list[int]] = {}
        for r in manifest.ranks:
            if r.start_ns is not None and r.end_ns is not None:
                clock = clock_map(manifest, r)
                bounds.setdefault(r.host, []).extend((clock.apply_one(r.start_ns), clock.apply_one(r.end_ns)))
        longest = max((max(times) - min(times) for times in bounds.values()), default=0)
        return {"ranks": len(self.ranks), "hosts": len(self.hosts), "devices": self.device_count, "span_ns": longest}

    def rank(self, rank: int) -> StoredRank:
        """The tables of one rank.

        Raises:
            UsageError: The run has no such rank.
        """
        at = bisect_left(self.ranks, rank, key=_number_of)
        if at < len(self.ranks) and self.ranks[at].rank == rank:
            return StoredRank(self.files, self.manifest, self.ranks[at], self._names, self.overlay, self.origin_ns)
        raise UsageError(f"rank {rank} is not in the run; it has {number_ranges([r.rank for r in self.ranks])}")

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""
        return self._names.texts(ids)

    def table(self, table: str, ranks: Sequence[int] | None = None) -> duckdb.DuckDBPyRelation:
        """The canonical `table` of all ranks as a DuckDB relation: `.arrow()`, `.pl()`, `.df()`.

        Args:
            table: A key of `alltrace.trace.schema.TABLES`.
            ranks: The ranks wanted; None for all.

        Returns:
            A `duckdb.DuckDBPyRelation` with `rank` and `host` before the table's columns; names are text, times ns on the aligned
            clock.

        Raises:
            UsageError: The table or rank does not exist, or ranks were selected for `names`, which belongs to the whole run.
            InputError: The table was not imported.
        """
        if table not in TABLES:
            raise UsageError.unknown("table", table, TABLES)
        if table in self.left_out():
            raise InputError(
                self.path,
                found=f"`{table}` was not imported",
                advice="import the reports again without --only, or include it there",
            )
        connection = self.connect([table])
        relation = connection.table(table) if table == "names" else connection.view(table)
        if ranks is None:
            return relation
        if table == "names":
            raise UsageError("the table names belongs to the whole run; leave out the ranks")
        for rank in ranks:
            self.rank(rank)
        wanted = ", ".join(str(int(r)) for r in ranks) or "NULL"
        return relation.filter(f"rank IN ({wanted})")

    def name_table(self) -> pa.Table:
        """All interned strings of the run, as a `pyarrow.Table` (`id`, `value`) sorted by id."""
        return self._names.table()

    def connect(self, tables: Sequence[str] | None = None, *, ids: bool = False) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view for each canonical table that was imported (or for the selected ones), over all ranks.

        The files of these tables are checked first, so name the tables where a run is large. The connection lives in memory; the
        run's files are only read. With `ids` it has the schema `ids` too: the same views with
        ids of names instead of their texts.
        """
        from alltrace.run.sql_views import connect

        return connect(self, tables, ids=ids)


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
