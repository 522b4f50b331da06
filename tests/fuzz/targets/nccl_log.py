"""NCCL's logs: damaged lines, read by the compiled loop and line by line in Python, which must agree."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from alltrace.readers.nccl_log.read import LogPart, Wanted, read_log
from tests.nccl_writing import PREFIXES, STAMPS, VERSIONS, write_log

_FILE = Path(tempfile.gettempdir()) / f"fuzz-{os.getpid()}.log"


def corpus() -> list[bytes]:
    """Short logs: each version and each launcher's prefix, cut and interleaved, with stamps; and lines of no call."""
    made = [write_log(version, ranks=2, calls=3, hosts=1).text for version in VERSIONS]
    made += [write_log(prefix=prefix, ranks=3, calls=3, cut=True, seed=1).text for prefix in PREFIXES]
    made += [write_log(stamp=stamp, ranks=3, calls=4, interleave=True, seed=2).text for stamp in STAMPS]
    return [
        *made,
        b"",
        b"h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\nloss 5\n\nh:1:1 [0] NCCL INFO Connected all rings\n",
    ]


def run(data: bytes) -> None:
    """The log `data`, both ways."""
    _FILE.write_bytes(data)
    quick, careful = (read_log(Wanted(str(_FILE), careful=careful)) for careful in (False, True))
    assert _facts(quick) == _facts(careful)


def _facts(part: LogPart) -> dict[str, Any]:
    rows = (
        sorted(map(tuple, (row.values() for row in part.sizes.to_pylist())), key=repr) if part.sizes is not None else []
    )
    return {
        "calls": part.calls,
        "lines": part.lines,
        "damage": part.damage,
        "sizes": rows,
        "counts": dict(part.records.counts),
    }
