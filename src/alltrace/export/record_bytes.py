"""Records as bytes, made from columns of numbers without a Python object for each."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.core.text import FIXED64, INT, MICROSECONDS, TEXT, VARINT, write_records
from alltrace.trace.arrays import Int64

__all__ = ["FIXED64", "INT", "MICROSECONDS", "TEXT", "VARINT", "Pool", "Records", "Template", "rows_alike"]

_WIDEST = np.array([0, 20, 24, 10, 8])  # the most bytes of each kind of field, of `TEXT` without its text


class Records(NamedTuple):
    """n records of bytes, one after the other."""

    data: NDArray[np.uint8]  # uint8 array of all bytes
    lengths: Int64  # int64 array of n


class Pool:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._arrays: tuple[NDArray[np.uint8], Int64] | None = None
        self._scratch = np.empty(0, np.uint8)

    def scratch(self, size: int) -> NDArray[np.uint8]:
        """Space for `size` bytes, which the next call may reuse."""
        if len(self._scratch) < size:
            self._scratch = np.empty(size, np.uint8)
        return self._scratch

    def add(self, piece: bytes | str) -> int:
        piece = piece.encode("utf-8", "replace") if isinstance(piece, str) else piece
        number = self._known.get(piece)
        if number is None:
            number = self._known[piece] = len(self._pieces)
            self._pieces.append(piece)
            self._arrays = None
        return number

    def add_all(self, pieces: Iterable[bytes | str]) -> Int64:
        return np.fromiter((self.add(p) for p in pieces), np.int64)

    def piece(self, number: int) -> bytes:
        return self._pieces[number]

    def arrays(self) -> tuple[NDArray[np.uint8], Int64]:
        """All bytes, and where each piece starts, with the end last."""
        if self._arrays is None:
            offsets = np.zeros(len(self._pieces) + 1, np.int64)
            np.cumsum([len(p) for p in self._pieces], out=offsets[1:])
            self._arrays = np.frombuffer(b"".join(self._pieces), np.uint8), offsets
        return self._arrays


# `fields`: literal text, or a kind of field (such as `INT` or `TEXT`) that takes its values from a column.
class Template:
    """The form of a record."""

    def __init__(self, pool: Pool, fields: Sequence[Any]) -> None:
        self._pool = pool
        self._literals = [None if isinstance(f, int) else pool.add(f) for f in fields]
        self._kinds = np.array([f if isinstance(f, int) else TEXT for f in fields], np.int8)

    def records(self, count: int, *columns: Any) -> Records:
        # `columns`: for each field that is not literal an int64 array of that length, or one number for all.
        pool, offsets = self._pool.arrays()
        sources, constants = np.full(len(self._kinds), -1, np.int64), np.zeros(len(self._kinds), np.int64)
        remaining = iter(columns)
        rows: list[Int64] = []
        room = int(_WIDEST[self._kinds].sum()) * count
        for field, literal in enumerate(self._literals):
            value: Any = next(remaining) if literal is None else literal
            if np.ndim(value):
                sources[field] = len(rows)
                rows.append(value)
                if self._kinds[field] == TEXT:
                    chosen = value[value >= 0]
                    room += int((offsets[chosen + 1] - offsets[chosen]).sum())
            else:
                constants[field] = value
                if self._kinds[field] == TEXT and value >= 0:
                    room += int(offsets[value + 1] - offsets[value]) * count
        values = np.stack(rows).astype(np.int64, copy=False) if rows else np.empty((0, count), np.int64)
        lengths = np.empty(count, np.int64)
        data = self._pool.scratch(room)
        size = write_records(
            self._kinds, sources, constants, np.ascontiguousarray(values), offsets, pool, lengths, data
        )
        return Records(data[:size].copy(), lengths)


def rows_alike(present: Sequence[Any]) -> list[tuple[tuple[bool, ...], Int64]]:
    # `present`: boolean arrays of n: which rows have each thing. Returns for each combination that occurs: what of
    # `present` it has, and its rows, ascending.
    codes = np.zeros(len(present[0]), np.int64)
    for place, there in enumerate(present):
        codes |= there.astype(np.int64) << place
    distinct = np.flatnonzero(np.bincount(codes)).tolist()
    return [
        (tuple(bool(code >> n & 1) for n in range(len(present))), np.flatnonzero(codes == code)) for code in distinct
    ]
