"""The payload of an NVTX event as text: a number, JSON, or binary data decoded by its schema.

Binary payloads follow the NVTX payload extension (nvToolsExtPayload.h of NVTX 3.1 and later): a schema is a list of
entries, each with a type code, an offset, and flags. The export keeps the data after a header of 32 bytes: 8 of the
domain or count, then schema id, size of the data, and size of all, 8 bytes each. NCCL describes its calls this way.
"""

import json
import math
import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import as_integers
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings

_HEADER = struct.Struct("<QQQQ")
_FORMATS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q",  # char to unsigned long long
    11: "b", 12: "B", 13: "h", 14: "H", 15: "i", 16: "I", 17: "q", 18: "Q",  # int8 to uint64
    19: "f", 20: "d", 22: "Q", 23: "Q",  # float, double, size_t, address
    24: "I", 25: "B", 26: "H", 27: "I", 32: "B",  # characters, byte
    42: "e", 43: "f", 44: "d",  # float16 to float64
    80: "Q", 90: "I", 91: "i", 92: "I", 100: "I",  # registered string, category, colour type, colour, union selector
}  # fmt: skip
"""Type code to the format of `struct`, little-endian, with the sizes of 64-bit Linux."""

_TEXTS = {75: ("utf-8", 1), 76: ("utf-8", 1), 77: ("utf-16-le", 2), 78: ("utf-32-le", 4)}
_TIMESTAMPS = range(128, 256)
_CHARACTER = 1
_REGISTERED = 80
_ARRAY = 0x30
_FIXED, _ZERO_ENDED, _LENGTH_AT = 0x10, 0x20, 0x30
_POINTER = 0x02 | 0x04 | 0x08
_FIRST_SCHEMA = 1 << 24
_MOST_ITEMS = 1024
_DEEPEST = 4
_KNOWN = 4096  # decoded payloads remembered: most repeat


class _Entry(NamedTuple):
    number: int
    kind: int
    flags: int
    name: str
    detail: int
    offset: int | None


