"""Reads back the Paraver traces that `alltrace export paraver` writes."""

from __future__ import annotations

import gzip
import stat
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".prv", ".prv.gz")
_MAGIC = b"#Paraver"


def is_report(path: Path) -> bool:
    """Whether `path` has one of the suffixes and begins like a Paraver trace."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        return False
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return False
        with gzip.open(path, "rb") if name.endswith(".gz") else path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, EOFError, zlib.error):
        return False
