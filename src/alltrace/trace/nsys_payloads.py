"""How an export of nsys keeps the payloads of NVTX events, in which NCCL names sizes and communicators.

`nsys export` leaves payloads out by default. Versions before 2024 have no option for it.
"""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path

_SWITCHES = ("--include-blobs", "--include-json")
EXPORT = "nsys export -t sqlite --include-blobs=true --include-json=true"
"""The command for users, to be followed by the report."""
_LIMIT_S = 60


def payload_switches(nsys: Path) -> tuple[str, ...]:
    """The switches of `nsys export` that keep payloads, as far as this nsys has them; it is asked once in a process."""
    try:
        facts = nsys.stat()
    except OSError:
        return ()
    return _switches(str(nsys), facts.st_mtime_ns)


@lru_cache(maxsize=64)
# another program at that path is asked again
def _switches(nsys: str, changed_ns: int) -> tuple[str, ...]:  # noqa: ARG001
    try:
        done = subprocess.run(
            [nsys, "export", "--help"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    supported = set(re.findall(r"--[a-z-]+", done.stdout + done.stderr))
    return tuple(f"{switch}=true" for switch in _SWITCHES if switch in supported)
