"""Opens a report of Nsight Systems as canonical tables."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.nsys import identity
from alltrace.readers.nsys.columns import Columns, as_integers, record_batch, timed, words_array
from alltrace.readers.nsys.devices import cpus, environment, host_name
from alltrace.readers.nsys.entities import TID_BITS, TID_MASK, Entities, pid_of
from alltrace.readers.nsys.mapping import find_table, missing_columns, sources_of
from alltrace.readers.nsys.metrics import Metrics
from alltrace.readers.nsys.mpi import Communicators
from alltrace.readers.nsys.nvtx import Nvtx
from alltrace.readers.nsys.small import raw_type, small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.readers.nsys.tool import Exported
from alltrace.trace.arrays import either, integers, unpacked
from alltrace.trace.errors import InputError, printable
from alltrace.trace.schema import EVENT_TABLES, TABLES

# Accesses to files by name, which reports taken with `--osrt-file-access=true` hold. Events name an opened file by a
# number; a table of descriptors has its path and process. Both hold plain process and thread ids, while all other
# tables hold global ones, of which the rest is taken from the list of processes.

KINDS = ("read", "write", "open", "close", "other")
_EVENTS, _DESCRIPTORS, _TYPES = (
    "OSRT_FILE_ACCESS_EVENTS",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "ENUM_OSRT_FILE_ACCESS_EVENT_TYPE",
)
_ACCESS_COLUMNS = ("startedAt", "endedAt", "fileAccessId", "threadId", "eventType", "apiCallId", "bytesProcessed")
_VM = 1 << 48  # the first virtual machine of a host, as in a report that lists no processes


class Files:
    """The accesses to files of an export; `left_out`: rows without a time by its table, filled as rows are read."""

    def __init__(self, source: RawSource, strings: Strings, entities: Entities, left_out: dict[str, int]) -> None:
        self._source = source
        self._left_out = left_out
        self._strings = strings
        self._entities = entities

    def tables(self) -> list[str]:
        """The table of the export that has them, if there is one."""
        table = find_table(self._source.tables, _EVENTS)
        return [table] if table and not missing_columns(table, self._source.tables[table]) else []

    def stream(self) -> Iterator[Any]:
        """The rows of `file_accesses`, as batches."""
        for table in self.tables():
            types = self._source.tables[table]
            paths, owners = self._descriptors()
            kinds = self._kinds()
            for batch in self._source.batches(table, {c: raw_type(types[c]) for c in _ACCESS_COLUMNS if c in types}):
                batch = timed(batch, table, self._left_out, 0)
                if not batch.num_rows:
                    continue
                columns = {n: as_integers(c) for n, c in zip(batch.schema.names, batch.columns, strict=True)}
                access = pc.dictionary_encode(columns["fileAccessId"])
                numbers = access.dictionary.to_pylist()
                ids = self._strings.from_texts(pa.array([paths.get(n) for n in numbers], pa.string()))
                owner = pc.take(pa.array([owners.get(n) for n in numbers], pa.int64()), access.indices)
                rows: dict[str, Any] = {
                    "start": columns["startedAt"],
                    "end": columns.get("endedAt"),
                    "file": pc.take(ids, access.indices),
                    "access": columns["fileAccessId"],
                    "bytes": columns.get("bytesProcessed"),
                    "process": self._entities.process_rows(owner),
                }
                if "threadId" in columns:
                    rows["thread"] = self._entities.thread_rows(_global(owner, columns["threadId"]))
                if "apiCallId" in columns:
                    rows["name"] = self._strings.from_ids(columns["apiCallId"])
                if "eventType" in columns:
                    codes_of_types, nothing = unpacked(columns["eventType"])
                    codes = np.array([kinds.get(k, KINDS.index("other")) for k in codes_of_types.tolist()], np.int32)
                    rows["kind"] = words_array(codes, KINDS, nothing)
                yield record_batch("file_accesses", rows, batch.num_rows)

    def _descriptors(self) -> tuple[dict[int, str], dict[int, int]]:
        """The path of each access, and the global id of its process."""
        process_of: dict[int, int] = {}
        for column in ("PROCESSES", "ThreadNames"):
            for (number,) in small_rows(self._source, column, "globalPid" if column == "PROCESSES" else "globalTid"):
                if isinstance(number, int):
                    process_of.setdefault(pid_of(number), number & ~TID_MASK)
        paths: dict[int, str] = {}
        owners: dict[int, int] = {}
        for access, process, path in small_rows(self._source, _DESCRIPTORS, "fileAccessId", "processId", "filePath"):
            number, pid = whole(access), whole(process)
            if number is None or number in paths:
                continue
            paths[number] = str(path or "")
            if pid is not None:
                owners[number] = pid & ~TID_MASK if pid > TID_MASK else process_of.get(pid, _VM | pid << TID_BITS)
        return paths, owners

    def _kinds(self) -> dict[int, int]:
        """The place in `KINDS` of each number of an event's type, from what the export calls it."""
        kinds = {}
        for number, name, label in small_rows(self._source, _TYPES, "id", "name", "label"):
            text = f"{name or ''} {label or ''}".lower()
            kind = next((k for k in KINDS if k in text), "other")
            if whole(number) is not None:
                kinds[int(number)] = KINDS.index(kind)
        return kinds


