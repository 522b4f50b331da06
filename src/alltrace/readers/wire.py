"""The wire format of protocol buffers, as reports need it (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from alltrace.trace.names import text_of_bytes

Value = int | float | memoryview
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LAST_SHORT = 0x7F


class WireError(ValueError):
    """Bytes that are not a message."""


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at `at` and the place after it. Raises `WireError`: it does not end, or not within ten bytes."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number does not end")


def fields(data: memoryview) -> Iterator[tuple[int, int, Value]]:
    """Number, type and value of each field of a message in order, messages raw. Raises `WireError`: it is none."""
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key > _LAST_SHORT:  # numbers of one byte, which most are, need no call
            key, at = varint(data, at - 1)
        kind = key & 7
        if kind in (_VARINT, _LENGTH):
            if at == end:
                raise WireError("a field is cut short")
            size = data[at]
            at += 1
            if size > _LAST_SHORT:
                size, at = varint(data, at - 1)
            if kind == _VARINT:
                yield key >> 3, kind, size
                continue
        elif kind in (_FIXED32, _FIXED64):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"a field of the unknown wire type {kind}")
        if size > end - at:
            raise WireError("a field is longer than its message")
        yield key >> 3, kind, data[at : at + size]
        at += size


def number_of(part: Value, *, real: bool) -> int | float:
    """The number in a field of four or eight bytes, a float if `real`, or in a varint."""
    if not isinstance(part, memoryview):
        return part
    form = {4: "<f" if real else "<I", 8: "<d" if real else "<Q"}.get(len(part))
    if form is None:
        raise WireError("a number of neither four nor eight bytes")
    return float(struct.unpack(form, part)[0]) if real else int(struct.unpack(form, part)[0])


def first(parts: Iterable[tuple[int, int, Value]], number: int) -> Value | None:
    """The first field of this number; None if there is none."""
    return next((value for n, _, value in parts if n == number), None)


def whole(value: Value | None) -> int:
    """A whole number; 0 of a field that is not there."""
    return 0 if value is None else int(number_of(value, real=False))


def message(value: Value) -> memoryview:
    """A message within a message. Raises `WireError`: the field is a number."""
    if not isinstance(value, memoryview):
        raise WireError("a number stands where a message should")
    return value


def text(value: Value | None) -> str:
    """A text; empty of a field that is not there."""
    return "" if value is None else text_of_bytes(bytes(message(value)))
