"""How files begin, by which readers recognize them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def head_of(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file; none of one that cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
