"""The inner loops of writing text: decimal numbers and pieces of text into one buffer, and gathering records in order.

Buffers have slack and indices are unsigned, as `alltrace.trace.decimal_text` tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.trace.decimal_text import SLACK as SLACK
from alltrace.trace.decimal_text import copy_bytes as _copy
from alltrace.trace.decimal_text import eight_digits as _eight_digits
from alltrace.trace.decimal_text import short_number as _short_number
from alltrace.trace.decimal_text import write_number as _write_number
from alltrace.trace.decimal_text import write_signed as _write_signed
from alltrace.trace.eight_bytes import load as _load
from alltrace.trace.eight_bytes import store as _store
from alltrace.trace.jit import plain_kernel

TEXT, INT, MICROSECONDS, VARINT, FIXED64 = 0, 1, 2, 3, 4
"""Kinds of a field: text by number (none if negative), an integer, ns as us with 3 decimals, a protobuf varint or fixed64."""

WIDEST = np.array([0, 20, 24, 10, 8], np.int64)
"""The most bytes of each kind, of `TEXT` without its text."""

_I64 = "int64[::1]"
_U8 = "uint8[::1]"
_READ = "Array(uint8, 1, 'C', readonly=True)"
_E8 = np.uint64(10**8)
_1, _4, _7, _8 = (np.uint64(n) for n in (1, 4, 7, 8))


@plain_kernel(f"int64(int8[::1], {_I64}, {_I64}, int64[:, ::1], {_I64}, {_READ}, int64, {_I64}, {_U8})")
def write(
    kinds: Any, sources: Any, constants: Any, values: Any, offsets: Any, pool: Any, count: Any, lengths: Any, out: Any
) -> Any:
    """Writes records one after the other and fills `lengths` with the bytes of each.

    Args:
        kinds: int8 array of f field kinds.
        sources: int64 array of f: the row of `values` that a field takes its values from, -1 for its constant.
        constants: int64 array of f.
        values: int64 array (rows, n).
        offsets: int64 array, where each piece of text starts, and its end last.
        pool: The pieces of text, with slack.
        count: n.
        lengths: int64 array of n.
        out: Where to write, with room for the longest of each field and slack.

    Returns:
        The bytes written.
    """
    at = np.uint64(0)
    for i in range(count):
        began = at
        for f in range(kinds.size):
            kind = kinds[f]
            row = sources[f]
            v = constants[f] if row < 0 else values[np.uint64(row), np.uint64(i)]
            if kind == 0:
                if v >= 0:
                    start = np.uint64(offsets[np.uint64(v)])
                    size = np.uint64(offsets[np.uint64(v) + _1]) - start
                    k = np.uint64(0)
                    while k < size:
                        _store(out, at + k, _load(pool, start + k))
                        k += _8
                    at += size
                continue
            if kind == 3:
                u = np.uint64(v)
                while u >= np.uint64(128):
                    out[at] = np.uint8((u & np.uint64(127)) | np.uint64(128))
                    u >>= _7
                    at += _1
                out[at] = np.uint8(u)
                at += _1
                continue
            if kind == 4:
                _store(out, at, np.uint64(v))
                at += _8
                continue
            u = np.uint64(v)
            if v < 0:
                u = ~u + _1
                out[at] = np.uint8(45)
                at += _1
            if kind == 2:
                whole = u // np.uint64(1000)
                at = _write_number(out, at, whole)
                # a point and three digits
                digits = _eight_digits(u - whole * np.uint64(1000)) >> np.uint64(32)
                _store(out, at, (digits & ~np.uint64(255)) | np.uint64(46))
                at += _4
            else:
                at = _write_number(out, at, u)
        lengths[np.uint64(i)] = np.int64(at - began)
    return np.int64(at)


@plain_kernel(f"void({_READ}, {_I64}, int32[::1], {_I64}, {_U8})")
def gather(text: Any, starts: Any, lengths: Any, order: Any, out: Any) -> None:
    """Copies records of `text` into `out` in `order`; both have slack."""
    at = np.uint64(0)
    for i in range(order.size):
        chosen = np.uint64(order[np.uint64(i)])
        start, size = np.uint64(starts[chosen]), np.uint64(lengths[chosen])
        k = np.uint64(0)
        while k < size:
            _store(out, at + k, _load(text, start + k))
            k += _8
        at += size


@plain_kernel(f"boolean(int64[:, ::1], {_I64}, int64, int64[:, ::1])")
def columns_in_order(rows: Any, order: Any, few: Any, out: Any) -> Any:
    """Rows in the order of their first two columns, column by column.

    Args:
        rows: int64 array (n, k).
        order: int64 array of n: the places of the rows in the order of the first column.
        few: The most rows with equal first columns that are put into the order of the second here.
        out: int64 array (k, n), filled.

    Returns:
        Whether there were more, so that the second column is not everywhere in order.
    """
    many = False
    begun = np.uint64(0)
    for n in range(order.size):
        i = np.uint64(n)
        row = np.uint64(order[i])
        key, second = rows[row, np.uint64(0)], rows[row, np.uint64(1)]
        if i > begun and out[np.uint64(0), i - _1] != key:
            begun = i
        at = i
        if i > begun and out[_1, i - _1] > second:
            if i - begun >= np.uint64(few):
                many = True
            else:
                while at > begun and out[_1, at - _1] > second:
                    for column in range(1, rows.shape[1]):
                        c = np.uint64(column)
                        out[c, at] = out[c, at - _1]
                    at -= _1
        out[np.uint64(0), i] = key
        for column in range(1, rows.shape[1]):
            c = np.uint64(column)
            out[c, at] = rows[row, c]
    return many


STOP, VALUE, LATER, NEXT, AGAIN, OBJECT, LOW, HIGH, LAST_HIGH = range(9)
"""What follows a piece of text of a line; see `alltrace.export.paraver.lines`."""


@plain_kernel(
    f"int64(int64[:, ::1], {_I64}, int64, {_READ}, {_I64}, int64, {_I64}, {_I64}, int8[::1], {_READ}, {_I64}, {_U8}, int64, {_I64})"
)
def write_lines(
    rows: Any, order: Any, first: Any, heads: Any, head_at: Any, objects: Any, variants: Any, steps: Any, kinds: Any,
    texts: Any, text_at: Any, out: Any, most: Any, place: Any,
) -> Any:  # fmt: skip
    """Writes lines from packed rows (see `alltrace.export.paraver.lines`), one after the other.

    Args:
        rows: int64 array (n, 2) of keys and words.
        order: int64 array, the order of the rows.
        first: The place in `order` to begin with.
        heads: The texts of objects, with slack: of each variant all objects.
        head_at: int64 array, where each of them starts, and its end last.
        objects: How many objects there are.
        variants: int64 array, the variant that each shape begins with.
        steps: int64 array, where the steps of each shape begin.
        kinds: int8 array, the kind of each step.
        texts: The text before what each step writes, with slack.
        text_at: int64 array, where each of them starts, and its end last.
        out: Where to write, with room for `most` bytes, the longest line and slack.
        most: The bytes after which no line begins.
        place: int64 array of one, filled with the place in `order` to go on with.

    Returns:
        The bytes written.
    """
    at = np.uint64(0)
    i = np.uint64(first)
    known, high_text, high_size = np.uint64(0), np.uint64(0), np.uint64(0)
    while i < np.uint64(order.size) and at <= np.uint64(most):
        row = np.uint64(order[i])
        i += _1
        time = rows[row, np.uint64(0)] >> 3
        word = np.uint64(rows[row, np.uint64(1)])
        shape, value = word >> np.uint64(48), word & np.uint64(0xFFFFFFFF)
        head = np.uint64(variants[shape]) * np.uint64(objects) + (word >> np.uint64(32) & np.uint64(0xFFFF))
        begun = at
        start = np.uint64(head_at[head])
        at = _copy(out, at, heads, start, np.uint64(head_at[head + _1]) - start)
        u = np.uint64(time)
        high = u // _E8
        if high - _1 < _E8 - _1:  # which says that it is neither 0 nor too large, and so is a time before 0
            if high != known:  # changes ten times a second
                known = high
                high_text, high_size = _short_number(high)
            _store(out, at, high_text)
            _store(out, at + high_size, _eight_digits(u - high * _E8))
            at += high_size + _8
        else:
            at = _write_signed(out, at, time)
        size = at - begun
        step = np.uint64(steps[shape])
        while True:
            start = np.uint64(text_at[step])
            at = _copy(out, at, texts, start, np.uint64(text_at[step + _1]) - start)
            kind = kinds[step]
            step += _1
            if kind == 0:
                break
            if kind == 1:
                at = _write_number(out, at, value)
            elif kind == 2:
                at = _write_signed(out, at, time + np.int64(value))
            elif kind == 3:
                at = _write_signed(out, at, rows[np.uint64(order[i]), np.uint64(1)])
                i += _1
            elif kind == 4:
                k = np.uint64(0)
                while k < size:
                    _store(out, at + k, _load(out, begun + k))
                    k += _8
                at += size
            elif kind == 5:
                head = np.uint64(3) * np.uint64(objects) + value
                start = np.uint64(head_at[head])
                at = _copy(out, at, heads, start, np.uint64(head_at[head + _1]) - start)
            else:
                both = np.uint64(rows[np.uint64(order[i]), np.uint64(1)])
                if kind == 6:
                    both &= np.uint64(0xFFFFFFFF)
                else:
                    both >>= np.uint64(32)
                    if kind == 8:
                        i += _1
                at = _write_signed(out, at, time + np.int64(both))
    place[0] = np.int64(i)
    return np.int64(at)
