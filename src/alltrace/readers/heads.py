"""How files begin, by which readers recognize them."""

import stat
from pathlib import Path

_BLANK_BYTES = 4096


def head_of(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file; none of one that cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def is_blank(path: Path) -> bool:
    """Whether a regular file is empty or begins with zeros, as one does whose writer was killed."""
    head = head_of(path, _BLANK_BYTES)
    try:
        return not head.strip(b"\0") and (bool(head) or path.stat().st_size == 0)
    except OSError:
        return False
