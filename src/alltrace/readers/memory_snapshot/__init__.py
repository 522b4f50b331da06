"""Snapshots of PyTorch's allocator of device memory (`torch.cuda.memory._dump_snapshot`): pickles of plain data."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".pickle", ".pkl")
_HEAD_BYTES = 1 << 10
_PROTOCOL = b"\x80"


def is_report(path: Path) -> bool:
    """Whether `path` has one of the suffixes and begins like such a pickle: with the key of its segments."""
    if not path.name.lower().endswith(SUFFIXES):
        return False
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_PROTOCOL) and b"segments" in head
