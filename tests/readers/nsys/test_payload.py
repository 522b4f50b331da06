from __future__ import annotations

import json
import struct

import pytest

ENTRIES = (
    "NVTX_PAYLOAD_SCHEMA_ENTRIES(domainId, schemaId, idx, flags, type, name TEXT, description TEXT, arrayOrUnionDetail,"
    " offset)"
)
ENUMS = "NVTX_PAYLOAD_ENUM_ENTRIES(domainId, schemaId, idx, name TEXT, value, isFlag)"
NVTX = "NVTX_EVENTS(start, end, eventType, text TEXT, globalTid, domainId, binaryData TEXT)"
SCHEMA = 16_777_223
OPERATION = 16_777_232
NCCL = [
    (1, SCHEMA, 0, None, 18, "NCCL communicator ID", None, None, None),
    (1, SCHEMA, 1, None, 22, "Message size [bytes]", None, None, 8),
    (1, SCHEMA, 2, None, OPERATION, "Reduction operation", None, None, 16),
]


def packed(body: bytes, schema: int = SCHEMA, size: int | None = None) -> bytes:
    return struct.pack("<QQQQ", 1, schema, len(body) if size is None else size, 32 + len(body)) + body


@pytest.fixture
def decoded(export, read, tid):
    def decode(data, entries=NCCL, enums=(), strings=None):
        tables = {NVTX: [(1, 2, 59, "r", tid(9, 9), 1, data)], ENTRIES: list(entries), ENUMS: list(enums)}
        (payload,) = read(export(tables, strings=strings)).column("ranges", "payload")
        return None if payload is None else json.loads(payload)

    return decode


def test_an_nccl_call(decoded):
    body = struct.pack("<QQi4x", 0xFEDCBA9876543210, 4096, 2)
    wanted = {"NCCL communicator ID": 0xFEDCBA9876543210, "Message size [bytes]": 4096, "Reduction operation": 2}
    assert decoded(packed(body)) == wanted
    assert decoded(packed(body).hex()) == wanted  # the same as text of hexadecimal digits


def test_an_enum_is_given_by_name(decoded):
    body = struct.pack("<QQi4x", 5, 4096, 2)
    assert decoded(packed(body), enums=[(1, OPERATION, 0, "Max", 2, 0)])["Reduction operation"] == "Max"


def test_types_arrays_and_strings(decoded):
    s = SCHEMA
    entries = [
        (1, s, 0, None, 12, "u8", None, None, None),
        (1, s, 1, None, 5, "aligned int", None, None, None),
        (1, s, 2, None, 19, "float", None, None, 8),
        (1, s, 3, 0x10, 3, "shorts", None, 2, 12),
        (1, s, 4, 0x10, 76, "fixed", None, 4, 16),
        (1, s, 5, 0x30, 12, "counted", None, 0, 20),
        (1, s, 6, 0x20, 75, "ended", None, None, 23),
        (1, s, 7, None, 80, "registered", None, None, 32),
        (1, s, 8, 0x02, 5, "pointer", None, None, 40),
    ]
    body = struct.pack("<B3xif2h4s3B9sQQ", 3, -5, 1.5, 7, -8, b"ab\0\0", 1, 2, 3, b"hello\0\0\0\0", 11, 99)
    assert decoded(packed(body, s), entries, strings={11: "a name"}) == {
        "u8": 3, "aligned int": -5, "float": 1.5, "shorts": [7, -8], "fixed": "ab", "counted": [1, 2, 3],
        "ended": "hello", "registered": "a name",
    }  # fmt: skip


def test_a_nested_schema(decoded):
    inner = SCHEMA + 1
    entries = [
        (1, SCHEMA, 0, None, 5, "a", None, None, None),
        (1, SCHEMA, 1, None, inner, "inner", None, None, 8),
        (1, inner, 0, None, 5, "x", None, None, None),
        (1, inner, 1, None, 5, "y", None, None, 4),
    ]
    assert decoded(packed(struct.pack("<i4xii", 1, 2, 3)), entries) == {"a": 1, "inner": {"x": 2, "y": 3}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        "no hexadecimal digits",
        packed(b"", SCHEMA),
        packed(b"\1\2\3", SCHEMA),
        packed(bytes(24), 12345),
        packed(bytes(8), SCHEMA, size=1 << 63),
    ],
)
def test_bad_data_gives_no_payload(decoded, data):
    assert decoded(data) is None


def test_bad_schemas_give_no_payload(decoded):
    body = packed(bytes(24))
    for entry in (
        (1, SCHEMA, 0, None, 5, "far", None, None, 1 << 40),
        (1, SCHEMA, 0, None, 5, "negative", None, None, -4),
        (1, SCHEMA, 0, 0x10, 5, "long", None, 1 << 50, None),
        (1, SCHEMA, 0, None, SCHEMA, "itself", None, None, None),
        (1, SCHEMA, 0, None, None, "no type", None, None, None),
    ):
        assert decoded(body, [entry]) is None


def test_numbers_that_json_does_not_know(decoded):
    entries = [(1, SCHEMA, 0, None, 20, "d", None, None, None)]
    assert decoded(packed(struct.pack("<d", float("nan"))), entries) == {"d": "nan"}
