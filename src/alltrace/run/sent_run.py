"""A run that tasks in other processes are about."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from alltrace.run.manifest import MANIFEST
from alltrace.run.store import Run


class SentRun:
    """A run that is sent to processes as its path, and opened once in each, when a task first needs it."""

    def __init__(self, run: Run) -> None:
        self._kind = type(run)
        self._path = run.path.absolute()  # workers may be started in another folder
        self._align = None if run.overlay is None else run.overlay.folder.absolute()
        self._in_session = run.in_session
        self.run = run

    @property
    def needs(self) -> tuple[Path, ...]:
        """What the other processes must see."""
        return (self._path / MANIFEST,)

    @cached_property
    def run(self) -> Run:
        """The run. Raises `InputError`: a file of the run is damaged."""
        run = self._kind(self._path) if self._align is None else self._kind(self._path, align=self._align)
        return run.in_session_time() if self._in_session else run

    def __getstate__(self) -> dict[str, type[Run] | Path | bool | None]:
        return {"_kind": self._kind, "_path": self._path, "_align": self._align, "_in_session": self._in_session}
