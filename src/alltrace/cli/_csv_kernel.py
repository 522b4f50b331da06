"""The inner loop of writing CSV: the cells of rows one after the other into one buffer.

Buffers have slack and indices are unsigned, as `alltrace.trace.decimal_text` tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.trace.decimal_text import SLACK as SLACK
from alltrace.trace.decimal_text import copy_bytes as _copy
from alltrace.trace.decimal_text import write_signed as _write_signed
from alltrace.trace.jit import plain_kernel

NUMBER, NUMBER_OR_NONE, NAMED, TEXT = 0, 1, 2, 3
"""Kinds of a column: whole numbers, those with nulls, texts by number, and texts one behind the other."""

NONE = -(2**63)
"""What stands for null among numbers with nulls."""

WIDEST = 20
"""The most bytes of a number."""

_I64 = "int64[::1]"
_READ = "Array(uint8, 1, 'C', readonly=True)"
_1 = np.uint64(1)


@plain_kernel(f"int64(int8[::1], int64[:, ::1], {_READ}, {_I64}, {_READ}, uint8[::1])")
def write_rows(kinds: Any, values: Any, names: Any, name_at: Any, texts: Any, out: Any) -> Any:
    """Writes n rows, their cells joined by commas, a line each.

    Args:
        kinds: int8 array of c kinds of columns.
        values: int64 array (c, n + 1): the numbers of a column; of `NAMED` which name each is, negative for none; of `TEXT` where
            each cell starts in `texts`, and where the last ends. Of others the last is not looked at.
        names: The texts of `NAMED` columns, with slack.
        name_at: int64 array, where each of them starts, and its end last.
        texts: The texts of `TEXT` columns, with slack.
        out: Where to write, with room for the longest of each cell, a byte more for each, and slack.

    Returns:
        The bytes written.
    """
    at = np.uint64(0)
    last = np.uint64(kinds.size - 1)
    for row in range(values.shape[1] - 1):
        i = np.uint64(row)
        for column in range(kinds.size):
            c = np.uint64(column)
            kind = kinds[c]
            value = values[c, i]
            if kind == 0:
                at = _write_signed(out, at, value)
            elif kind == 1:
                if value != NONE:
                    at = _write_signed(out, at, value)
            elif kind == 2:
                if value >= 0:
                    start = np.uint64(name_at[np.uint64(value)])
                    at = _copy(out, at, names, start, np.uint64(name_at[np.uint64(value) + _1]) - start)
            else:
                start = np.uint64(value)
                at = _copy(out, at, texts, start, np.uint64(values[c, i + _1]) - start)
            out[at] = np.uint8(44) if c < last else np.uint8(10)
            at += _1
    return np.int64(at)
