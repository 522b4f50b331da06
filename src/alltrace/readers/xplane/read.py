"""Opens a trace of XProf as canonical tables: work on GPUs, calls, and annotations of program and XLA."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.spool import NameIds, dictionary_tables
from alltrace.readers.wire import WireError, fields, first, message, number_of, text, whole
from alltrace.trace.errors import InputError
from alltrace.trace.launches import short_name
from alltrace.trace.schema import EVENT_TABLES, TABLES

# Decodes the planes of a trace: field numbers are from `third_party/tsl/tsl/profiler/protobuf/xplane.proto` of
# openxla/xla.

Stat = int | float | str
_SIGN = 1 << 63


class Event(NamedTuple):
    """An event of a line."""

    name: str  # its name
    start_ps: int  # its start relative to its line's, picoseconds
    duration_ps: int  # its duration
    stats: dict[str, Stat]  # what is known of it, by name


class Line(NamedTuple):
    """A thread or stream."""

    number: int  # its id
    name: str  # its name
    timestamp_ns: int  # what its events count from
    events: list[memoryview]  # its events, as they are in the file


@dataclass(frozen=True)
class Plane:
    """What was recorded on a device or on the host."""

    name: str  # such as `/device:GPU:0` or `/host:CPU`
    lines: list[Line]  # its lines
    stats: dict[str, Stat]  # what is known of it, by name
    _names: dict[int, str]
    _stat_names: dict[int, str]

    def events(self, line: Line) -> Iterator[Event]:
        """The events of a line, in the order of the file."""
        for part in line.events:
            number = start = duration = 0
            stats: dict[str, Stat] = {}
            for key, _, value in fields(part):
                if key == 1:
                    number = whole(value)
                elif key == 2:
                    start = whole(value)
                elif key == 3:
                    duration = whole(value)
                elif key == 4:
                    stats |= dict(_stat(message(value), self._stat_names))
            yield Event(self._names.get(number, ""), start, duration, stats)


def planes_of(data: memoryview) -> Iterator[Plane]:
    """The planes of a trace. Raises `WireError`: the bytes are not such a trace."""
    for key, _, value in fields(data):
        if key == 1:
            yield _plane(message(value))


def hosts_of(data: memoryview) -> list[str]:
    """The hosts that the trace names."""
    return [text(value) for key, _, value in fields(data) if key == 4]


def _plane(part: memoryview) -> Plane:
    parts = list(fields(part))
    names, stat_names = (_metadata(message(v) for k, _, v in parts if k == number) for number in (4, 5))
    stats = dict(pair for k, _, v in parts if k == 6 for pair in _stat(message(v), stat_names))
    lines = [_line(message(v)) for k, _, v in parts if k == 3]
    return Plane(text(first(parts, 2)), lines, stats, names, stat_names)


def _metadata(entries: Iterator[memoryview]) -> dict[int, str]:
    """Names by their number: entries of a map with the name as the values' second field."""
    names: dict[int, str] = {}
    for entry in entries:
        pair = list(fields(entry))
        about = first(pair, 2)
        if about is not None:
            parts = list(fields(message(about)))
            names[whole(first(pair, 1))] = text(first(parts, 2))
    return names


def _line(part: memoryview) -> Line:
    parts = list(fields(part))
    name = text(first(parts, 11)) or text(first(parts, 2))
    return Line(whole(first(parts, 1)), name, whole(first(parts, 3)), [message(v) for k, _, v in parts if k == 4])


def _stat(part: memoryview, names: dict[int, str]) -> Iterator[tuple[str, Stat]]:
    name = ""
    value: Stat | None = None
    for key, _, v in fields(part):
        if key == 1:
            name = names.get(whole(v), "")
        elif key == 2:
            value = float(number_of(v, real=True))
        elif key in (3, 4):
            number = whole(v)
            value = number - 2 * _SIGN if key == 4 and number >= _SIGN else number
        elif key == 5:
            value = text(v)
        elif key == 7:
            value = names.get(whole(v), "")
    if name and value is not None:
        yield name, value


EXPECTED = "a trace of XProf (.xplane.pb), as jax.profiler writes it"
_EXPERIMENTAL = "the reader of XProf traces is experimental: it was tested with traces of few JAX versions"
FILLED = ("kernels", "copies", "api", "ranges", "frames")
_MOST_BYTES = 8 << 30
_DEVICE = re.compile(r"/device:GPU:(\d{1,6})")
_HOST = "/host:CPU"
_ABSOLUTE_NS = 10**17  # later times are of the epoch; others count from the start of the profile
_SIZES = re.compile(r"\b(grid|block):(\d{1,9}),(\d{1,9}),(\d{1,9})")
_NUMBER = {
    "registers": re.compile(r"\bregs:(\d{1,9})"),
    "static_shared_memory": re.compile(r"\b(?:static_shared|group_mem):(\d{1,9})"),
    "dynamic_shared_memory": re.compile(r"\bdynamic_shared:(\d{1,9})"),
}
_COPY = re.compile(r"\bkind:(\w+)")
_BYTES = re.compile(r"\bsize:(\d{1,18})")
_COPIES = {
    "HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "HtoH": "HtoH", "PtoP": "PtoP",
    "MemcpyH2D": "HtoD", "MemcpyD2H": "DtoH", "MemcpyD2D": "DtoD", "MemcpyP2P": "PtoP",
}  # fmt: skip
_DRIVER = re.compile(r"cu[A-Z]|hipModule|hipDrv")
_ROWS = 1 << 16
_INT64 = 1 << 63


