"""Whether a file is a dump of PyTorch's flight recorder or a file of NCCL Inspector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_flight_record(path: Path) -> bool:
    """Whether the file's first bytes, unpacked, are such a dump's."""
    from alltrace.readers.text import TextLog

    with TextLog(path) as log:
        for block, _whole in log.blocks():
            if block[:1] == b"\x80":
                return b"pg_config" in block or b"entries" in block
            words = (b'"pg_config"', b'"entries"', b'"coll_perf"', b'"p2p_perf"')
            return block.lstrip()[:1] == b"{" and any(word in block for word in words)
    return False
