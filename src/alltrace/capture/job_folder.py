"""The files by which the ranks of a job see each other, in a folder that all nodes must see, next to the run directory.

began.7       rank 7 has started
done.7        rank 7 has left its reports, or none; its content states what is missing
finishing     a rank finishes the run
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from alltrace.trace.errors import InputError

_BEGAN, _DONE, _FINISHING = "began.", "done.", "finishing"
_SEEN_S = 90.0
"""Some shared file systems show a new file of another node after a minute."""
_POLL_S = 0.2


class JobFolder:
    """The folder, for one rank of the given number that are profiled; None if that is unknown."""

    def __init__(self, folder: Path, rank: int, count: int | None = None) -> None:
        self.folder = folder
        self._rank = rank
        self._count = count or 0

    def begin(self, *, first: bool) -> None:
        """Announce to the others that this rank has started.

        `first`: whether it is the first of those that are profiled.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._path(_DONE).unlink(missing_ok=True)  # of a job of the same name before
            if first:
                (self.folder / _FINISHING).unlink(missing_ok=True)
            self._path(_BEGAN).write_text(f"{os.uname().nodename} {os.getpid()}\n", encoding="ascii")
        except OSError as error:
            raise InputError(
                self.folder, found=f"it cannot be written ({error.strerror})", advice="give another --run or --output"
            ) from error

    def meet(self, stop: Callable[[float], bool], patience_s: float = _SEEN_S) -> None:
        """Wait until all ranks that are profiled see each other, before any of them starts its program.

        `stop`: waits a number of seconds; returns whether this rank must end.
        """
        until = time.monotonic() + patience_s
        while (seen := len(self._numbers(_BEGAN))) < self._count:
            if time.monotonic() > until:
                raise InputError(
                    self.folder.parent,
                    found=f"only {seen} of {self._count} ranks see it after {patience_s:g} s",
                    expected="a folder that all nodes of the job share, for the run directory",
                    advice="give another --run, or leave out --then; nothing was run",
                )
            if stop(_POLL_S):
                raise InputError(
                    self.folder.parent, found=f"{seen} of {self._count} ranks saw it when the job was ended; nothing was run"
                )

    def done(self, lacking: str = "") -> None:
        part = self.folder / f".{_DONE}{self._rank}"
        with suppress(OSError):  # then the finishing rank waits for it in vain
            part.write_text(lacking, encoding="utf-8", errors="backslashreplace")
            part.replace(self._path(_DONE))

    def missing(self) -> list[str]:
        """The ranks that are not done, by number, with the number of those that have not begun at the end."""
        began, done = self._numbers(_BEGAN), self._numbers(_DONE)
        absent = self._count - len(began | done)
        return [*map(str, sorted(began - done)), *([f"{absent} that did not begin"] if absent > 0 else [])]

    def may_finish(self) -> bool:
        """Whether this rank is the one that finishes the run; so once for each job."""
        try:
            os.close(os.open(self.folder / _FINISHING, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except OSError:
            return False
        return True

    def finished_by_another(self) -> bool:
        """Whether another rank finishes the run, or has finished it and removed the folder."""
        return (self.folder / _FINISHING).exists() or not self.folder.exists()

    def wait(self, patience_s: float, stop: Callable[[float], bool]) -> list[str]:
        """Wait for the other ranks, up to a time after the last one that was done; returns those that were not.

        `stop`: waits a number of seconds; returns whether this rank must end.
        """
        missing, until = self.missing(), time.monotonic() + patience_s
        while missing and time.monotonic() < until and not self.finished_by_another() and not stop(min(1.0, patience_s / 4)):
            now = self.missing()
            if now != missing:
                missing, until = now, time.monotonic() + patience_s
        return missing

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}{self._rank}"

    def _numbers(self, kind: str) -> set[int]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  only names are needed
        except OSError:
            return set()
        return {int(n[len(kind) :]) for n in names if n.startswith(kind) and n[len(kind) :].isdecimal()}
