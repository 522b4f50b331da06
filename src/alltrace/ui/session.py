"""A run that is being looked at: opened, aligned and tiled in the background, so that the page is there at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from alltrace.run.store import Run
from alltrace.tiles.view import View
from alltrace.trace.errors import AlltraceError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alltrace.align.aligned import Aligned
    from alltrace.ui.kernels import KernelReports


class NotReadyError(AlltraceError):
    """What was asked for is still being made."""


class GoneError(AlltraceError):
    """The run was removed while it was looked at."""


class Session:
    """One run.

    Args:
        path: The run directory.
        scratch: A folder for the pyramid of a run that is still being imported.
        jobs: The most processes for what is made on first use.
        kernels: Reports of Nsight Compute that are shown with the run.
        when_ready: Called in the background once all is made, for what the page asks first.

    Attributes:
        path: The run directory.
        kernels: Reports of Nsight Compute, or None.
        jobs: The most processes.
        partial: Whether the import has not come to its end.
        aligned: The alignment; None before it is made, and of a run that is still being imported.
    """

    def __init__(
        self,
        path: Path,
        scratch: Path,
        jobs: int | None = None,
        kernels: KernelReports | None = None,
        when_ready: Callable[[Session], object] = lambda _: None,
    ) -> None:
        self.path = path
        self.kernels = kernels
        self.jobs = jobs
        self._scratch = scratch
        self._when_ready = when_ready
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._done = 0
        self._doing = "opening"
        self._error: str | None = None
        self._view: View | None = None
        self.aligned: Aligned | None = None
        self._kept: dict[str, Any] = {}
        self._ready = threading.Event()
        self.run: Run = self._opened()

    def _opened(self) -> Run:
        from alltrace.run.manifest import read_manifest
        from alltrace.run.partial import PartialRun

        self.partial: bool = not read_manifest(self.path).complete
        if self.partial:
            return PartialRun(self.path)
        return Run(self.path)

    def start(self) -> None:
        """Align the run and make its pyramid, in a thread of its own."""
        threading.Thread(target=self.prepare, daemon=True).start()

    def prepare(self) -> None:
        """Align the run and make its pyramid, now."""
        from alltrace.align.store import aligned
        from alltrace.tiles.build import pyramid

        try:
            if not self.partial:
                self._doing = "aligning clocks"
                self.aligned = aligned(self.run, jobs=self.jobs, progress=self._advance)
            self._done, self._doing = 0, "drawing levels of detail"
            folder = self._scratch / "tiles" if self.partial else None
            view = View(self.run, pyramid(self.run, folder=folder, jobs=self.jobs, progress=self._advance))
            view.heat(view.metrics[0], view.grid.level + 1, 0)  # what the page shows first
            self._view, self._doing = view, "ready"
            self._when_ready(self)
        except (AlltraceError, OSError) as error:
            self._error = str(error)
        except MemoryError:
            self._error = f"memory ran out while {self._doing}; give fewer --jobs, or more memory"
        finally:
            if self._view is None and self._error is None:  # the page would wait for ever
                self._error = (
                    f"an internal error of alltrace while {self._doing}; please report it with the message in its terminal"
                )
            self._ready.set()

    def reopen(self) -> None:
        """Look again at a run that was still being imported: more of it may be there."""
        with self._lock:
            if not self.partial or not self._ready.is_set():
                return
            before = {r.rank for r in self.run.ranks}
            self.run = self._opened()
            if {r.rank for r in self.run.ranks} == before and self.partial:
                return
            self._ready.clear()
            self._view, self.aligned, self._error, self._kept = None, None, None, {}
        self.start()

    def _advance(self, ranks: int) -> None:
        self._done += ranks

    @property
    def state(self) -> dict[str, Any]:
        """What is being made: `doing`, `done` of `ranks` ranks, `ready`, `partial`, and `error` where it failed."""
        return {
            "doing": self._doing,
            "done": self._done,
            "ranks": len(self.run.ranks),
            "ready": self._view is not None,
            "partial": self.partial,
            "error": self._error,
        }

    @property
    def view(self) -> View:
        """The run with its pyramid.

        Raises:
            NotReadyError: It is still being made.
            AlltraceError: It could not be made.
        """
        if self._view is None:
            if self._error is not None:
                raise AlltraceError(self._error)
            raise NotReadyError(f"{self._doing}: {self._done} of {len(self.run.ranks)} ranks done")
        return self._view

    def kept(self, name: str, make: Any) -> Any:
        """The answer kept under `name`, made by `make()` the first time; what is asked under other names does not wait for it."""
        with self._lock:
            kept = self._kept  # of a run that is opened again meanwhile, what is made now is of the old one
            making = self._making.setdefault(name, threading.Lock())
        with making:
            if name not in kept:
                kept[name] = make()
            return kept[name]

    def check_there(self) -> None:
        """Raises GoneError where the run was removed."""
        if not (self.path / "manifest.json").is_file():
            raise GoneError(f"{self.path} was removed while it was open; import the reports again and reopen it")


def understandable(session: Session, error: AlltraceError | OSError) -> AlltraceError:
    """The error to tell: that the run was removed, where that is why a file of it cannot be read."""
    if isinstance(error, InputError | OSError):
        try:
            session.check_there()
        except GoneError as gone:
            return gone
    return error if isinstance(error, AlltraceError) else AlltraceError(f"a file cannot be read: {error.strerror or error}")