class Payloads:
    """Decodes binary payloads by the schemas of the export."""

    def __init__(self, source: RawSource, strings: Strings) -> None:
        self._source = source
        self._strings = strings
        self._schemas: dict[tuple[int | None, int], tuple[_Entry, ...]] | None = None
        self._enums: dict[int, dict[int, str]] = {}
        self._known: dict[tuple[int | None, bytes], str | None] = {}

    def decode(self, domain: int | None, data: bytes | str) -> str | None:
        """One binary payload as compact JSON of its entries by name, or None if it cannot be decoded."""
        raw = _as_bytes(data)
        if raw is None or len(raw) < _HEADER.size:
            return None
        key = (domain, raw)
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = self._decode(domain, raw)
        return self._known[key]

    def _decode(self, domain: int | None, raw: bytes) -> str | None:
        if self._schemas is None:
            self._schemas = self._load()
        _, schema, size, _ = _HEADER.unpack_from(raw)
        entries = self._entries(domain, schema)
        if entries is None:
            return None
        body = raw[_HEADER.size : _HEADER.size + size] if size else raw[_HEADER.size :]
        try:
            decoded = self._struct(domain, entries, body, 0)
        except (struct.error, ValueError, OverflowError, RecursionError):
            return None
        return json.dumps(decoded, separators=(",", ":"), ensure_ascii=False, allow_nan=False) if decoded else None

    def _entries(self, domain: int | None, schema: int) -> tuple[_Entry, ...] | None:
        schemas = self._schemas or {}
        return schemas.get((domain, schema)) or schemas.get((None, schema))

    def _load(self) -> dict[tuple[int | None, int], tuple[_Entry, ...]]:
        by_schema: dict[tuple[int | None, int], dict[int, _Entry]] = {}
        columns = ("domainId", "schemaId", "idx", "flags", "type", "name", "arrayOrUnionDetail", "offset")
        for domain, schema, index, flags, kind, name, detail, offset in small_rows(
            self._source, "NVTX_PAYLOAD_SCHEMA_ENTRIES", *columns
        ):
            number, at = whole(schema), whole(index)
            if number is None or at is None or whole(kind) is None:
                continue
            label = str(name) if name else f"entry {at}"
            entry = _Entry(at, int(kind), whole(flags) or 0, label, whole(detail) or 0, whole(offset))
            # the rows do not say of which process they are; the same domain and schema in another process is the same
            # code
            for key in ((whole(domain), number), (None, number)):
                by_schema.setdefault(key, {}).setdefault(at, entry)
        for _, schema, value, name in small_rows(
            self._source, "NVTX_PAYLOAD_ENUM_ENTRIES", "domainId", "schemaId", "value", "name"
        ):
            number, code = whole(schema), whole(value)
            if number is not None and code is not None and name:
                self._enums.setdefault(number, {}).setdefault(code, str(name))
        return {key: tuple(entries[i] for i in sorted(entries)) for key, entries in by_schema.items()}

    def _struct(self, domain: int | None, entries: tuple[_Entry, ...], body: bytes, depth: int) -> dict[str, Any]:
        if depth > _DEEPEST:
            raise ValueError("schemas nested too deep")
        fields: dict[str, Any] = {}
        numbers: dict[int, Any] = {}
        at = 0
        for entry in entries:
            size = self._size(entry)
            # an offset of 0 is written as null; other entries without one follow the last, aligned to their size
            if entry.offset is not None:
                at = entry.offset
            elif entry.number:
                align = min(size, 8) or 1
                at = -(-at // align) * align
            else:
                at = 0
            value, at = self._value(domain, entry, body, at, numbers, depth)
            numbers[entry.number] = value
            if value is not None:
                fields[entry.name] = value
        return fields

    def _size(self, entry: _Entry) -> int:
        if entry.kind in _TIMESTAMPS or entry.flags & _POINTER:
            return 8
        return struct.calcsize("<" + _FORMATS.get(entry.kind, "Q"))

    def _value(
        self, domain: int | None, entry: _Entry, body: bytes, at: int, numbers: dict[int, Any], depth: int
    ) -> tuple[Any, int]:
        if not 0 <= at <= len(body):
            raise ValueError("an entry lies outside the payload")
        if entry.flags & _POINTER:  # what it points to is not in the export
            return None, at + 8
        if entry.kind in _TEXTS:
            return _text(entry, body, at, numbers)
        if entry.kind >= _FIRST_SCHEMA:
            return self._nested(domain, entry, body, at, depth)
        form = "Q" if entry.kind in _TIMESTAMPS else _FORMATS.get(entry.kind)
        if form is None:
            return None, at + 8
        item = struct.Struct("<" + form)
        count = _length(entry, body, at, item.size, numbers)
        if count is None:
            return self._shown(entry, item.unpack_from(body, at)[0]), at + item.size
        values = [item.unpack_from(body, at + i * item.size)[0] for i in range(count)]
        end = at + (count + (entry.flags & _ARRAY == _ZERO_ENDED)) * item.size
        if entry.kind == _CHARACTER:
            return bytes(v & 0xFF for v in values).decode("utf-8", "replace").rstrip("\0"), end
        return [self._shown(entry, v) for v in values], end

    def _nested(self, domain: int | None, entry: _Entry, body: bytes, at: int, depth: int) -> tuple[Any, int]:
        if entry.kind in self._enums:
            code = struct.unpack_from("<i", body, at)[0]
            return self._enums[entry.kind].get(code, code), at + 4
        entries = self._entries(domain, entry.kind)
        if entries is None:  # an enum of which the export has no names
            code = struct.unpack_from("<i", body, at)[0] if len(body) - at >= 4 else None
            return code, min(at + 4, len(body))
        value = self._struct(domain, entries, body[at:], depth + 1)
        last = entries[-1]
        return value, min(len(body), at + (last.offset or 0) + self._size(last))

    def _shown(self, entry: _Entry, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if entry.kind == _REGISTERED:
            return self._strings.text(value) if value < 2**63 else None
        return value


def _length(entry: _Entry, body: bytes, at: int, size: int, numbers: dict[int, Any]) -> int | None:
    """The number of items of an array, or None for a scalar."""
    shape = entry.flags & _ARRAY
    room = (len(body) - at) // size
    if shape == _FIXED:
        count = entry.detail
    elif shape == _LENGTH_AT:
        length = numbers.get(entry.detail)
        count = length if isinstance(length, int) else 0
    elif shape == _ZERO_ENDED:
        count = next((i for i in range(room) if not any(body[at + i * size : at + (i + 1) * size])), room)
    else:
        return None
    if not 0 <= count <= room:
        raise ValueError("an array lies outside the payload")
    if count > _MOST_ITEMS:
        raise ValueError("an array is too long")
    return count


def _text(entry: _Entry, body: bytes, at: int, numbers: dict[int, Any]) -> tuple[str | None, int]:
    encoding, unit = _TEXTS[entry.kind]
    shape = entry.flags & _ARRAY
    if shape == _LENGTH_AT:
        length = numbers.get(entry.detail)
        count = length if isinstance(length, int) and length >= 0 else 0
    elif entry.detail:
        count = entry.detail
    elif shape == _ZERO_ENDED:
        room = (len(body) - at) // unit
        count = next((i for i in range(room) if not any(body[at + i * unit : at + (i + 1) * unit])), room)
    else:  # a pointer to a string elsewhere
        return None, at + 8
    end = at + count * unit
    if end > len(body):
        raise ValueError("a string lies outside the payload")
    return body[at:end].decode(encoding, "replace").partition("\0")[0], end


def _as_bytes(data: bytes | str) -> bytes | None:
    """Binary data as stored: bytes, or text in hexadecimal digits."""
    if isinstance(data, str):
        try:
            return bytes.fromhex(data)
        except ValueError:
            return None
    if len(data) >= 2 * _HEADER.size and all(b in b"0123456789abcdefABCDEF" for b in data):
        return bytes.fromhex(data.decode("ascii")) if len(data) % 2 == 0 else None
    return data


def payload_texts(batch: Any, strings: Strings, payloads: Payloads) -> Any:
    """The payloads of a batch of NVTX events as an Arrow array of strings, or None if no event has one."""
    result: Any = None
    for column in ("jsonText", "jsonTextId", "binaryData", *_NUMBERS):
        if column not in batch.schema.names:
            continue
        values = batch.column(column)
        if values.null_count == batch.num_rows:
            continue
        if column == "jsonTextId":
            texts = pa.array(
                [None if v is None else strings.text(v) for v in as_integers(values).to_pylist()], pa.string()
            )
        elif column == "binaryData":
            texts = _binary_texts(batch, values, payloads)
        elif column == "uint64Value" and values.type == pa.int64():
            texts = pc.cast(values.view(pa.uint64()), pa.string())
        elif column == "floatValue":
            texts = pc.cast(pc.cast(values, pa.float32(), safe=False), pa.string())
        else:
            texts = pc.cast(values, pa.string())
        result = texts if result is None else pc.coalesce(result, texts)
    return result


_NUMBERS = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")


def _binary_texts(batch: Any, values: Any, payloads: Payloads) -> Any:
    has_domain = "domainId" in batch.schema.names
    domains = as_integers(batch.column("domainId")).to_pylist() if has_domain else [None] * batch.num_rows
    pairs = zip(domains, values.to_pylist(), strict=True)
    return pa.array([None if data is None else payloads.decode(domain, data) for domain, data in pairs], pa.string())
