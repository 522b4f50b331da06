"""Opens a report of Nsight Systems as canonical tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.nsys import identity
from alltrace.readers.nsys.columns import Columns
from alltrace.readers.nsys.devices import cpus
from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.environment import environment, host_name
from alltrace.readers.nsys.event_records import EventRecords
from alltrace.readers.nsys.files import Files
from alltrace.readers.nsys.mapping import sources_of
from alltrace.readers.nsys.metrics import Metrics
from alltrace.readers.nsys.mpi import Communicators
from alltrace.readers.nsys.nvtx import Nvtx
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.readers.nsys.tool import Exported
from alltrace.trace.errors import InputError, printable
from alltrace.trace.schema import EVENT_TABLES, TABLES

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
            raise InputError(path, found="it has none of the tables of an nsys export", expected="an export of Nsight Systems")
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
        return Report(
            path=str(self._path),
            format=self._format,
            profiler=f"Nsight Systems {product}" if product else "Nsight Systems",
            schema_version=version,
            host=host_name(source),
            utc_ns=_session_start(source, "utcEpochNs"),
            system_clock_ns=_session_start(source, "systemClockNs"),
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
        warnings = [ReportWarning(text, tuple(canonical.get(raw, EVENT_TABLES))) for raw, text in self._source.warnings().items()]
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


def _session_start(source: RawSource, column: str) -> int | None:
    start = next((whole(value) for (value,) in small_rows(source, "TARGET_INFO_SESSION_START_TIME", column)), None)
    return start if start is not None and 0 < start < _LATEST_NS else None


def _is_event_table(table: str) -> bool:
    return table in {"NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME"} or table.startswith("CUPTI_ACTIVITY_KIND_")


def open_report(path: Path, known: Sequence[ReportProcess] = (), scratch: Path | None = None) -> NsysReader:
    """Open an export (SQLite, or a folder of Parquet) or, with an nsys, a `.nsys-rep`; see `registry.open_report`."""
    name = path.name.lower()
    if path.is_dir():
        from alltrace.readers.nsys.parquetdir import ParquetFolder

        return _reader(ParquetFolder(path), "nsys-parquet", path, known=known)
    from alltrace.readers.nsys.sqlite import open_sqlite  # its decoder loads slowly

    if not name.endswith((".nsys-rep", ".qdrep", ".qdstrm")):
        return _reader(open_sqlite(path), "nsys-sqlite", path, known=known)
    from alltrace.readers.nsys.tool import Exported

    exported = Exported(path, scratch)
    try:
        return _reader(open_sqlite(exported.sqlite), "nsys-rep", path, exported, known)
    except BaseException:
        exported.close()
        raise


def _reader(
    source: RawSource,
    report_format: str,
    path: Path,
    exported: Exported | None = None,
    known: Sequence[ReportProcess] = (),
) -> NsysReader:
    try:
        return NsysReader(source, report_format, path, exported, known)
    except BaseException:
        source.close()
        raise


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
