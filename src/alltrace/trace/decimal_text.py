"""For compiled loops: bytes copied and whole numbers written as text, eight bytes at a time, wherever they lie.

A store may reach past what it writes, by less than `SLACK` bytes, which every buffer that is written or read has more than its
content. Indices are unsigned, as signed ones are checked for counting from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.trace.eight_bytes import load as _load
from alltrace.trace.eight_bytes import store as _store
from alltrace.trace.jit import inlined, intrinsic

SLACK = 24
"""How many bytes more than its content a buffer has that is written or read."""

_E4, _E8 = np.uint64(10**4), np.uint64(10**8)
_1, _8 = np.uint64(1), np.uint64(8)
_ZEROS, _LAST_DIGIT = np.uint64(0x3030303030303030), np.uint64(1 << 56)


@intrinsic
def _low_zeros(_typing: Any, _number: Any) -> Any:
    """Takes an unsigned number; how many of its lowest bits are 0. One instruction, as those that follow."""
    import numba as nb
    from llvmlite import ir

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return nb.uint64(nb.uint64), generate


@inlined
def copy_bytes(data: Any, at: Any, text: Any, start: Any, size: Any) -> Any:
    """Copies bytes, of which there are mostly no more than 16; where they end."""
    _store(data, at, _load(text, start))
    _store(data, at + _8, _load(text, start + _8))
    k = np.uint64(16)
    while k < size:
        _store(data, at + k, _load(text, start + k))
        k += _8
    return at + size


@inlined
def _digits(u: Any) -> Any:
    """The digits of a number below 10**8 as eight bytes of 0 to 9, the first in the lowest byte.

    Halves, quarters and eighths of the number are divided side by side in one register; x * 10486 >> 20 is x // 100 below 10**4,
    and x * 103 >> 10 is x // 10 below 100.
    """
    halves = (u // _E4) | (u % _E4) << np.uint64(32)
    top = (halves * np.uint64(10486) >> np.uint64(20)) & np.uint64(0x7F0000007F)
    pairs = top | (halves - np.uint64(100) * top) << np.uint64(16)
    tens = (pairs * np.uint64(103) >> np.uint64(10)) & np.uint64(0x000F000F000F000F)
    return tens | (pairs - np.uint64(10) * tens) << _8


@inlined
def eight_digits(u: Any) -> Any:
    """The digits of a number below 10**8 as eight characters, the first in the lowest byte."""
    return _digits(u) + _ZEROS


@inlined
def short_number(u: Any) -> Any:
    """The characters of a number below 10**8, the first in the lowest byte, and how many there are."""
    digits = _digits(u)
    zeros = _low_zeros(digits | _LAST_DIGIT) >> np.uint64(3)
    return (digits + _ZEROS) >> (zeros * _8), _8 - zeros


@inlined
def write_number(out: Any, at: Any, u: Any) -> Any:
    """Writes an unsigned number; where it ends."""
    high = u // _E8
    if high >= _E8:
        higher = high // _E8
        text, size = short_number(higher)
        _store(out, at, text)
        _store(out, at + size, eight_digits(high - higher * _E8))
        at += size + _8
    elif high:
        text, size = short_number(high)
        _store(out, at, text)
        at += size
    else:
        text, size = short_number(u)
        _store(out, at, text)
        return at + size
    _store(out, at, eight_digits(u - high * _E8))
    return at + _8


@inlined
def write_signed(out: Any, at: Any, v: Any) -> Any:
    """Writes a number; where it ends."""
    u = np.uint64(v)
    if v < 0:
        u = ~u + _1
        out[at] = np.uint8(45)
        at += _1
    return write_number(out, at, u)
