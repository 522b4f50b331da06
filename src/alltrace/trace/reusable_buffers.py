"""Memory that is used again and again: blocks for the columns of batches that come and go.

A fresh block costs a page fault for every 4 KiB when it is first written to, which takes about as long as decoding what
goes into it. A block that comes back when the last array on it is gone costs nothing the next time. A small block comes
from memory that the process has anyway: to look for one that fits would take longer than to use it.
"""

from collections import deque

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LEAST_BYTES = 1 << 16  # of a block that waits to be lent again
_MOST_FREE = 64  # all are searched for one that fits
_WASTE = 2  # a block may be this many times larger than requested


class Blocks:
    """Lends blocks of memory; may be used by several threads. `most_free_bytes`: how much may wait to be lent again."""

    def __init__(self, most_free_bytes: int) -> None:
        self._free: deque[NDArray[np.uint8]] = deque()
        self._most_free_bytes = most_free_bytes

    def lend(self, size: int) -> "Block":
        """A block of at least `size` bytes; what is in it is left from before."""
        for _ in range(len(self._free) if size >= _LEAST_BYTES else 0):
            try:
                memory = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if size <= len(memory) <= _WASTE * size:
                return Block(memory, self)
            self._free.append(memory)  # no more is free than was
        return Block(np.empty(size, np.uint8), self)

    def _take_back(self, memory: NDArray[np.uint8]) -> None:
        if len(memory) < _LEAST_BYTES:
            return
        self._free.append(memory)
        try:
            while len(self._free) > _MOST_FREE or sum(len(m) for m in tuple(self._free)) > self._most_free_bytes:
                self._free.popleft()
        except IndexError:  # another thread was faster
            pass


class Block:
    """A block on loan: it is returned when it and all Arrow buffers on it are gone."""

    def __init__(self, memory: NDArray[np.uint8], owner: Blocks) -> None:
        self.bytes = memory  # the memory
        self._owner = owner
        self._address = 0  # after its first use

    def buffer(self, begin: int, size: int) -> pa.Buffer:
        """The bytes [begin, begin + size) as an Arrow buffer, which keeps the block on loan."""
        if not self._address:
            self._address = self.bytes.ctypes.data
        return pa.foreign_buffer(self._address + begin, size, self)

    def __del__(self) -> None:
        self._owner._take_back(self.bytes)  # noqa: SLF001
