"""A run directory, opened: its facts, its tables on the aligned clock, and SQL over all ranks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.run.checksums import CheckedFiles, RankFiles
from alltrace.run.clock import ClockMap, clock_map
from alltrace.run.json_files import read_json
from alltrace.run.manifest import (
    MANIFEST,
    NAMES,
    RANK_RECORD,
    RANKS,
    Manifest,
    RankRecord,
    rank_folder,
    rank_from_json,
    read_manifest,
)
from alltrace.run.names import Names
from alltrace.run.overlay import Overlay, find_overlay, unaligned
from alltrace.run.rank import Rank, has_rows
from alltrace.trace.errors import AlltraceError, InputError, UsageError
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import EVENT_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    import duckdb
    import pyarrow as pa

    from alltrace.run.members import Members


_number_of = attrgetter("rank")


class Run:
    """A run directory, opened for reading; `in_session`: times count from the session's start, not the first event.

    It is read as imported until an alignment is adopted (`align`, its folder): an answer must not depend on earlier
    questions. Raises `InputError`: it is not a run directory, its import did not finish, or it is damaged.
    """

    in_session = False

    def __init__(self, path: str | Path, *, align: Path | None = None) -> None:
        self.path: Path = Path(path)
        self._imported = self._manifest = unaligned(self._read_manifest())
        self.overlay: Overlay | None = None if align is None else find_overlay(self._manifest, align)
        if self.overlay is not None:
            self._manifest = self.overlay.over(self._manifest)
        self.files: RankFiles = RankFiles(self.path)
        self._names = Names(self.name_files)
        self.alignment: Any = None  # of a layer above, which has no name here
        """The alignment (`alltrace.align.aligned.Aligned`) once a question needed it."""
        self.members: Members | None = None
        """Which device of which process each rank is; None if ranks are processes (`alltrace.align.devices`)."""
        self.devices_run: tuple[Run | None] | None = None
        """The same run with a rank for each device, once asked for; None in it if each process works with one."""

    def _read_manifest(self) -> Manifest:
        manifest = read_manifest(self.path)
        if manifest.complete:
            return manifest
        raise InputError(
            self.path,
            found="its import did not finish",
            expected="a whole run",
            advice="run the same `alltrace import` again; it continues where it stopped",
        )

    def adopt(self, overlay: Overlay) -> None:
        """Read the run by this alignment from now on."""
        self.overlay = overlay
        self._read(overlay.over(self._imported))

    def _read(self, manifest: Manifest) -> None:
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

    def has(self, record: RankRecord, table: str) -> bool:
        """Whether a rank has rows of the canonical `table`."""
        return has_rows(self.files, record, table, self.overlay)

    def left_out(self) -> tuple[str, ...]:
        """The event tables that the import left out on request and no alignment added; their rows are unknown."""
        manifest = self._manifest
        if manifest.tables is None:
            return ()
        return tuple(
            t
            for t in EVENT_TABLES
            if t not in manifest.tables and not (t == "collectives" and self.overlay is not None)
        )

    def is_sampled(self, record: RankRecord) -> bool:
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
        """The files with the names of the run and of the alignment. Raises `DamageError`: one is not as written."""
        yield CheckedFiles(self.path, self._manifest.files).path(NAMES)
        if self.overlay is not None and self.overlay.files.has(NAMES):
            yield self.overlay.files.path(NAMES)

    @property
    def ranks(self) -> tuple[RankRecord, ...]:
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

    def clock(self, record: RankRecord) -> ClockMap:
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
        """Ranks, hosts, devices and span: the longest of any host by its own clock, so the same with an alignment."""
        manifest = self._imported
        bounds: dict[str, list[int]] = {}
        for r in manifest.ranks:
            if r.start_ns is not None and r.end_ns is not None:
                clock = clock_map(manifest, r)
                bounds.setdefault(r.host, []).extend((clock.apply_one(r.start_ns), clock.apply_one(r.end_ns)))
        longest = max((max(times) - min(times) for times in bounds.values()), default=0)
        return {"ranks": len(self.ranks), "hosts": len(self.hosts), "devices": self.device_count, "span_ns": longest}

    def rank(self, rank: int) -> Rank:
        """The tables of one rank. Raises `UsageError`: the run has no such rank."""
        at = bisect_left(self.ranks, rank, key=_number_of)
        if at < len(self.ranks) and self.ranks[at].rank == rank:
            record, recorded = self.ranks[at], self.in_session
            return Rank(
                self.files, self.manifest, record, self._names, self.overlay, self.origin_ns, as_recorded=recorded
            )
        raise UsageError(f"rank {rank} is not in the run; it has {number_ranges([r.rank for r in self.ranks])}")

    def texts(self, ids: pa.Array) -> pa.Array:
        """The strings of an Arrow array of name ids, as a string array; null if the id is."""
        return self._names.texts(ids)

    def table(self, table: str, ranks: Sequence[int] | None = None) -> duckdb.DuckDBPyRelation:
        """The canonical `table` of all ranks as a DuckDB relation: `.arrow()`, `.pl()`, `.df()`.

        `ranks`: the ranks wanted; None for all. Returns a `duckdb.DuckDBPyRelation` with `rank` and `host`
        before the table's columns; names are text, times ns on the aligned clock. Raises `UsageError`: the
        table or rank does not exist, or ranks were selected for `names`, which belongs to the whole run. Raises
        `InputError`: the table was not imported.
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
        """A DuckDB connection with a view for each canonical table imported (or selected), over all ranks.

        The files of these tables are checked first, so name the tables where a run is large. The connection lives in
        memory; the run's files are only read. With `ids` it has the schema `ids` too: the same views with ids of names
        instead of their texts.
        """
        from alltrace.run.sql_views import connect

        return connect(self, tables, ids=ids)


