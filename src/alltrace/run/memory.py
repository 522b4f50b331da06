"""How memory that was freed is dealt with: an import gives it back to the system soon, an answer keeps it.

Large blocks come and go as batches of an import are decoded, sorted and written, in several threads. Arrow's own allocator and
glibc's, as they are set by default, keep most of them for later, which costs about 80 MB. What works on the tables of one rank at
a time asks for as much again at once, and the system would have to clear it anew.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names and numbers as in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LEAN = ((_M_TRIM_THRESHOLD, 8 << 20), (_M_MMAP_THRESHOLD, 1 << 20), (_M_ARENA_MAX, 2))
_KEEPING = ((_M_MMAP_THRESHOLD, 32 << 20), (_M_TRIM_THRESHOLD, 128 << 20))

_keeps = False  # what was freed, in this process, outside of imports


def keep_freed_memory() -> None:
    """Let the C library keep what is freed for what is asked for next, where it is glibc.

    It gives large pieces back to the system at once, which zeroes them anew for the next one: a third of the time of an export.
    """
    global _keeps
    _keeps = True
    _tell_glibc(_KEEPING)


@contextmanager
def lean_memory(*, early: bool = True) -> Iterator[None]:
    """Within the block, Arrow allocates by the system's allocator; that one, where it is glibc's, is told to give back early.

    The second stays so until the process ends, but where `keep_freed_memory` was called.

    Args:
        early: Whether glibc is told so.
    """
    import pyarrow as pa

    if early:
        _tell_glibc(_LEAN)
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        if early and _keeps:
            _tell_glibc(_KEEPING)


def give_back() -> None:
    """Give what was freed back to the system: Arrow's memory, and where the C library is glibc, that of all others."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _tell_glibc(settings: tuple[tuple[int, int], ...]) -> None:
    mallopt = _function("mallopt")
    if mallopt is not None:
        for option, value in settings:
            mallopt(option, value)


@lru_cache
def _function(name: str) -> Any:
    """A function of the C library; None where that is another than glibc."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