class XplaneReader:
    """A trace of XProf, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        view = memoryview(data)
        self._planes = list(planes_of(view))
        self._hosts = hosts_of(view)
        self._names = NameIds()
        self._devices = [(int(m[1]), p) for p in self._planes if (m := _DEVICE.fullmatch(p.name)) and p.lines]
        self._threads: list[Line] = [line for p in self._planes if p.name == _HOST for line in p.lines]
        started = next((s for p in self._planes if isinstance(s := p.stats.get("profile_start_time"), int)), None)
        stamps = [line.timestamp_ns for p in (*(p for _, p in self._devices), *self._host()) for line in p.lines]
        first = min(stamps, default=0)
        self._zero = first if first >= _ABSOLUTE_NS else 0
        utc = self._zero or started
        used = [ordinal for ordinal, _ in self._devices]
        process = ReportProcess(0, 0, "", gpu=bool(used), device_ordinal=min(used, default=None))
        self.report: Report = Report(
            str(path),
            "xplane",
            "XProf",
            host=self._hosts[0] if len(self._hosts) == 1 else None,
            utc_ns=utc if utc is None or utc < _INT64 else None,
            processes=(process,),
            tables=FILLED,
            warnings=(ReportWarning(_EXPERIMENTAL),),
        )

    def _host(self) -> list[Plane]:
        return [p for p in self._planes if p.name == _HOST]

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted canonical tables; see `ReportReader.stream`.

        Raises `InputError`: an event is damaged.
        """
        for table in (t for t in EVENT_TABLES if t in tables and t in FILLED):
            schema = TABLES[table].arrow_schema()
            rows: list[dict[str, Any]] = []
            try:
                for row in self._device_rows(table) if table in ("kernels", "copies") else self._host_rows(table):
                    rows.append(row)
                    if len(rows) == _ROWS:
                        yield table, pa.RecordBatch.from_pylist(rows, schema)
                        rows = []
            except WireError as error:
                raise InputError(
                    self._path, found=f"it is damaged: {error}", expected=EXPECTED, advice="copy it again"
                ) from error
            if rows:
                yield table, pa.RecordBatch.from_pylist(rows, schema)

    def _device_rows(self, table: str) -> Iterator[dict[str, Any]]:
        for device, (_, plane) in enumerate(self._devices):
            for line in plane.lines:
                if not line.name.startswith("Stream"):  # XProf derives the others from these
                    continue
                for event in plane.events(line):
                    copy = event.stats.get("memcpy_details")
                    fill = event.stats.get("memset_details")
                    if ((copy or fill) is not None) != (table == "copies"):
                        continue
                    row = {
                        **self._times(line, event),
                        "process": 0,
                        "device": device,
                        "stream": _int64(line.number),
                        "correlation": _int64(event.stats.get("correlation_id")),
                    }
                    about = str(copy or fill or event.stats.get("kernel_details") or "")
                    yield row | (
                        _copied(about, fill is not None) if table == "copies" else self._kernel(event.name, about)
                    )

    def _kernel(self, name: str, about: str) -> dict[str, Any]:
        name = name.removesuffix(".kd")  # a symbol of AMD's code objects
        row: dict[str, Any] = {"name": self._names.add(name), "short_name": self._names.add(short_name(name))}
        for what, x, y, z in _SIZES.findall(about):
            row |= {f"{what}_{axis}": int(v) for axis, v in zip("xyz", (x, y, z), strict=True)}
        for column, pattern in _NUMBER.items():
            if (match := pattern.search(about)) is not None:
                row[column] = int(match[1])
        return row

    def _operations(self) -> dict[Stat, dict[str, Stat]]:
        """What kernels say of their operation, by correlation id: older versions leave it out of calls."""
        operations: dict[Stat, dict[str, Stat]] = {}
        for _, plane in self._devices:
            for line in plane.lines:
                for event in plane.events(line):
                    if "hlo_op" in event.stats and "correlation_id" in event.stats:
                        operations.setdefault(event.stats["correlation_id"], event.stats)
        return operations

    def _host_rows(self, table: str) -> Iterator[dict[str, Any]]:
        number = 0
        operations = self._operations() if table == "ranges" else {}
        for plane in self._host():
            for line in plane.lines:
                thread = next(n for n, each in enumerate(self._threads) if each is line)
                for event in plane.events(line):
                    number += 1
                    place = {**self._times(line, event), "process": 0, "thread": thread}
                    call = event.stats.get("correlation_id")
                    if call is not None:
                        if table == "api":
                            kind = "driver" if _DRIVER.match(event.name) else "runtime"
                            yield {
                                **place,
                                "correlation": _int64(call),
                                "name": self._names.add(event.name),
                                "kind": kind,
                            }
                        elif table == "ranges" and "hlo_op" in (stats := {**operations.get(call, {}), **event.stats}):
                            yield self._range(place, _thunk(stats), number, "TSL")
                    elif event.name.startswith("$"):  # a call of the interpreter
                        if table == "frames":
                            yield {**place, "name": self._names.add(event.name[1:])}
                    elif table == "ranges":
                        yield self._range(place, _annotated(event), number, None)

    def _range(self, place: dict[str, Any], name: str, number: int, domain: str | None) -> dict[str, Any]:
        of = None if domain is None else self._names.add(domain)
        return {**place, "name": self._names.add(name), "kind": "pushpop", "domain": of, "source_row": number}

    def _times(self, line: Line, event: Event) -> dict[str, int]:
        base = line.timestamp_ns - self._zero
        start, end = event.start_ps // 1000, (event.start_ps + event.duration_ps) // 1000
        if not -_INT64 <= base + start <= base + end < _INT64:
            raise WireError("an event has an implausible time")
        return {"start": base + start, "end": base + end}

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        threads = [
            {
                "thread": n,
                "process": 0,
                "tid": _int64(line.number),
                "name": self._names.add(line.name) if line.name else None,
            }
            for n, line in enumerate(self._threads)
        ]
        rows: dict[str, list[dict[str, Any]]] = {
            "processes": [{"process": 0, "pid": 0}],
            "threads": threads,
            "devices": [self._device(n, ordinal, plane) for n, (ordinal, plane) in enumerate(self._devices)],
        }
        return dictionary_tables(rows, self._names)

    def _device(self, row: int, ordinal: int, plane: Plane) -> dict[str, Any]:
        def number(name: str, times: int = 1, most: int = 1 << 31) -> int | None:
            value = plane.stats.get(name)
            return value * times if isinstance(value, int) and 0 <= value * times < most else None

        vendor = plane.stats.get("device_vendor")
        return {
            "device": row,
            "ordinal": ordinal,
            "gpu": ordinal,
            "name": self._names.add(vendor) if isinstance(vendor, str) and vendor else None,
            "sm_count": number("core_count"),
            "memory_bytes": number("memory_size", most=_INT64),
            "memory_bandwidth_bytes_per_s": number("memory_bandwidth", most=_INT64),
            "clock_hz": number("clock_rate", 1000, _INT64),
            "compute_major": number("compute_cap_major"),
            "compute_minor": number("compute_cap_minor"),
        }

    def warnings(self) -> tuple[ReportWarning, ...]:
        """Nothing: see `ReportReader.warnings`."""
        return ()

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give: the events of the planes."""
        devices = (
            sum(len(line.events) for _, p in self._devices for line in p.lines)
            if {"kernels", "copies"} & set(tables)
            else 0
        )
        host = sum(len(line.events) for line in self._threads) if {"api", "ranges", "frames"} & set(tables) else 0
        return devices + host

    def close(self) -> None:
        """Release the trace."""
        self._planes, self._devices, self._threads = [], [], []


def _copied(about: str, fill: bool) -> dict[str, Any]:
    kind, size = _COPY.search(about), _BYTES.search(about)
    word = "memset" if fill else _COPIES.get(kind[1], "unknown") if kind else "unknown"
    return {"kind": word, "bytes": int(size[1]) if size else None}


def _thunk(stats: dict[str, Stat]) -> str:
    """The range that XLA has around a launch, from what XProf keeps of it."""
    words = [("name", "name"), ("hlo_op", "hlo_op"), ("hlo_module", "hlo_module"), ("program_id", "program_id")]
    return "Thunk:#" + ",".join(f"{word}={stats[stat]}" for word, stat in words if stat in stats) + "#"


def _annotated(event: Event) -> str:
    """The name of a range, with the number of a step as TSL writes it."""
    step = event.stats.get("step_num")
    return event.name if step is None else f"{event.name}#step_num={step}#"


def _int64(value: Any) -> int | None:
    """A number in 64 bits with a sign; None if it is not one."""
    if not isinstance(value, int):
        return None
    return value if value < _INT64 else value - 2 * _INT64


def open_report(path: Path) -> XplaneReader:
    """Open a trace. Raises `InputError`: it cannot be read, or is damaged."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(path, found="it is larger than 8 GiB", expected=EXPECTED, advice="profile fewer steps")
        return XplaneReader(path, path.read_bytes())
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=EXPECTED) from error
    except WireError as error:
        problem = f"it is damaged or cut short: {error}"
        raise InputError(path, found=problem, expected=EXPECTED, advice="copy it again, or profile again") from error
