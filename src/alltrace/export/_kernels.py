"""The inner loops of writing text: decimal numbers and pieces of text into one buffer, and gathering records in order.

Bytes move eight at a time, which is what makes these loops fast: a store may therefore reach up to seven bytes past its record, so
every buffer that is written or read has `SLACK` bytes more than its content. Indices are unsigned, as signed ones are checked for
counting from the end.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from alltrace.trace.jit import plain_kernel as kernel

TEXT, INT, MICROSECONDS, VARINT, FIXED64 = 0, 1, 2, 3, 4
"""Kinds of a field: text by number (none if negative), an integer, ns as us with 3 decimals, a protobuf varint or fixed64."""

WIDEST = np.array([0, 20, 24, 10, 8], np.int64)
"""The most bytes of each kind, of `TEXT` without its text."""

SLACK = 8

_I64 = nb.int64[::1]
_U8 = nb.types.Array(nb.uint8, 1, "C")
_READ = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_E4, _E8 = np.uint64(10**4), np.uint64(10**8)
_0, _1, _4, _7, _8 = (np.uint64(n) for n in (0, 1, 4, 7, 8))


@nb.njit(inline="always")
def _load(data: Any, at: Any) -> Any:
    """Eight bytes as a number; one instruction once compiled."""
    v = np.uint64(0)
    for k in range(8):
        v |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
    return v


@nb.njit(inline="always")
def _store(data: Any, at: Any, v: Any) -> None:
    """A number as eight bytes; one instruction once compiled."""
    for k in range(8):
        data[at + np.uint64(k)] = np.uint8(v >> np.uint64(8 * k))


@nb.njit(inline="always")
def _eight_digits(u: Any) -> Any:
    """The digits of a number below 10**8 as eight characters, the first in the lowest byte.

    Halves, quarters and eighths of the number are divided side by side in one register; x * 10486 >> 20 is x // 100 below 10**4,
    and x * 103 >> 10 is x // 10 below 100.
    """
    halves = (u // _E4) | (u % _E4) << np.uint64(32)
    top = (halves * np.uint64(10486) >> np.uint64(20)) & np.uint64(0x7F0000007F)
    pairs = top | (halves - np.uint64(100) * top) << np.uint64(16)
    tens = (pairs * np.uint64(103) >> np.uint64(10)) & np.uint64(0x000F000F000F000F)
    return (tens | (pairs - np.uint64(10) * tens) << _8) + np.uint64(0x3030303030303030)


@nb.njit(inline="always")
def _write_number(out: Any, at: Any, u: Any) -> Any:
    """Writes an unsigned number; where it ends."""
    high = u // _E8
    if high >= _E8:
        higher = high // _E8
        at = _write_short(out, at, higher)
        _store(out, at, _eight_digits(high - higher * _E8))
        at += _8
    elif high:
        at = _write_short(out, at, high)
    else:
        return _write_short(out, at, u)
    _store(out, at, _eight_digits(u - high * _E8))
    return at + _8


@nb.njit(inline="always")
def _write_short(out: Any, at: Any, u: Any) -> Any:
    """Writes a number below 10**8; where it ends."""
    zeros = _7
    limit = np.uint64(10)
    while zeros and u >= limit:
        zeros -= _1
        limit *= np.uint64(10)
    _store(out, at, _eight_digits(u) >> (zeros * _8))
    return at + _8 - zeros


@kernel(nb.int64(nb.int8[::1], _I64, _I64, nb.int64[:, ::1], _I64, _READ, nb.int64, _I64, _U8))
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


@kernel(nb.void(_READ, _I64, nb.int32[::1], _I64, _U8))
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
