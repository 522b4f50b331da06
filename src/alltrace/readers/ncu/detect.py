"""Whether a file is a report of Nsight Compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".ncu-rep",)
MAGIC = b"NVR\x00"


def is_report(path: Path) -> bool:
    """Whether the file at `path` begins like a report."""
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
