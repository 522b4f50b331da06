"""Reader of the files of NCCL's example profiler plugin: what its proxy threads and network did for each operation."""

from __future__ import annotations

import re

_MARK = re.compile(
    rb'^\s*(\[\s*)?(\{\}\]|\{"name": ?"[^"]{0,64}", ?"cat": ?'
    rb'"(GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|GROUP|COLL|P2P|CE_COLL|PROXY|NET|GPU)", '
    rb'?"ph": ?"[be]", ?"id": ?[0-9]+, ?"pid": ?[0-9]+, ?"tid": ?1,)'
)


def looks_like(data: bytes) -> bool:
    """Whether the first bytes belong to such a file: a list of asynchronous events of NCCL's categories."""
    return _MARK.match(data) is not None
