"""PyTorch profiler (Kineto): traces as JSON, plain or compressed."""

from __future__ import annotations

import stat
from contextlib import closing
from typing import TYPE_CHECKING

from alltrace.readers.nccl_profiler import looks_like
from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".json", ".json.gz", ".json.zst")
_HEAD_BYTES = 1 << 16
_ARRAY_HEAD_BYTES = 1 << 12
_MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')


def is_report(path: Path) -> bool:
    """Whether `path` has one of the suffixes and begins like a trace: with its key or, as a bare list, with an event."""
    if not path.name.lower().endswith(SUFFIXES):
        return False
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return False
    except OSError:
        return False
    from alltrace.readers.kineto.text import Text

    try:
        with closing(Text(path)) as text:
            head = text.read(_HEAD_BYTES)
    except InputError:
        return False
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return b'"ph"' in head[:_ARRAY_HEAD_BYTES] and not looks_like(head[:_ARRAY_HEAD_BYTES])
    return any(mark in head for mark in _MARKS)
