"""Mutations of byte strings, from a seeded random generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_MOST_BYTES = 1 << 16  # an input does not grow beyond
_DIGITS = re.compile(rb"\d+")
_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
_TEXTS = (
    b"0",
    b"-1",
    b"00",
    b"2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e308",
    b"",
)
_SIZES = (1, 2, 4, 8)


def mutated(corpus: Sequence[bytes], draw: Random) -> bytes:
    """One of the inputs of `corpus` with a few mutations; one of 32 has none."""
    data = bytearray(draw.choice(corpus))
    if draw.randrange(32) == 0:
        return bytes(data)
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5, 16))):
        if not data:
            data += draw.randbytes(draw.randrange(1, 9))
        draw.choice(_MUTATIONS)(data, corpus, draw)
    return bytes(data[:_MOST_BYTES])


def _flip(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _replace(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    data[draw.randrange(len(data))] = draw.choice((*_BYTES, draw.randrange(256)))


def _extreme_integer(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    """A binary number of 1 to 8 bytes in either byte order becomes 0, -1, the largest, the smallest, or one beside
    these."""
    size = draw.choice(_SIZES)
    at = draw.randrange(len(data))
    at -= at % draw.choice((1, size))
    number = draw.choice((0, 1 << (8 * size - 1), 1 << (8 * size - 2))) + draw.choice((-1, 0, 1))
    raw = (number % (1 << (8 * size))).to_bytes(size, draw.choice(("little", "big")))
    data[at : at + size] = raw[: len(data) - at]


def _extreme_text(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    """A number in decimal digits becomes an extreme one."""
    start = draw.randrange(len(data))
    found = _DIGITS.search(data, start, start + 256)
    if found is not None:
        data[found.start() : found.end()] = draw.choice(_TEXTS)


def _cut(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    del data[draw.randrange(len(data)) :]


def _remove(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    at, size = _part(data, draw)
    del data[at : at + size]


def _repeat(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    at, size = _part(data, draw)
    data[at:at] = data[at : at + size] * draw.choice((1, 1, 2, 7))


def _move(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    """A part is written over another place."""
    at, size = _part(data, draw)
    to = draw.randrange(len(data))
    size = min(size, len(data) - to)
    data[to : to + size] = data[at : at + size]


def _splice(data: bytearray, corpus: Sequence[bytes], draw: Random) -> None:
    """A part of another input is put in, or written over what is there."""
    other = draw.choice(corpus)
    if not other:
        return
    at, size = _part(other, draw)
    to = draw.randrange(len(data))
    data[to : to + draw.choice((0, size))] = other[at : at + size]


def _fill(data: bytearray, _corpus: Sequence[bytes], draw: Random) -> None:
    at, size = _part(data, draw)
    data[at : at + size] = bytes([draw.choice(_BYTES)]) * size


def _part(data: bytes | bytearray, draw: Random) -> tuple[int, int]:
    """Start and size of a part, short or long."""
    at = draw.randrange(len(data))
    return at, min(len(data) - at, draw.randrange(1, draw.choice((4, 32, 512, len(data))) + 1))


_MUTATIONS: tuple[Callable[[bytearray, Sequence[bytes], Random], None], ...] = (
    _flip, _flip, _replace, _replace, _extreme_integer, _extreme_integer, _extreme_text,
    _cut, _remove, _repeat, _move, _splice, _fill,
)  # fmt: skip
