"""Makes of rocprofv3's JSON (`--output-format json`) a database with the columns of rocpd, which is then read like one.

A document is `{"rocprofiler-sdk-tool": [...]}` with an object for each process: `agents`, `kernel_symbols` and
`strings` are what records refer to, `buffer_records` has a list of records for each kind, `callback_records` the
counters of dispatches.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from alltrace.readers.text import json_documents
from alltrace.trace.errors import InputError

KEY = "rocprofiler-sdk-tool"
EXPECTED = "JSON of rocprofv3"
_MOST_BYTES = 2 << 30
"""The whole document is in memory, in about ten times its size: beyond this rocpd is the form that rocprofv3 has."""
_GPU = 2
_APIS = ("marker_api", "hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api")
_AXES = ("x", "y", "z")
_INT64 = 1 << 63

_TABLES = {
    "string": "string",
    "info_node": "hostname",
    "info_process": "pid, command, environment",
    "info_thread": "pid, tid, name",
    "info_agent": "type, type_index, name, product_name, extdata",
    "info_pmc": "symbol",
    "info_kernel_symbol": "kernel_name, display_name, arch_vgpr_count",
    "event": "category_id, stack_id",
    "pmc_event": "event_id, pmc_id, value",
    "kernel_dispatch": (
        "pid, tid, start, end, agent_id, queue_id, stream_id, kernel_id, group_segment_size, "
        + ", ".join(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in _AXES)
        + ", event_id"
    ),
    "memory_copy": "pid, tid, start, end, dst_agent_id, src_agent_id, size, queue_id, stream_id, name_id, event_id",
    "region": "pid, tid, start, end, name_id, event_id",
    "memory_allocate": "pid, tid, start, end, agent_id, type, level, address, size, event_id",
}


def write_database(source: Path, target: Path) -> None:
    """Write documents as a database, tables for each process. Raises `InputError`: too large, no JSON, no process."""
    size = source.stat().st_size
    if size > _MOST_BYTES:
        raise InputError(
            source,
            found=f"it has {size / 1e9:.1f} GB",
            expected=f"at most {_MOST_BYTES / 1e9:.1f} GB of JSON, which is read at once",
            advice="record with `rocprofv3 --output-format rocpd`",
        )
    try:
        documents = list(json_documents(source.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise InputError(source, found=f"it is damaged or ends early ({error})", expected=EXPECTED) from error
    tools = [document.get(KEY) for document in documents if isinstance(document, dict)]
    processes = [p for tool in tools for p in (tool if isinstance(tool, list) else [tool]) if isinstance(p, dict)]
    if not processes:
        raise InputError(source, found=f"it has no process in {KEY!r}", expected=EXPECTED)
    with closing(sqlite3.connect(target)) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        for number, process in enumerate(processes):
            _Process(db, f"_{number}", process).write()


class _Process:
    """One process of a document, and the tables that it becomes."""

    def __init__(self, db: sqlite3.Connection, suffix: str, content: Mapping[str, Any]) -> None:
        self._db, self._suffix, self._content = db, suffix, content
        self._strings: dict[str, int] = {}
        self._threads: set[int] = set()
        self._event_of: dict[int | None, int] = {}
        strings = _object(content.get("strings"))
        self._kinds = [_object(kind) for kind in _list(strings.get("buffer_records"))]
        messages = map(_object, _list(strings.get("marker_api")))
        self._messages = {_int(m.get("key")): _value(m.get("value")) for m in messages}
        self._metadata = _object(content.get("metadata"))
        self._pid = _int(self._metadata.get("pid")) or 0
        self._events: list[tuple[int, int, int | None]] = []

    def write(self) -> None:
        for name, columns in _TABLES.items():
            quoted = ", ".join(f'"{column}"' for column in columns.split(", "))
            self._db.execute(f'CREATE TABLE "rocpd_{name}{self._suffix}" (id INTEGER PRIMARY KEY, {quoted})')
        host = _object(self._metadata.get("node")).get("hostname")
        self._add("info_node", [(1, _value(host))])
        command = _value(" ".join(word for word in _list(self._metadata.get("command")) if isinstance(word, str)))
        variables = _object(self._metadata.get("environment"))
        self._add("info_process", [(self._pid, self._pid, command, json.dumps(variables))])
        self._add("info_agent", self._agents())
        names = ("kernel_name", "formatted_kernel_name", "arch_vgpr_count")
        symbols = map(_object, _list(self._content.get("kernel_symbols")))
        self._add(
            "info_kernel_symbol", [(_int(s.get("kernel_id")), *(_value(s.get(n)) for n in names)) for s in symbols]
        )
        records = _object(self._content.get("buffer_records"))
        self._add("kernel_dispatch", self._dispatches(records))
        self._add("memory_copy", self._copies(records))
        self._add("region", self._regions(records))
        self._add("memory_allocate", self._allocations(records))
        self._add_counters()
        self._add("event", self._events)
        self._add("info_thread", [(tid, self._pid, tid, None) for tid in sorted(self._threads)])
        self._add("string", [(number, text) for text, number in self._strings.items()])

    def _add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * (2 + _TABLES[table].count(",")))
        self._db.executemany(f'INSERT OR IGNORE INTO "rocpd_{table}{self._suffix}" VALUES ({places})', rows)

    def _agents(self) -> Iterator[tuple[Any, ...]]:
        for agent in map(_object, _list(self._content.get("agents"))):
            kind = "GPU" if agent.get("type") == _GPU else "CPU"
            about = {key: agent.get(key) for key in ("domain", "location_id", "cu_count")}
            ordinal = _int(agent.get("logical_node_type_id"))
            names = (agent.get("name"), agent.get("product_name"))
            yield _handle(agent.get("id")), kind, ordinal, *map(_value, names), json.dumps(about)

    def _event(self, record: Mapping[str, Any], category: str = "") -> int:
        """The number of a new event: what it is, and the call that it belongs to."""
        call = _int(_object(record.get("correlation_id")).get("internal"))
        self._events.append((len(self._events) + 1, self._string(category), call))
        return len(self._events)

    def _string(self, text: Any) -> int:
        value = _value(text)
        return self._strings.setdefault(value if isinstance(value, str) else "", len(self._strings) + 1)

    def _place(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        tid = _int(record.get("thread_id"))
        if tid is not None:
            self._threads.add(tid)
        return self._pid, tid, _int(record.get("start_timestamp")), _int(record.get("end_timestamp"))

    def _named(self, record: Mapping[str, Any]) -> tuple[str, str]:
        """The kind of a record, such as `HIP_RUNTIME_API`, and its operation."""
        number, operation = _int(record.get("kind")), _int(record.get("operation"))
        kind = self._kinds[number] if number is not None and 0 <= number < len(self._kinds) else {}
        operations = _list(kind.get("operations"))
        is_listed = operation is not None and 0 <= operation < len(operations)
        return str(kind.get("kind") or ""), str(operations[operation]) if is_listed and operation is not None else ""

    def _dispatches(self, records: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        for number, record in enumerate(map(_object, _list(records.get("kernel_dispatch"))), 1):
            event = self._event(record)
            self._event_of[_int(_object(record.get("dispatch_info")).get("dispatch_id"))] = event
            yield number, *self._dispatch(record), event

    def _dispatch(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        about = _object(record.get("dispatch_info"))
        stream = _handle(record.get("stream_id")) or _handle(about.get("stream_id"))
        sizes = [_int(_object(about.get(f"{what}_size")).get(axis)) for what in ("workgroup", "grid") for axis in _AXES]
        place = (_handle(about.get("agent_id")), _handle(about.get("queue_id")), stream or 0)
        return *self._place(record), *place, _int(about.get("kernel_id")), _int(about.get("group_segment_size")), *sizes

    def _copies(self, records: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        for number, record in enumerate(map(_object, _list(records.get("memory_copy"))), 1):
            agents = _handle(record.get("dst_agent_id")), _handle(record.get("src_agent_id"))
            place = None, _handle(record.get("stream_id")) or 0
            name = self._string(self._named(record)[1])
            yield number, *self._place(record), *agents, _int(record.get("bytes")), *place, name, self._event(record)

    def _regions(self, records: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        number = 0
        for api in _APIS:
            for record in map(_object, _list(records.get(api))):
                number += 1
                category, name = self._named(record)
                if api == "marker_api":
                    category = "MARKER"
                    name = str(self._messages.get(_int(_object(record.get("correlation_id")).get("internal"))) or name)
                yield number, *self._place(record), self._string(name), self._event(record, category)

    def _allocations(self, records: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        for number, record in enumerate(map(_object, _list(records.get("memory_allocation"))), 1):
            name = self._named(record)[1].upper()
            kind = "FREE" if "FREE" in name else "ALLOC" if "ALLOC" in name else ""
            address = record.get("address")
            at = _handle(address) if isinstance(address, dict) else _address(address)
            about = _handle(record.get("agent_id")), kind, "REAL", at, _int(record.get("allocation_size"))
            yield number, *self._place(record), *about, self._event(record)

    def _add_counters(self) -> None:
        """The values of counters, and dispatches that are recorded with them alone."""
        counters = [
            (_handle(c.get("id")), _value(c.get("name"))) for c in map(_object, _list(self._content.get("counters")))
        ]
        self._add("info_pmc", counters)
        for record in map(_object, _list(_object(self._content.get("callback_records")).get("counter_collection"))):
            dispatch = _object(record.get("dispatch_data"))
            event = self._event_of.get(_int(_object(dispatch.get("dispatch_info")).get("dispatch_id")))
            if event is None:
                event = self._event(dispatch)
                own = self._dispatch({**dispatch, "thread_id": record.get("thread_id")})
                self._add("kernel_dispatch", [(event, *own, event)])
            values = [
                (event, _handle(v.get("counter_id")), v.get("value"))
                for v in map(_object, _list(record.get("records")))
            ]
            self._add("pmc_event", [(None, *row) for row in values if isinstance(row[2], int | float)])


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64 else None


def _handle(value: Any) -> int | None:
    """The number of an agent, queue, stream or counter."""
    return _int(_object(value).get("handle"))


def _address(value: Any) -> int | None:
    try:
        return _int(int(value, 16)) if isinstance(value, str) else _int(value)
    except ValueError:
        return None


def _value(value: Any) -> str | int | None:
    """What a column can hold."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else _int(value)
