"""Bytes as numbers and arrays, for targets with input that is neither text nor a file; missing bytes are zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Fields:
    """Reads `data` from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found.ljust(size, b"\0")

    def left(self) -> int:
        """How many bytes are left."""
        return max(0, len(self._data) - self._at)

    def number(self, below: int) -> int:
        """A number from 0 up, less than `below`, from two bytes."""
        return int.from_bytes(self.take(2), "little") % below

    def int64(self, count: int) -> NDArray[np.int64]:
        """An int64 array of `count`."""
        return np.frombuffer(self.take(8 * count), "<i8").astype(np.int64)

    def small(self, count: int) -> NDArray[np.int64]:
        """An int64 array of `count` numbers from 0 to 255, from one byte each."""
        return np.frombuffer(self.take(count), np.uint8).astype(np.int64)
