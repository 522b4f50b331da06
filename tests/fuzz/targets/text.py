"""Writing: the compiled writers of CSV and of export records, against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.cli.csv_text import to_csv
from alltrace.export.record_bytes import FIXED64, INT, MICROSECONDS, TEXT, VARINT, Pool, Template
from tests.fuzz.fields import Fields

_TYPES = (pa.int64(), pa.int32(), pa.int8(), pa.uint32(), pa.string(), pa.dictionary(pa.int32(), pa.string()))
_KINDS = (INT, MICROSECONDS, VARINT, FIXED64, TEXT)
_TEXTS = (
    "",
    "a",
    ",",
    '"',
    'say "so"',
    "line\nbreak",
    "\r",
    "é核🚀",
    "x" * 33,
    " ",
    "\x00",
    "12345678",
    "1234567890123456",
)
_MOST = 200


def corpus() -> list[bytes]:
    """Columns of each type and records of each kind, with numbers of every length."""
    draw = Random(1)
    found = [bytes(8)]
    for count in (1, 2, 7, 40):
        for columns in (1, 2, 5):
            head = b"".join(
                n.to_bytes(2, "little") for n in (count, columns, *(draw.randrange(6) for _ in range(columns)))
            )
            body = b"".join(_column(count, draw) for _ in range(columns))
            found.append(head + body)
    return found


def _column(count: int, draw: Random) -> bytes:
    numbers = [draw.choice((1, -1)) * draw.randrange(10 ** draw.randrange(19)) for _ in range(count)]
    return np.array(numbers, "<i8").tobytes() + bytes(draw.randrange(256) for _ in range(count))


def run(data: bytes) -> None:
    """The rows in `data` as CSV and as records."""
    fields = Fields(data)
    count, columns = 1 + fields.number(_MOST), 1 + fields.number(6)
    wanted = [fields.number(1 << 16) for _ in range(columns)]
    numbers, more = [], []
    for _ in range(columns):
        numbers.append(fields.int64(count))
        more.append(fields.small(count))
    _csv([_TYPES[n % len(_TYPES)] for n in wanted], numbers, more, wanted[0])
    _records([_KINDS[n % len(_KINDS)] for n in wanted], numbers, more)


def _csv(types: Sequence[Any], numbers: Sequence[Any], more: Sequence[Any], offset: int) -> None:
    arrays = []
    for kind, values, flags in zip(types, numbers, more, strict=True):
        if pa.types.is_integer(kind):
            given: list[object] = values.astype(kind.to_pandas_dtype()).tolist()
        else:
            given = [_TEXTS[f % len(_TEXTS)] for f in flags.tolist()]
        nulls = flags[0] % 2 == 1
        given = [None if nulls and f % 5 == 0 else v for v, f in zip(given, flags.tolist(), strict=True)]
        arrays.append(
            pa.array(given, pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(given, kind)
        )
    table = pa.table(arrays, names=[f"c{n}" for n in range(len(arrays))])
    first = offset % table.num_rows
    rows = list(zip(*(column.slice(first).to_pylist() for column in arrays), strict=True))
    lines = [table.column_names, *rows]
    # an only cell that is empty is quoted: a line with nothing on it is not a row
    expected = "".join((",".join(map(_cell, line)) or '""' * (len(line) == 1)) + "\n" for line in lines)
    assert to_csv(table.slice(first)) == expected


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _records(kinds: Sequence[int], numbers: Sequence[Any], more: Sequence[Any]) -> None:
    pool = Pool()
    texts = [pool.add(text) for text in _TEXTS]
    fields: list[Any] = []
    columns: list[Any] = []
    for kind, values, flags in zip(kinds, numbers, more, strict=True):
        fields += ["<", kind]
        chosen = np.array(texts)[flags % len(texts)]
        column = np.where(flags % 5 == 0, -1, chosen) if kind == TEXT else values
        columns.append(int(column[0]) if flags[0] % 3 == 0 else column)  # one value for all, or one for each
    count = len(numbers[0])
    made = Template(pool, fields).records(count, *columns)
    expected = []
    for row in range(count):
        values = [column if isinstance(column, int) else int(column[row]) for column in columns]
        expected.append(b"".join(b"<" + _field(kind, value) for kind, value in zip(kinds, values, strict=True)))
    assert made.data.tobytes() == b"".join(expected)
    assert made.lengths.tolist() == [len(record) for record in expected]


def _field(kind: int, value: int) -> bytes:
    if kind == TEXT:
        return _TEXTS[value].encode() if value >= 0 else b""
    if kind == INT:
        return str(value).encode()
    if kind == MICROSECONDS:
        return f"{'-' if value < 0 else ''}{abs(value) // 1000}.{abs(value) % 1000:03}".encode()
    unsigned = value % (1 << 64)
    if kind == FIXED64:
        return unsigned.to_bytes(8, "little")
    groups = [unsigned & 127]
    while unsigned := unsigned >> 7:
        groups.append(unsigned & 127)
    return bytes(g | 128 for g in groups[:-1]) + bytes(groups[-1:])
