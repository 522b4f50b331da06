"""What Linux knows of a process and of those below it. The one module here that calls the kernel through `ctypes`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process the one that orphans below it are given to; without Linux, they go to the first process."""
    import ctypes  # a rank that is not profiled does without

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """The children of a process, including adopted orphans; empty if the kernel does not list them."""
    pids: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                pids += [int(child) for child in (thread / "children").read_text().split()]
    return pids


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before their children."""
    pids: list[int] = []
    waiting = [pid]
    while waiting:
        below = children(waiting.pop())
        pids += below
        waiting += below
    return pids


def words(pid: int) -> list[bytes]:
    """The command line of a process; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def started_at(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None if it is gone or has ended."""
    try:
        # the name in it may be cut within a letter
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(statuses: dict[int, int]) -> bool:
    """Take the status of every child that has ended; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        statuses[pid] = status


def end_children(statuses: dict[int, int]) -> None:
    """Kill every child of this process, and those that it adopts while they end."""
    while below := children(os.getpid()):
        for pid in below:
            send(pid, signal.SIGKILL)
        for pid in below:
            with suppress(ChildProcessError):
                _, statuses[pid] = os.waitpid(pid, 0)