# A run whose import has not finished, or never will: the part that is committed.


class PartialRun(Run):
    """The ranks that are there of a run still being imported, at one moment. Otherwise as `Run`, not aligned."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.devices_run = (None,)  # without all of its ranks, nobody knows what its devices are

    def _read_manifest(self) -> Manifest:
        whole = read_manifest(self.path)
        manifest = whole.with_ranks(_committed(self.path))
        if whole.complete:
            return manifest
        note = "this run is still being imported, or its import was stopped: only the ranks imported so far are shown"
        return replace(manifest, notes=(*manifest.notes, note))

    def name_files(self) -> Iterator[Path]:
        """The names of each existing rank; the names of the whole run are written last."""
        for record in self._manifest.ranks:
            files = self.files.of(record)
            if files.has(NAMES):
                yield files.path(NAMES)


def _committed(run: Path) -> list[RankRecord]:
    """The ranks with an existing folder and record."""
    ranks = []
    for folder in sorted((run / RANKS).glob("rank=*")):
        try:
            rank = rank_from_json(read_json(folder / RANK_RECORD)["rank"])
        except (AlltraceError, KeyError, TypeError, ValueError):
            continue  # being removed or of another version: not there yet
        if folder.name == Path(rank_folder(rank.rank)).name:
            ranks.append(rank)
    return ranks


# A run that tasks in other processes are about.


class SentRun:
    """A run that is sent to processes as its path, and opened once in each, when a task first needs it."""

    def __init__(self, run: Run) -> None:
        self._kind = type(run)
        self._path = run.path.absolute()  # workers may be started in another folder
        self._align = None if run.overlay is None else run.overlay.folder.absolute()
        self._in_session = run.in_session
        self.run = run

    @property
    def needs(self) -> tuple[Path, ...]:
        """What the other processes must see."""
        return (self._path / MANIFEST,)

    @cached_property
    def run(self) -> Run:
        """The run. Raises `InputError`: a file of the run is damaged."""
        run = self._kind(self._path) if self._align is None else self._kind(self._path, align=self._align)
        return run.in_session_time() if self._in_session else run

    def __getstate__(self) -> dict[str, type[Run] | Path | bool | None]:
        return {"_kind": self._kind, "_path": self._path, "_align": self._align, "_in_session": self._in_session}
