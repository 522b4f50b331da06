"""Decodes the planes of a trace: field numbers are from `third_party/tsl/tsl/profiler/protobuf/xplane.proto` of openxla/xla."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from alltrace.readers.wire import fields, first, message, number_of, text, whole

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
