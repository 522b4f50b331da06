"""Whether a worker of a cluster sees the files that its tasks need, as the process that hands out tasks does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_POLL_S = 0.2


class Mark(NamedTuple):
    path: str  # the file or folder, absolute
    size_bytes: int | None  # the size of a file; None for a folder
    written_s: int | None  # when a file was last written, s since the epoch; None for a folder


def mark_of(path: str | Path) -> Mark:
    """The mark of a file or folder as it is now. Raises `OSError`: it cannot be seen from here."""
    place = Path(path).absolute()
    stat = place.stat()
    if place.is_dir():
        return Mark(str(place), None, None)
    return Mark(str(place), stat.st_size, int(stat.st_mtime))


def unseen(marks: Iterable[Mark], patience_s: float = 0.0) -> list[str]:
    """The paths that this process does not see, or sees with other contents."""
    # `marks`: what another process sees. `patience_s`: how long to look: a new file on a shared file system can appear
    # late.
    until = time.monotonic() + patience_s
    left = list(marks)
    while True:
        left = [mark for mark in left if not _same(mark)]
        if not left or time.monotonic() >= until:
            return [mark.path for mark in left]
        time.sleep(_POLL_S)


def _same(mark: Mark) -> bool:
    with suppress(OSError):
        if mark.size_bytes is None:
            return Path(mark.path).is_dir()
        return mark_of(mark.path) == mark
    return False


def host_names() -> list[str]:
    import platform

    node = platform.node()
    names = (os.environ.get("SLURMD_NODENAME"), node, node.partition(".")[0])
    return list(dict.fromkeys(name for name in names if name))
