"""rocpd (experimental): databases of AMD's rocprofv3 (ROCprofiler-SDK), `.db`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".db"
_MAGIC = b"SQLite format 3\x00"
_HEAD_BYTES = 1 << 20
_TABLE = b"rocpd_kernel_dispatch"


def is_report(path: Path) -> bool:
    """Whether `path` is a database that declares rocpd's tables in its first MiB, where rocprofv3 writes them first."""
    if not path.name.lower().endswith(SUFFIX) or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_MAGIC) and _TABLE in head
