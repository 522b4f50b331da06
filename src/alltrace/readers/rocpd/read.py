"""Opens a database or JSON of rocprofv3 as canonical tables: kernels, copies, HIP, HSA, ROCTx, memory, counters."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from alltrace.readers.base import ENVIRONMENT_ALLOWED, Report, ReportProcess, ReportWarning
from alltrace.readers.nsys.sqlite.database import Watch, connection, plan_access, quoted
from alltrace.readers.nsys.sqlite.detect import open_file, read_header
from alltrace.readers.rocpd import JSON_SUFFIX
from alltrace.readers.spool import NameIds, dictionary_tables, record_batch
from alltrace.trace.errors import InputError
from alltrace.trace.launches import short_name
from alltrace.trace.names import text_of_bytes
from alltrace.trace.schema import EVENT_TABLES, TABLES
from alltrace.trace.scratch import scratch_folder

# Which tables a database has, and the statements that read their rows. The schema is `rocpd_tables.sql` in
# ROCm/rocprofiler-sdk (`source/share/rocprofiler-sdk-rocpd`). The names of all tables end with the UUID of a process; a
# database that was merged has a set of tables for each. Versions differ in where times and places are: in the row
# itself, or by number in `rocpd_timestamp` and `rocpd_track`.

_DISPATCHES = re.compile(rb"rocpd_kernel_dispatch(\w*)")
_TRACK = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
_MOST_SETS = 1024


class TableSet(NamedTuple):
    """The tables of one process."""

    suffix: str  # what their names end with
    columns: Mapping[str, frozenset[str]]  # the columns of each table that is there, by its name without the suffix

    def select(self, table: str, columns: Sequence[str], joined: Mapping[str, str] | None = None) -> str | None:
        """A statement that reads columns of a table; None if there is no such table.

        A column that the table lacks is read from where its numbers point to, else null. `joined` has more columns: of
        each the name and where it is, as `TABLE.COLUMN` joined by the row's `TABLE_id`, such as `event.stack_id`.
        """
        chosen, tail = self._parts(table, columns, joined or {})
        return f"SELECT {', '.join(chosen)} FROM {tail} ORDER BY own.id" if tail else None

    def earliest(self, table: str) -> str | None:
        """A statement for the earliest start of a table; None if there is no such table."""
        chosen, tail = self._parts(table, ("start",), {})
        return (
            f"SELECT min({chosen[0]}) FROM {tail} WHERE typeof({chosen[0]}) = 'integer' AND {chosen[0]} >= 0"
            if tail
            else None
        )

    def _parts(self, table: str, columns: Sequence[str], joined: Mapping[str, str]) -> tuple[list[str], str]:
        """What to select, and what from; an empty text if there is no such table."""
        if table not in self.columns:
            return [], ""
        own = self.columns[table]
        joins: dict[str, str] = {}
        chosen = [self._column(own, joins, name) for name in columns]
        for place in joined.values():
            other, _, column = place.partition(".")
            if f"{other}_id" in own and column in self.columns.get(f"rocpd_{other}", ()):
                joins[other] = self._join(f"rocpd_{other}", other, f"{other}_id")
                chosen.append(f"{other}.{quoted(column)}")
            else:
                chosen.append("NULL")
        return chosen, " ".join([f"{quoted(table + self.suffix)} AS own", *joins.values()])

    def _column(self, own: frozenset[str], joins: dict[str, str], name: str) -> str:
        if name in own:
            return f"own.{quoted(name)}"
        stamp = {"start": "start_id", "end": "end_id"}.get(name)
        if stamp in own and stamp and "value" in self.columns.get("rocpd_timestamp", ()):
            joins[stamp] = self._join("rocpd_timestamp", f"at_{name}", stamp)
            return f"at_{name}.value"
        if name in _TRACK and "track_id" in own and name in self.columns.get("rocpd_track", ()):
            joins["track"] = self._join("rocpd_track", "track", "track_id")
            return f"track.{quoted(name)}"
        return "NULL"

    def _join(self, table: str, called: str, by: str) -> str:
        return f"LEFT JOIN {quoted(table + self.suffix)} AS {called} ON {called}.id = own.{by}"


def table_sets(declared: Mapping[bytes, frozenset[str]]) -> list[TableSet]:
    """The sets of a database with the declared tables, by name with columns, in the order of their suffixes."""
    suffixes = sorted(m[1].decode() for name in declared if (m := _DISPATCHES.fullmatch(name)))
    sets = []
    for suffix in suffixes[:_MOST_SETS]:
        end = suffix.encode()
        own = {
            name[: len(name) - len(end)].decode("utf-8", "replace"): columns
            for name, columns in declared.items()
            if name.startswith(b"rocpd_") and name.endswith(end)
        }
        sets.append(TableSet(suffix, own))
    return sets


EXPECTED = "a database (rocpd, .db) or JSON of rocprofv3"
FILLED = ("kernels", "copies", "api", "ranges", "memory", "kernel_counters")
_EXPERIMENTAL = (
    "the reader of rocprofv3 databases is experimental: it was only tested with databases made from the published"
    " schema"
)
_ROWS = 1 << 14
_INT64, _INT32 = 1 << 63, 1 << 31
_DIRECTION = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)")
_PLACE = ("pid", "tid", "start", "end")
_COPY = (*_PLACE, "dst_agent_id", "src_agent_id", "size", "queue_id", "stream_id", "name_id")
_SIZES = tuple(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")
_DISPATCH = (*_PLACE, "agent_id", "queue_id", "stream_id", "kernel_id", "group_segment_size", *_SIZES)


class RocpdReader:
    """A database of rocprofv3, opened; threads, devices and kernels are few and are read then, events on demand."""

    def __init__(self, path: Path, database: Path | None = None) -> None:
        """`database`: what was made of the JSON at `path`; None if `path` is a database."""
        self._path = path
        database = path if database is None else database
        descriptor = open_file(database)
        try:
            self._access = plan_access(database, read_header(database, descriptor))
        finally:
            os.close(descriptor)
        self.folder: TemporaryDirectory[str] | None = None  # of the database that was made of JSON
        try:
            self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        self._names = NameIds()
        self._rows_left_out = 0
        with connection(self._access) as opened:
            declared = {
                bytes(name): frozenset(
                    _text(row[1]) for row in opened.execute(f"PRAGMA table_info({quoted(_text(name))})")
                )
                for name, sql in opened.execute(
                    "SELECT CAST(name AS BLOB), sql FROM sqlite_master WHERE type = 'table'"
                )
                if bytes(name).startswith(b"rocpd_") and _text(sql).upper().startswith("CREATE TABLE")
            }
        self._sets = table_sets(declared)
        if not self._sets:
            raise InputError(path, found="it has no table rocpd_kernel_dispatch", expected=EXPECTED)
        self._processes: list[dict[str, Any]] = []
        self._threads: list[dict[str, Any]] = []
        self._devices: list[dict[str, Any]] = []
        self._process_of: dict[tuple[str, Any], int] = {}
        self._thread_of: dict[tuple[str, Any], int] = {}
        self._device_of: dict[tuple[str, Any], int] = {}
        environment = self._read_dictionaries()
        self._zero, self._by_stream = self._first_time(), self._streams_known()
        self.report: Report = self._identity(environment)

    def _select(self, of: TableSet, table: str, columns: Sequence[str], **joined: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a table, text as bytes."""
        statement = of.select(table, columns, joined)
        if statement is None:
            return
        with connection(self._access, f"table {table + of.suffix!r}") as opened:
            watch = Watch(opened)
            cursor = opened.execute(statement)
            while rows := cursor.fetchmany(_ROWS):
                watch.progress()
                yield from rows

    def _read_dictionaries(self) -> dict[str, str]:
        environment: dict[str, str] = {}
        self._removed, self._hosts = 0, set[str]()
        for of in self._sets:
            nodes = {row[0]: _text(row[1]) for row in self._select(of, "rocpd_info_node", ("id", "hostname"))}
            self._hosts |= {name for name in nodes.values() if name}
            for key, pid, command, variables in self._select(
                of, "rocpd_info_process", ("id", "pid", "command", "environment")
            ):
                row = len(self._processes)
                self._process_of[of.suffix, key] = row
                own, removed = _environment(variables)
                environment = own if row == 0 else environment
                self._removed += removed
                program = _text(command).split(" ")[0].rsplit("/", 1)[-1]
                self._processes.append(
                    {"process": row, "pid": _int(pid) or 0, "name": self._names.add(program) if program else None}
                )
            for key, pid, tid, name in self._select(of, "rocpd_info_thread", ("id", "pid", "tid", "name")):
                row = len(self._threads)
                self._thread_of[of.suffix, key] = row
                process = self._process_of.get((of.suffix, pid), 0)
                self._threads.append({"thread": row, "process": process, "tid": _int(tid), "name": self._named(name)})
            about = ("id", "type", "type_index", "product_name", "name", "extdata")
            for key, kind, ordinal, product, name, more in self._select(of, "rocpd_info_agent", about):
                if _text(kind) == "GPU":
                    row = len(self._devices)
                    self._device_of[of.suffix, key] = row
                    self._devices.append(self._device(row, _int(ordinal), _text(product) or _text(name), _json(more)))
        return environment

    def _device(self, row: int, ordinal: int | None, name: str, about: dict[str, Any]) -> dict[str, Any]:
        domain, place = about.get("domain"), about.get("location_id")
        is_place = isinstance(place, int) and 0 <= place < 1 << 16 and isinstance(domain, int) and 0 <= domain < _INT32
        bus = (
            f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
            if is_place and isinstance(place, int)
            else None
        )
        count = about.get("cu_count")
        return {
            "device": row, "ordinal": ordinal, "gpu": ordinal, "bus_id": bus,
            "name": self._names.add(name) if name else None,
            "sm_count": count if isinstance(count, int) and 0 <= count < _INT32 else None,
        }  # fmt: skip

    def _first_time(self) -> int:
        """The earliest time of any event, which is 0 of the report."""
        tables = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_memory_allocate")
        statements = [s for of in self._sets for table in tables if (s := of.earliest(table))]
        with connection(self._access) as opened:
            times = [_int(opened.execute(statement).fetchone()[0]) for statement in statements]
        return min((t for t in times if t is not None), default=0)

    def _streams_known(self) -> bool:
        """Whether dispatches have streams of HIP; if all are on stream 0, queues are used."""
        return any(row[0] for of in self._sets for row in self._select(of, "rocpd_kernel_dispatch", ("stream_id",)))

    def _identity(self, environment: dict[str, str]) -> Report:
        used = [d["ordinal"] for d in self._devices if d["ordinal"] is not None]
        processes = tuple(
            ReportProcess(
                p["process"], p["pid"], self._names.get(p["name"], "") if p["name"] else "", gpu=bool(self._devices)
            )
            for p in self._processes
        )
        return Report(
            str(self._path),
            "rocpd",
            "rocprofv3",
            host=next(iter(self._hosts)) if len(self._hosts) == 1 else None,
            system_clock_ns=self._zero,
            processes=processes or (ReportProcess(0, 0, gpu=bool(used)),),
            environment=environment,
            environment_removed=self._removed,
            tables=FILLED,
            warnings=(ReportWarning(_EXPERIMENTAL),),
        )

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted tables; see `ReportReader.stream`. Raises `InputError`: the database is damaged."""
        for table in (t for t in EVENT_TABLES if t in tables and t in FILLED):
            columns = [c.name for c in TABLES[table].columns]
            rows: list[dict[str, Any]] = []
            for of in self._sets:
                for row in getattr(self, f"_{table}")(of):
                    rows.append(row)
                    if len(rows) == _ROWS:
                        yield table, record_batch(table, {c: [r.get(c) for r in rows] for c in columns})
                        rows = []
            if rows:
                yield table, record_batch(table, {c: [r.get(c) for r in rows] for c in columns})

    def _kernels(self, of: TableSet) -> Iterator[dict[str, Any]]:
        symbols = self._symbols(of)
        for *place, agent, queue, stream, kernel, shared, bx, by, bz, gx, gy, gz, call in self._select(
            of, "rocpd_kernel_dispatch", _DISPATCH, correlation="event.stack_id"
        ):
            times = self._times(of, place)
            if times is None:
                continue
            name, registers = symbols.get(kernel, ("unknown_kernel", None))
            blocks, threads = (gx, gy, gz), (bx, by, bz)
            yield {
                **times,
                **self._on_device(of, agent, queue, stream, call),
                "name": self._names.add(name),
                "short_name": self._names.add(short_name(name)),
                # a grid of HSA counts work items, not groups of them
                **{f"grid_{a}": _groups(g, b) for a, g, b in zip("xyz", blocks, threads, strict=True)},
                **{f"block_{a}": _int32(b) for a, b in zip("xyz", threads, strict=True)},
                "registers": registers,
                "shared_memory": _int32(shared),
            }

    def _copies(self, of: TableSet) -> Iterator[dict[str, Any]]:
        strings = self._strings(of)
        for *place, to, source, size, queue, stream, name, call in self._select(
            of, "rocpd_memory_copy", _COPY, correlation="event.stack_id"
        ):
            times = self._times(of, place)
            if times is not None:
                direction = _DIRECTION.search(strings.get(name, ""))
                agent = to if (of.suffix, to) in self._device_of else source
                yield {
                    **times,
                    **self._on_device(of, agent, queue, stream, call),
                    "kind": f"{direction[1][0]}to{direction[2][0]}" if direction else "unknown",
                    "bytes": _int(size),
                }

    def _calls(self, of: TableSet) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Category, name and row of each region."""
        strings = self._strings(of)
        joined = {"correlation": "event.stack_id", "category": "event.category_id"}
        for *place, name, call, category in self._select(of, "rocpd_region", (*_PLACE, "name_id"), **joined):
            times = self._times(of, place)
            if times is not None:
                row = {**times, "thread": self._thread_of.get((of.suffix, place[1])), "correlation": _int(call)}
                yield strings.get(category, ""), strings.get(name, ""), row

    def _api(self, of: TableSet) -> Iterator[dict[str, Any]]:
        for category, name, row in self._calls(of):
            if not category.startswith("MARKER"):
                yield {
                    **row,
                    "name": self._names.add(name),
                    "kind": "driver" if category.startswith("HSA") else "runtime",
                }

    def _ranges(self, of: TableSet) -> Iterator[dict[str, Any]]:
        for number, (category, name, row) in enumerate(self._calls(of), 1):
            if category.startswith("MARKER"):
                yield {**row, "name": self._names.add(name), "kind": "pushpop", "source_row": number}

    def _memory(self, of: TableSet) -> Iterator[dict[str, Any]]:
        columns = (*_PLACE, "agent_id", "type", "level", "address", "size")
        for *place, agent, kind, level, address, size in self._select(of, "rocpd_memory_allocate", columns):
            times = self._times(of, place)
            if times is not None and _text(level) == "REAL" and _text(kind) in ("ALLOC", "FREE"):
                yield {
                    "time": times["start"], "process": times["process"],
                    "device": self._device_of.get((of.suffix, agent)),
                    "kind": "allocate" if _text(kind) == "ALLOC" else "free", "memory": "device", "bytes": _int(size),
                    "address": _int(address),
                }  # fmt: skip

    def _kernel_counters(self, of: TableSet) -> Iterator[dict[str, Any]]:
        symbols = self._symbols(of)
        metrics = {row[0]: _text(row[1]) for row in self._select(of, "rocpd_info_pmc", ("id", "symbol"))}
        dispatches: dict[Any, dict[str, Any]] = {}
        number: dict[Any, int] = {}
        columns = (*_PLACE, "agent_id", "kernel_id", "event_id")
        for *place, agent, kernel, event in self._select(of, "rocpd_kernel_dispatch", columns):
            times = self._times(of, place)
            if times is not None:
                number[agent] = number.get(agent, 0) + 1
                dispatches[event] = {
                    "time": times["start"], "process": times["process"],
                    "device": self._device_of.get((of.suffix, agent)), "number": number[agent],
                    "name": self._names.add(symbols.get(kernel, ("unknown_kernel", None))[0]),
                }  # fmt: skip
        for event, metric, value in self._select(of, "rocpd_pmc_event", ("event_id", "pmc_id", "value")):
            if event in dispatches and isinstance(value, int | float):
                yield {
                    **dispatches[event],
                    "metric": self._names.add(metrics.get(metric, "unknown")),
                    "value": float(value),
                }

    def _symbols(self, of: TableSet) -> dict[Any, tuple[str, int | None]]:
        """Names of kernels, and the registers of each."""
        columns = ("id", "display_name", "kernel_name", "arch_vgpr_count")
        return {
            key: (_text(shown) or _text(name).removesuffix(".kd") or "unknown_kernel", _int32(registers))
            for key, shown, name, registers in self._select(of, "rocpd_info_kernel_symbol", columns)
        }

    def _strings(self, of: TableSet) -> dict[Any, str]:
        return {key: _text(value) for key, value in self._select(of, "rocpd_string", ("id", "string"))}

    def _times(self, of: TableSet, place: Sequence[Any]) -> dict[str, Any] | None:
        """Start, end and process; None for a row without a time that can be, which is counted."""
        pid, _, start, end = place
        first, last = _int(start), _int(end)
        if first is None or last is None or not 0 <= first <= last:
            self._rows_left_out += 1
            return None
        return {
            "start": first - self._zero,
            "end": last - self._zero,
            "process": self._process_of.get((of.suffix, pid), 0),
        }

    def _on_device(self, of: TableSet, agent: Any, queue: Any, stream: Any, call: Any) -> dict[str, Any]:
        return {
            "device": self._device_of.get((of.suffix, agent)),
            "stream": _int(stream if self._by_stream else queue),
            "correlation": _int(call),
        }

    def _named(self, text: Any) -> int | None:
        return self._names.add(_text(text)) if _text(text) else None

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        rows = {
            "processes": self._processes or [{"process": 0, "pid": 0}],
            "threads": self._threads,
            "devices": self._devices,
        }
        return dictionary_tables(rows, self._names)

    def warnings(self) -> tuple[ReportWarning, ...]:
        """Rows that were left out; see `ReportReader.warnings`."""
        if not self._rows_left_out:
            return ()
        return (ReportWarning("rows left out because their start or end is implausible", FILLED, self._rows_left_out),)

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give, by the size of the file."""
        return self._path.stat().st_size // 200 if any(t in FILLED for t in tables) else 0

    def close(self) -> None:
        """Release the database."""
        if self.folder is not None:
            self.folder.cleanup()
        if self._access.scratch is not None:
            self._access.scratch.cleanup()


def _environment(variables: Any) -> tuple[dict[str, str], int]:
    """The variables that may enter a run, and how many others there are."""
    values = _json(variables)
    allowed = {k: str(v) for k, v in values.items() if k in ENVIRONMENT_ALLOWED and isinstance(v, str | int)}
    return allowed, len(values) - len(allowed)


def _json(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(_text(text) or "{}", strict=False)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return text_of_bytes(value)
    return "" if value is None else str(value)


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _int32(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < _INT32 else None


def _groups(items: Any, of: Any) -> int | None:
    whole, size = _int32(items), _int32(of)
    return None if whole is None or not size else -(-whole // size)


def open_report(path: Path, scratch: Path | None = None) -> RocpdReader:
    """Open a database, or JSON of which one is made in `scratch`. Raises `InputError`: damaged, or not rocprofv3's."""
    try:
        if path.name.lower().endswith(JSON_SUFFIX):
            return _of_json(path, scratch)
        return RocpdReader(path)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=EXPECTED) from error


def _of_json(path: Path, scratch: Path | None) -> RocpdReader:
    from alltrace.readers.rocpd.from_json import write_database

    if scratch is not None and scratch.is_dir():
        database = scratch / "of-json.db"
        if not database.exists():
            write_database(path, draft := scratch / "of-json.draft")
            draft.rename(database)
        return RocpdReader(path, database)
    folder = scratch_folder("alltrace-rocpd-")
    try:
        database = Path(folder.name) / "of-json.db"
        write_database(path, database)
        reader = RocpdReader(path, database)
    except BaseException:
        folder.cleanup()
        raise
    reader.folder = folder
    return reader
