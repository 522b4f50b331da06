"""Keeps the memory of an import small: what is freed goes back to the system soon.

Large blocks come and go as batches are decoded, sorted and written, in several threads. Arrow's own allocator and glibc's, as they
are set by default, keep most of them for later, which costs about 80 MB.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names and numbers as in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_SETTINGS = ((_M_TRIM_THRESHOLD, 8 << 20), (_M_MMAP_THRESHOLD, 1 << 20), (_M_ARENA_MAX, 2))


@contextmanager
def lean_memory() -> Iterator[None]:
    """Within the block, Arrow allocates by the system's allocator; that one, where it is glibc's, is told to give back early.

    The second stays so until the process ends.
    """
    import pyarrow as pa

    _tell_glibc()
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def give_back() -> None:
    """Give what was freed back to the system: Arrow's memory, and where the C library is glibc, that of all others."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library
        return


@lru_cache(maxsize=1)
def _tell_glibc() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    for option, value in _SETTINGS:
        mallopt(option, value)
