"""Messages of Perfetto's trace format, written by hand and in columns.

Field numbers are from Perfetto's `trace_packet.proto`, `track_descriptor.proto`, `process_descriptor.proto`,
`thread_descriptor.proto`, `track_event.proto` and `debug_annotation.proto`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from alltrace.export.arguments import Value
from alltrace.export.record_bytes import FIXED64, TEXT, VARINT, Pool
from alltrace.trace.arrays import Int64

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
SEQUENCE = 1
FLOW_BITS = 40
"""A flow from a call to its work has the rank, from 1 on, above this many bits, and the row of the launch below."""
_ANNOTATION = 4
_CORRELATION = 3000
_UNSIGNED = 1 << 64


def varint(number: int) -> bytes:
    """A number as protobuf writes it; a negative one as 64 bits."""
    number %= _UNSIGNED
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes(encoded) + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def packet(body: bytes) -> bytes:
    return field(1, body + field(10, SEQUENCE))


class PerfettoForm:
    def text(self, text: str) -> bytes:
        data = utf8(text)
        return varint(len(data)) + data

    def arguments(self, values: Mapping[str, Value]) -> bytes:
        return b"".join(field(_ANNOTATION, field(10, utf8(name)) + _value(value)) for name, value in values.items())


def _value(value: Value) -> bytes:
    if isinstance(value, list):
        return b"".join(field(12, _value(v)) for v in value)
    return field(4, value) if isinstance(value, int) else field(6, utf8(value))


def sizes(numbers: Any) -> Int64:
    """The bytes of each number as a varint."""
    counts = np.ones(np.shape(numbers), np.int64)
    for bits in range(7, 63, 7):
        counts += np.asarray(numbers) >= np.int64(1) << bits
    return np.where(np.asarray(numbers) < 0, 10, counts)


class Event(NamedTuple):
    kind: int  # `BEGIN`, `END`, `INSTANT` or `COUNTER`
    names: Int64 | None = None  # int64 array of n numbers in the pool, or None
    categories: Int64 | None = None  # as `names`
    flows: tuple[Int64, ...] = ()  # Int64 arrays of n flows
    few: Int64 | None = None  # int64 array of n numbers in the pool of annotations, or None
    many: tuple[tuple[str, Int64], ...] = ()  # values of n by the names of further annotations
    values: Int64 | None = None  # int64 array of n, the bits of the values of a counter, or None
    work: Int64 | None = None  # int64 array of n ids of GPU events that these calls launched, or None

    def shape(self) -> tuple[Any, ...]:
        there = (self.names is None, self.categories is None, self.few is None, self.values is None, self.work is None)
        return (self.kind, *there, len(self.flows), tuple(name for name, _ in self.many))

    def packets(self, times: Int64, uuids: Int64, pool: Pool) -> tuple[list[Any], list[Any]]:
        offsets = pool.arrays()[1]
        inner = 3 + sizes(uuids)
        form: list[Any] = [varint(9 << 3) + varint(self.kind) + varint(11 << 3), VARINT]
        columns: list[Any] = [uuids]
        for number, codes in ((22, self.categories), (23, self.names)):
            if codes is not None:
                inner = inner + 2 + offsets[codes + 1] - offsets[codes]
                form += [varint(number << 3 | 2), TEXT]
                columns.append(codes)
        for flow in self.flows:
            inner = inner + 10
            form += [varint(47 << 3 | 1), FIXED64]
            columns.append(flow)
        if self.values is not None:
            inner = inner + 10
            form += [varint(44 << 3 | 1), FIXED64]
            columns.append(self.values)
        if self.work is not None:
            key, length = varint(_CORRELATION << 3 | 2), 1 + sizes(self.work)
            inner = inner + len(key) + sizes(length) + length
            form += [key, VARINT, varint(1 << 3), VARINT]
            columns += [length, self.work]
        for name, numbers in self.many:
            head = field(10, utf8(name)) + varint(4 << 3)
            length = len(head) + sizes(numbers)
            inner = inner + 1 + sizes(length) + length
            form += [varint(_ANNOTATION << 3 | 2), VARINT, head, VARINT]
            columns += [length, numbers]
        if self.few is not None:
            inner = inner + offsets[self.few + 1] - offsets[self.few]
            form.append(TEXT)
            columns.append(self.few)
        outer = 1 + sizes(times) + 2 + 1 + sizes(inner) + inner
        sequence = field(10, SEQUENCE) + varint(11 << 3 | 2)
        return [outer, times, inner, *columns], [
            varint(1 << 3 | 2),
            VARINT,
            varint(8 << 3),
            VARINT,
            sequence,
            VARINT,
            *form,
        ]
