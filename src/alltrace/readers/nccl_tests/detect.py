"""Whether a file holds a table of nccl-tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_BYTES = 4 << 20


def is_nccl_tests(path: Path) -> bool:
    """Whether the first MiBs of the file, unpacked, have the header of a table, or are its JSON."""
    from alltrace.readers.nccl_tests.read import HEADER
    from alltrace.readers.text import TextLog

    with TextLog(path) as log:
        for block, _whole in log.blocks(_LOOK_BYTES):
            return HEADER.search(block) is not None or (block.lstrip()[:1] == b"{" and b'"out_of_place"' in block)
    return False
