"""Values of metrics: a value of the metric, and one for each instance, such as an address of the code."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from alltrace.readers.wire import WireError, fields, message, number_of, text, whole
from alltrace.trace.errors import InputError
from alltrace.trace.launches import Instance, Metric

EXPECTED = "a report of Nsight Compute (.ncu-rep)"
_LONG, _DOUBLE = 9, 3 << 3 | 1
_FLOAT64 = struct.Struct("<d").unpack_from
_INSTANCE = 3


def value_of(part: memoryview) -> Metric | None:
    """A metric's value: text, a float of either width, or a whole number."""
    if len(part) == _LONG and part[0] == _DOUBLE:  # what most are
        return float(_FLOAT64(part, 1)[0])
    for key, _, value in fields(part):
        if key == 1:
            return text(value)
        if key in (2, 3):
            return number_of(value, real=True)
        if key in (4, 5):
            return whole(value)
    return None


class Instances(Mapping[str, Sequence["Instance"]]):
    """Values of instances by metric, in the report's order, decoded on demand; metrics without instances are left out.

    `path`: the report, for messages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, memoryview] = {}

    def add(self, name: str, part: memoryview) -> None:
        """Add the message of a metric, if it has instances."""
        if any(key == _INSTANCE for key, _, _ in fields(part)):
            self._parts[name] = part

    def __getitem__(self, name: str) -> Sequence[Instance]:
        part = self._parts[name]
        try:
            return [_instance(message(value)) for key, _, value in fields(part) if key == _INSTANCE]
        except WireError as error:
            raise InputError(
                self._path,
                found=f"values of {name!r} are damaged: {error}",
                expected=EXPECTED,
                advice="copy it again, or profile again",
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _instance(part: memoryview) -> Instance:
    values = {key: value_of(message(value)) for key, _, value in fields(part)}
    return values.get(1), values.get(2)
