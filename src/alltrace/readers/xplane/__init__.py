"""XProf (experimental): traces of JAX's and TensorFlow's profiler as they are written on each host, `.xplane.pb`."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".xplane.pb"
_PLANE = 0x0A


def is_report(path: Path) -> bool:
    """Whether `path` has the name of one and begins with a plane."""
    if not path.name.lower().endswith(SUFFIX):
        return False
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return False
        with path.open("rb") as file:
            return file.read(1) == bytes((_PLANE,))
    except OSError:
        return False