def _global(processes: Any, threads: Any) -> Any:
    """Global thread ids of threads of processes; one that is global already stays."""
    owner, lost = unpacked(processes)
    thread, missing = unpacked(threads)
    ids = np.where((thread >= 0) & (thread <= TID_MASK), owner | thread, thread)
    return pa.array(ids, mask=either(lost, missing))


# The call that recorded the CUDA event of a wait.

_COLUMNS = ("globalPid", "eventId", "correlationId", "streamId")
_NONE = -1


class EventRecords:
    """The calls that recorded CUDA events, from an export with the events' ids."""

    def __init__(self, source: RawSource, entities: Entities) -> None:
        self._source = source
        self._entities = entities
        table = find_table(source.tables, "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
        self.table = table if table is not None and set(_COLUMNS) <= set(source.tables[table]) else None
        """The table of the export that they are read from; None if there is none."""

    def joined(self, waits: Any) -> Any:
        """A batch of `syncs` with `record_correlation` and `record_stream`.

        A wait refers to the last record of its event before it. CUPTI numbers the calls of a process as they begin, so
        this is the record with the largest correlation below the wait's.
        """
        if self.table is None or waits.column("event").null_count == waits.num_rows:
            return waits
        process, event, correlation, stream = self._records
        count = len(process)
        own = [integers(waits.column(c), _NONE) for c in ("process", "event", "correlation")]
        keys = [np.concatenate(pair) for pair in zip((process, event, correlation), own, strict=True)]
        is_wait = np.arange(len(keys[0])) >= count
        order = np.lexsort((is_wait, keys[2], keys[1], keys[0]))
        before = np.maximum.accumulate(np.where(is_wait[order], _NONE, np.arange(len(order))))
        last = np.full(len(order), _NONE)
        last[order] = np.where(before < 0, _NONE, order[np.maximum(before, 0)])
        last = last[count:]
        recorded = (last >= 0) & (own[1] >= 0) & (own[2] >= 0)
        at = np.where(recorded, last, 0)
        if not recorded.any():
            return waits
        recorded &= (process[at] == own[0]) & (event[at] == own[1])
        columns = dict(zip(waits.schema.names, waits.columns, strict=True))
        columns["record_correlation"] = pa.array(correlation[at], mask=~recorded)
        columns["record_stream"] = pa.array(stream[at], mask=~recorded)
        return record_batch("syncs", columns, waits.num_rows)

    @cached_property
    def _records(self) -> list[Any]:
        """Process, event, correlation and stream of each record: int64 arrays."""
        table = str(self.table)
        types = self._source.tables[table]
        parts: list[list[Any]] = [[np.zeros(0, np.int64)] for _ in _COLUMNS]
        for batch in self._source.batches(table, {c: raw_type(types[c]) for c in _COLUMNS}):
            columns = [as_integers(batch.column(c)) for c in _COLUMNS]
            columns[0] = self._entities.process_rows(columns[0])
            for part, column in zip(parts, columns, strict=True):
                part.append(integers(column, _NONE))
        return [np.concatenate(part) for part in parts]


_LATEST_NS = 1 << 62
"""The year 2116; later values are not times, and the difference of two of them would not fit 64 bits."""

_NVTX = ("ranges", "marks")
_FILES = "file_accesses"
_METRICS = ("gpu_metrics", "nic_metrics", "switch_metrics", "generic_metrics", "samples")


class NsysReader:
    """A report of Nsight Systems, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(
        self,
        source: RawSource,
        report_format: str,
        path: Path,
        exported: Exported | None = None,
        known: Sequence[ReportProcess] = (),
    ) -> None:
        self._source = source
        self._exported = exported
        if "StringIds" not in source.tables and not any(_is_event_table(t) for t in source.tables):
            raise InputError(
                path, found="it has none of the tables of an nsys export", expected="an export of Nsight Systems"
            )
        self._strings = Strings(source)
        self._entities = Entities(source, self._strings)
        self._untimed: dict[str, int] = {}
        self._columns = Columns(source, self._strings, self._entities, self._untimed)
        self._nvtx = Nvtx(source, self._strings, self._entities, self._untimed)
        self._metrics = Metrics(source, self._strings, self._entities, self._untimed)
        self._event_records = EventRecords(source, self._entities)
        self._files = Files(source, self._strings, self._entities, self._untimed)
        self._ranks = identity.mpi_ranks(source, self._strings)
        self._communicators = Communicators(source, self._entities, self._ranks)
        self._format = report_format
        self._path = path
        self._processes = identity.processes(source, self._entities, self._ranks, known)
        if not known:
            self.report  # noqa: B018  what is wrong with it shows at the first opening

    @cached_property
    def report(self) -> Report:
        """What the report is about; of one whose processes are known, only once it is asked for."""
        source = self._source
        about = identity.metadata(source)
        version = about.get("EXPORT_SCHEMA_VERSION")
        product = about.get("EXPORT_PRODUCT_VERSION")
        variables, removed = environment(source)
        tables = tuple(t for t in EVENT_TABLES if any(source.count_about(r) for r in self._raw_tables(t)))
        duration = next((whole(d) for (d,) in small_rows(source, "ANALYSIS_DETAILS", "duration")), None)
        began = next(small_rows(source, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs"), (None, None))
        utc, system_clock = (ns if ns is not None and 0 < ns < _LATEST_NS else None for ns in map(whole, began))
        return Report(
            path=str(self._path),
            format=self._format,
            profiler=f"Nsight Systems {product}" if product else "Nsight Systems",
            schema_version=version,
            host=host_name(source),
            utc_ns=utc,
            system_clock_ns=system_clock,
            start_ns=0 if duration is not None else None,
            stop_ns=duration,
            processes=self._processes,
            environment=variables,
            environment_removed=removed,
            world_size=identity.world_size(source, variables),
            tables=tables,
            warnings=identity.warnings(source, tables, version),
        )

    def _raw_tables(self, table: str) -> list[str]:
        if table in _NVTX:
            return self._nvtx.tables()
        if table in _METRICS:
            return self._metrics.tables(table)
        if table == _FILES:
            return self._files.tables()
        return [raw for raw, _ in sources_of(table, self._source.tables)]

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted canonical tables; see `ReportReader.stream`."""
        for table in (t for t in EVENT_TABLES if t in tables):
            for batch in self._stream(table, tables):
                yield table, batch

    def _stream(self, table: str, tables: Collection[str]) -> Iterator[Any]:
        if table in _NVTX:
            # both come from one pass
            yield from self._nvtx.stream(table, hold_marks="marks" in tables and table == "ranges")
        elif table in _METRICS:
            yield from self._metrics.stream(table)
        elif table == _FILES:
            yield from self._files.stream()
        else:
            for raw, mapping in sources_of(table, self._source.tables):
                rows = self._columns.stream(raw, mapping)
                completed = {"syncs": self._event_records.joined, "mpi": self._communicators.completed}.get(table)
                yield from rows if completed is None else map(completed, rows)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        tables = {
            "communicators": self._communicators.table(),
            "streams": _stream_table(self._source, self._entities, self._strings),
            "threads": self._entities.thread_table(),
            "processes": self._entities.process_table(),
            "devices": self._entities.devices.table(self._strings),
            "cpus": cpus(self._source),
        }
        tables["names"] = self._strings.table()
        return tables

    def warnings(self) -> tuple[ReportWarning, ...]:
        """Warnings from reading the rows, in addition to those from opening; see `ReportReader.warnings`."""
        canonical: dict[str, list[str]] = {}
        for table in EVENT_TABLES:
            for raw in self._raw_tables(table):
                canonical.setdefault(raw, []).append(table)
        if self._event_records.table is not None:
            canonical.setdefault(self._event_records.table, ["syncs"])
        # a table without rows in the result, such as the strings, contributes to everything
        warnings = [
            ReportWarning(text, tuple(canonical.get(raw, EVENT_TABLES)))
            for raw, text in self._source.warnings().items()
        ]
        for raw, rows in self._untimed.items():
            text = f"rows of table {printable(raw)} that are left out because they have no time"
            warnings.append(ReportWarning(text, tuple(canonical.get(raw, ())), rows))
        if self._nvtx.nccl_calls and not self._nvtx.nccl_payloads:
            text = identity.without_payloads(self._source, exported=self._exported is not None)
            warnings.append(ReportWarning(text, ("collectives",), self._nvtx.nccl_calls))
        return tuple(warnings)

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give."""
        raw = {r for t in tables if t in EVENT_TABLES for r in self._raw_tables(t)}
        return sum(self._source.count_about(r) for r in raw)

    def close(self) -> None:
        """Release the report, and remove what was made to read it."""
        self._source.close()
        if self._exported is not None:
            self._exported.close()


def _is_event_table(table: str) -> bool:
    return table in {"NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME"} or table.startswith("CUPTI_ACTIVITY_KIND_")


def open_report(path: Path, known: Sequence[ReportProcess] = (), scratch: Path | None = None) -> NsysReader:
    """Open an export (SQLite, or a folder of Parquet) or, with an nsys, a `.nsys-rep`; see `registry.open_report`."""
    exported, form = None, "nsys-parquet"
    with ExitStack() as opened:
        if path.is_dir():
            from alltrace.readers.nsys.parquetdir import ParquetFolder

            source: RawSource = ParquetFolder(path)
        else:
            from alltrace.readers.nsys.sqlite import open_sqlite  # its decoder loads slowly

            form = "nsys-sqlite"
            if path.name.lower().endswith((".nsys-rep", ".qdrep", ".qdstrm")):
                exported, form = Exported(path, scratch), "nsys-rep"
                opened.callback(exported.close)
            source = open_sqlite(path if exported is None else exported.sqlite)
        opened.callback(source.close)
        reader = NsysReader(source, form, path, exported, known)
        opened.pop_all()  # the reader closes them
    return reader


def _stream_table(source: RawSource, entities: Entities, strings: Strings) -> Any:
    """The dictionary `streams`: the streams of the processes that rows refer to."""
    rows_by_pid = entities.rows_by_pid()
    names: dict[tuple[Any, ...], str] = {}
    for pid, context, stream, name in small_rows(
        source, "TARGET_INFO_NVTX_CUDA_STREAM", "processId", "contextId", "streamId", "name"
    ):
        names.setdefault((whole(pid), whole(context), whole(stream)), name)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for *numbers, priority, flag in small_rows(
        source, "TARGET_INFO_CUDA_STREAM", "processId", "contextId", "streamId", "priority", "flag"
    ):
        pid, context, stream = map(whole, numbers)
        if pid not in rows_by_pid or stream is None:
            continue
        name = names.get((pid, context, stream))
        rows.setdefault(
            (pid, context, stream),
            {
                "process": rows_by_pid[pid],
                "context": _small(context),
                "stream": stream,
                "priority": _small(priority),
                "flag": _small(flag),
                "name": strings.add(str(name)) if name else None,
            },
        )
    return pa.Table.from_pylist(list(rows.values()), schema=TABLES["streams"].arrow_schema())


def _small(value: Any) -> int | None:
    number = whole(value)
    return number if number is not None and -(2**31) <= number < 2**31 else None
