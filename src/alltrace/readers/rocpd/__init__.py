"""rocpd (experimental): databases (`.db`) and JSON of AMD's rocprofv3 (ROCprofiler-SDK)."""

import re
from pathlib import Path

from alltrace.readers.heads import head_of

SUFFIX, JSON_SUFFIX = ".db", ".json"
_MAGIC = b"SQLite format 3\x00"
_HEAD_BYTES = 1 << 20
_TABLE = b"rocpd_kernel_dispatch"
_JSON = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')


def is_report(path: Path) -> bool:
    """Whether `path` declares rocpd's tables in its first MiB, or begins like rocprofv3's JSON."""
    if not path.name.lower().endswith((SUFFIX, JSON_SUFFIX)):
        return False
    head = head_of(path, _HEAD_BYTES)
    return (head.startswith(_MAGIC) and _TABLE in head) or _JSON.match(head) is not None
