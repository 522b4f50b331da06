"""Whether a file is a log with NCCL's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_BYTES = 1 << 20


def is_nccl_log(path: Path) -> bool:
    """Whether the first MiB of the file, unpacked, has a record of NCCL or RCCL."""
    from alltrace.readers.text import TextLog

    with TextLog(path) as log:
        for block, _whole in log.blocks(_LOOK_BYTES):
            return b"NCCL INFO " in block or b"NCCL WARN " in block or b"NCCL version" in block or b"RCCL version" in block
    return False
