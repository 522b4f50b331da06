"""Tables of one page as Python rows.

What an export says of the machine and of itself is in tables of a few rows. To set up the columns of a batch for one
takes three times as long as to read it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.core import sqlite as core
from alltrace.readers.nsys.sqlite.pages import TreePages
from alltrace.readers.nsys.sqlite.schema import Table
from alltrace.trace.names import text_of_bytes

_KINDS = {"int64": core.INT64, "float64": core.FLOAT64, "string": core.BYTES, "binary": core.BYTES}
_ANY_ROW = np.array([np.iinfo(np.int64).max])
_UNUSED = np.empty(0, np.int8), np.empty(0, np.int16), np.empty(0, np.int32)  # no column is narrower than 64 bits


def rows_of_page(tree: TreePages, table: Table, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The rows of a table of one page; None where something is broken or unusual, which takes a `Scan`."""
    header, page, info = tree.header, tree.root_page(), np.zeros(4, np.int64)
    start, size, rowid, overflow = np.empty((4, (header.usable - 8) // 6), np.int64)
    count = core.cells(page, 1, header.page_size, header.usable, True, _ANY_ROW, start, size, rowid, overflow, info)
    if count < 0 or overflow[:count].any():
        return None
    wanted = [table.columns[name] for name in columns]
    flag_bytes = (count + 7) // 8
    fields = [(-1, 0, 0, 0, 0, 0)] * table.fields
    for column in table.columns.values():
        fields[column.field] = -1, column.has_default, column.not_null and not column.is_rowid, 0, 0, 0
    rowid_kind = rowid_begin = -1
    for output, column in enumerate(wanted):
        kind = _KINDS[column.type]
        begin = output if kind == core.BYTES else output * count
        if column.is_rowid:
            rowid_kind, rowid_begin = kind, begin
        else:
            fields[column.field] = output, column.has_default, column.not_null, kind, begin, output * flag_bytes
    text_at, text_size = np.empty((2, len(wanted), count), np.int64)
    numbers = np.empty(len(wanted) * count, np.int64)
    valid = np.full(len(wanted) * flag_bytes, 0xFF, np.uint8)
    nulls = np.zeros(len(wanted), np.int64)
    done = core.decode(
        page, start, size, rowid, 0, count, np.array(fields, np.int64), rowid_kind, rowid_begin, 0,
        text_at, text_size, nulls, info, *_UNUSED, numbers, valid,
    )  # fmt: skip
    if done < count:
        return None
    raw = page.tobytes()
    by_column: list[list[Any]] = []
    for output, column in enumerate(wanted):
        here = numbers[output * count : (output + 1) * count]
        values: list[Any]
        if _KINDS[column.type] == core.BYTES:
            ends = text_at[output] + text_size[output]
            values = [text_of_bytes(raw[a:b]) for a, b in zip(text_at[output].tolist(), ends.tolist(), strict=True)]
        else:
            values = (here if column.type == "int64" else here.view(np.float64)).tolist()
        if nulls[output]:
            values = _with_nulls(values, valid[output * flag_bytes : (output + 1) * flag_bytes])
        by_column.append(values)
    return list(zip(*by_column, strict=True))


def _with_nulls(values: list[Any], valid: NDArray[np.uint8]) -> list[Any]:
    flags = np.unpackbits(valid, count=len(values), bitorder="little")
    return [value if flag else None for value, flag in zip(values, flags.tolist(), strict=True)]
