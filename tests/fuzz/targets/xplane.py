"""Traces of XProf, damaged: planes, lines and statistics into rows of the canonical tables."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from alltrace.readers.xplane.read import FILLED, open_report
from tests.readers.xplane.test_read import DEVICE, HOST, TRACE

_FOLDER = Path(tempfile.gettempdir())


def corpus() -> list[bytes]:
    """A whole trace, and its planes one by one."""
    return [TRACE, DEVICE, HOST, DEVICE + HOST]


def run(data: bytes) -> None:
    """The rows of every table that the reader fills."""
    path = _FOLDER / f"fuzz-{os.getpid()}.xplane.pb"
    path.write_bytes(data)
    try:
        reader = open_report(path)
        for _, batch in reader.stream(FILLED):
            batch.validate(full=True)
    finally:
        path.unlink()
