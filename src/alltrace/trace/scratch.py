"""Temporary folders, and the error if one cannot be created or is full.

A process that is killed leaves its folders. Each has a file that its process holds a lock on, which the system gives up
with the process: the next process that makes a folder in the same place removes those that nobody holds any more.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from alltrace.trace.errors import InputError

LOCK = ".alltrace-lock"
"""The file in a folder, locked as long as the folder is in use."""

_NEW_SECONDS = 60.0
_HOST = os.uname().nodename.encode()


class _Folder(tempfile.TemporaryDirectory[str]):
    def __init__(self, prefix: str, place: Path | None) -> None:
        super().__init__(prefix=prefix, dir=place, ignore_cleanup_errors=True)
        with suppress(OSError):  # of a file system without locks nothing is removed either
            self._lock: Any = Path(self.name, LOCK).open("wb")  # noqa: SIM115  open as long as the folder is in use
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.write(_HOST)
            self._lock.flush()

    def cleanup(self) -> None:
        if hasattr(self, "_lock"):
            self._lock.close()  # NFS keeps a file that is removed while it is open
        super().cleanup()


@cache
def _swept(place: Path) -> None:
    """Remove the folders in `place` that processes of this user have left; once in each process."""
    for lock in place.glob(f"*alltrace-*/{LOCK}"):
        with suppress(OSError):
            facts = lock.lstat()
            new = time.time() - facts.st_mtime < _NEW_SECONDS  # its process may not have locked it yet
            if new or lock.is_symlink() or lock.parent.is_symlink() or facts.st_uid != os.getuid():
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while it is in use
                if file.read() != _HOST:  # locks of some file systems count on their own host only
                    continue
            shutil.rmtree(lock.parent, ignore_errors=True)


def scratch_folder(prefix: str, place: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A new folder for temporary files, of this user alone; it goes with `cleanup`, a `with` block or the object."""
    # `prefix`: what its name begins with. `place`: the folder for it; None for the user's.
    try:
        _swept(Path(tempfile.gettempdir() if place is None else place))
        return _Folder(prefix, place)
    except OSError as error:
        raise InputError(
            Path(error.filename).parent if error.filename else "TMPDIR",
            found=f"no temporary folder can be made ({error.strerror or error})",
            advice=f"free some space, or {_elsewhere(place)}",
        ) from error


def _elsewhere(place: Path | None) -> str:
    if place is None or place.is_relative_to(tempfile.gettempdir()):
        return "set TMPDIR to a writable folder"
    return "name a file or folder in a writable one"


def scratch_folder_if_possible(prefix: str) -> tempfile.TemporaryDirectory[str] | None:
    """As `scratch_folder`; None if none can be created, for what rarely needs one."""
    try:
        return scratch_folder(prefix)
    except InputError:
        return None


def use_scratch(folder: str) -> None:
    """Have this process, and those that it starts, make their temporary files in a folder that goes with them."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@contextmanager
def writing_scratch(folder: Path, what: str) -> Iterator[None]:
    """A block that writes temporary files."""
    # `what`: what they hold, as the subject of a sentence in the plural: `the rows of the answer`.
    try:
        yield
    except OSError as error:
        advice = "free some space, or set TMPDIR to a folder on a larger disk"
        raise InputError.cannot_be("written there", folder, error, what=what, advice=advice) from error
