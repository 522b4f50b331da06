"""PyTorch profiler (Kineto): traces as JSON, plain or compressed."""

import re
import stat
from contextlib import closing
from pathlib import Path

from alltrace.trace.errors import InputError

SUFFIXES = (".json", ".json.gz", ".json.zst")
_HEAD_BYTES = 1 << 16
_ARRAY_HEAD_BYTES = 1 << 12
# how a list of asynchronous events of NCCL's categories begins, which NCCL's example profiler plugin writes
_OF_NCCL = re.compile(
    rb'^\s*(\[\s*)?(\{\}\]|\{"name": ?"[^"]{0,64}", ?"cat": ?'
    rb'"(GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|GROUP|COLL|P2P|CE_COLL|PROXY|NET|GPU)", '
    rb'?"ph": ?"[be]", ?"id": ?[0-9]+, ?"pid": ?[0-9]+, ?"tid": ?1,)'
)
OWN = b'"exported_by":"alltrace"'  # what is near the beginning of a trace that alltrace exported

_MARKS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')


def is_report(path: Path) -> bool:
    """Whether `path` has one of the suffixes and begins like a trace: with its key or, as a list, with an event."""
    head = head_of(path)
    if OWN in head:
        return False
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return b'"ph"' in head[:_ARRAY_HEAD_BYTES] and not _OF_NCCL.match(head)
    return any(mark in head for mark in _MARKS)


def head_of(path: Path) -> bytes:
    """The first bytes of a file with one of the suffixes; none of others."""
    if not path.name.lower().endswith(SUFFIXES):
        return b""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return b""
    except OSError:
        return b""
    from alltrace.readers.text import Text

    try:
        with closing(Text(path)) as text:
            return text.read(_HEAD_BYTES)
    except InputError:
        return b""
