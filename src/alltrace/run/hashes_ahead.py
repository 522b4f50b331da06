"""Hashes of reports, found out by a process of its own while the command that will ask for them is still loading.

A thread would wait for Python's lock between any two blocks, because loading is nearly all Python. What the process finds counts
only where a report's files are still as they were when it looked.

It begins when it is told to, or when it is asked: at first a thread opens the data libraries beside what else is loaded
(`alltrace.cli.startup`), and a third would only be in the way on two processors.

This module is loaded before anything else of a command, so it loads next to nothing.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from alltrace.run.contents import Stamps

REMEMBERED = "hashes.json"
"""The file of a cache folder that remembers hashes of reports; see `alltrace.run.cache`."""

_MANIFEST = "manifest.json"
_WORTHWHILE_BYTES = 16 << 20  # less is hashed in the time that a process takes to start
_KILL = 9
_DIES_WITH_PARENT = 1  # as sys/prctl.h numbers it


class _Process:
    """The process that hashes, seen from the one that asks."""

    def __init__(self, number: int, pipe: int, held: int) -> None:
        import _thread

        self._number = number
        self._held: int | None = held
        self._pipe = open(pipe, encoding="utf-8", errors="surrogatepass")  # noqa: SIM115  a descriptor, closed in `end`
        self._lock = _thread.allocate_lock()
        self._found: dict[str, tuple[int, str, Stamps]] = {}

    def go(self) -> None:
        """Let it begin."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def hash_of(self, path: str) -> tuple[int, str, Stamps] | None:
        """Size, hash and stamps of a report, once they are known; None where it is not looked for."""
        import json

        self.go()
        with self._lock:
            while path not in self._found:
                line = self._pipe.readline()
                if not line.endswith("\n"):  # all are known, or the process was killed
                    return None
                name, size, digest, stamps = json.loads(line)
                self._found[name] = size, digest, tuple(map(tuple, stamps))
            return self._found[path]

    def end(self) -> None:
        """End the process."""
        self.go()
        self._pipe.close()
        try:
            if os.waitpid(self._number, os.WNOHANG) == (0, 0):
                os.kill(self._number, _KILL)
                os.waitpid(self._number, 0)
        except (ChildProcessError, ProcessLookupError):  # whoever started the command ignores what becomes of processes
            return


_process: _Process | None = None


def start(arguments: Sequence[str], known: str | None) -> None:
    """Start the process that hashes the reports among the arguments of a command, where they are large.

    Nothing happens where threads may run already, such as in another program that calls the command line: a process that is made
    then can wait forever.

    Args:
        arguments: All arguments of the command.
        known: The file `REMEMBERED`, whose reports are left out; None where all will be hashed.
    """
    global _process
    named = [a for a in arguments[1:] if not a.startswith("-") and _may_be_large(a)]
    if not named or sys.platform != "linux" or "threading" in sys.modules or "numpy" in sys.modules:
        return
    parent = os.getpid()
    try:
        reading, writing = os.pipe()
        waiting, held = os.pipe()
        number = os.fork()
    except OSError:  # as many processes or files as there may be
        return
    if number:
        os.close(writing)
        os.close(waiting)
        _process = _Process(number, reading, held)
        return
    try:
        os.close(reading)
        os.close(held)
        os.read(waiting, 1)  # until it is closed, or nobody is left to do so
        _hash(named, known, writing, parent)
    except BaseException:  # noqa: BLE001, S110  whoever asks finds out for itself what is wrong
        pass
    finally:
        os._exit(0)


def go() -> None:
    """Let the process begin, where there is one."""
    if _process is not None:
        _process.go()


def end() -> None:
    """End the process, where there is one: no more will be asked."""
    global _process
    ended, _process = _process, None
    if ended is not None:
        ended.end()


def content_hash(path: Path) -> tuple[int, str]:
    """What `alltrace.run.contents.content_hash` gives, from the process where there is one.

    Raises:
        InputError: The report cannot be read.
    """
    from alltrace.run import contents

    found = None if _process is None else _process.hash_of(str(path.absolute()))
    if found is not None:
        size, digest, stamps = found
        if contents.is_as_it_was(path, contents.Content(stamps, digest)):
            return size, digest
    return contents.content_hash(path)


def _may_be_large(path: str) -> bool:
    """Whether there is a large file, or a folder that is no run."""
    try:
        size = os.stat(path).st_size
    except (OSError, ValueError):
        return False
    if os.path.isdir(path):
        return not os.path.exists(os.path.join(path, _MANIFEST))
    return size >= _WORTHWHILE_BYTES


def _hash(named: Sequence[str], known: str | None, pipe: int, parent: int) -> None:
    """Hash the reports that are named, or lie in folders that are, and write a line of each to the pipe."""
    import ctypes
    import json
    from pathlib import Path

    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, _KILL)
    if os.getppid() != parent:  # it died before
        return
    from alltrace.readers.registry import is_report
    from alltrace.run import contents
    from alltrace.run.discover import find_reports

    remembered = _remembered(known)
    with os.fdopen(pipe, "w", encoding="utf-8", errors="surrogatepass") as lines:
        for report in find_reports([n for n in named if os.path.isdir(n) or is_report(Path(n))]):
            stamps = contents.file_stamps(report)
            name = str(report.absolute())
            if remembered.get(name, [None])[0] == [list(s) for s in stamps]:
                continue
            size, digest = contents.content_hash(report, mapped=True)
            lines.write(json.dumps([name, size, digest, stamps]) + "\n")
            lines.flush()


def _remembered(path: str | None) -> dict[str, list[object]]:
    import json

    try:
        with open(path or os.devnull, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, list) and v} if isinstance(found, dict) else {}
