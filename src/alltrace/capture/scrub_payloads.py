"""Which payloads of NVTX events may be shared: the fields that NCCL describes its calls with, and no other.

A payload holds what a program puts there. NCCL's are in `jsonText` of its ranges, or in `binaryData` with a schema in
`NVTX_PAYLOAD_SCHEMA_ENTRIES`; programs' also are numbers, or text in `StringIds` (`jsonTextId`), and an export with
`--dynamic-tables` has a table for each schema.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

_FIELDS = frozenset(
    """
    ncclcommunicatorid noofranks rank cudadevice messagesizebytes bytes reductionoperation root peerrank peer datatype
    count commhash commrank commsize seqnumber apiid operationid channelid localid
    """.split()
)
"""The names of NCCL's fields in all versions, by their letters."""
_NOT_LETTERS = re.compile(r"[^a-z]")
_WORD = re.compile(r"[A-Za-z0-9_]{1,32}")
_SCHEMA_ID = struct.Struct("<8xQ")
_TEXTS = ("jsonText", "jsonTextId", "binaryData")
_NUMBERS = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
_DYNAMIC = ("DYNAMIC_NVTX", "NVTX_EVENTS_PAYLOAD_SCHEMAS")
_SCHEMAS = "NVTX_PAYLOAD_SCHEMA_ENTRIES"


def clean_payloads(database: sqlite3.Connection, tables: Collection[str], of_nccl: str) -> int:
    """Remove payloads but for NCCL's fields; returns how many events lost something."""
    # `database`: the export. `tables`: its tables. `of_nccl`: a condition for the rows of `NVTX_EVENTS` that are
    # NCCL's.
    for table in tables:
        if table.startswith(_DYNAMIC):
            database.execute(f'DROP TABLE "{table}"')
    there = {name for _, name, *_ in database.execute("PRAGMA table_info(NVTX_EVENTS)")}
    columns = [c for c in (*_TEXTS, *_NUMBERS) if c in there]
    if not columns:
        return 0
    new_values: dict[str, str] = dict.fromkeys(columns, "NULL")
    database.create_function("nccl_fields", 1, nccl_fields, deterministic=True)
    schemas = _nccl_schemas(database) if _SCHEMAS in tables else set()
    database.create_function("nccl_binary", 2, lambda domain, data: data if _schema(domain, data) in schemas else None)
    text = "jsonText"
    if "jsonTextId" in there and "StringIds" in tables:
        text = (
            f"coalesce({text}, (SELECT value FROM StringIds WHERE id = jsonTextId))" if "jsonText" in there else "NULL"
        )
    if "jsonText" in there:
        new_values["jsonText"] = f"CASE WHEN {of_nccl} THEN nccl_fields({text}) END"
    if {"binaryData", "domainId"} <= there:
        new_values["binaryData"] = f"CASE WHEN {of_nccl} THEN nccl_binary(domainId, binaryData) END"
    changed = " OR ".join(f"({column} IS NOT {value})" for column, value in new_values.items())
    assigned = ", ".join(f"{column} = {value}" for column, value in new_values.items())
    return database.execute(f"UPDATE NVTX_EVENTS SET {assigned} WHERE {changed}").rowcount


def _is_field(name: object) -> bool:
    return _NOT_LETTERS.sub("", str(name).lower()) in _FIELDS


def nccl_fields(text: object) -> str | None:
    """A JSON payload with NCCL's fields alone, as it is if it has no other; None without any."""
    try:
        payload = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    fields = {
        name: value
        for name, value in payload.items()
        if _is_field(name) and (isinstance(value, (int, float)) or (isinstance(value, str) and _WORD.fullmatch(value)))
    }
    return str(text) if fields == payload and payload else json.dumps(fields) if fields else None


def _nccl_schemas(database: sqlite3.Connection) -> set[tuple[object, object]]:
    only_fields: dict[tuple[object, object], bool] = {}
    for domain, schema, name in database.execute(f"SELECT domainId, schemaId, name FROM {_SCHEMAS}"):
        only_fields[domain, schema] = only_fields.get((domain, schema), True) and _is_field(name)
    return {key for key, only in only_fields.items() if only}


def _schema(domain: object, data: object) -> tuple[object, object] | None:
    """The schema of a binary payload, which the export writes as bytes or as hexadecimal digits."""
    try:
        raw = bytes.fromhex(data) if isinstance(data, str) else data if isinstance(data, bytes) else b""
    except ValueError:
        return None
    return (domain, _SCHEMA_ID.unpack_from(raw)[0]) if len(raw) >= _SCHEMA_ID.size else None
