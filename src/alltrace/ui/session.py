"""A run that is shown: opened, aligned and tiled in the background, so that the page opens at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.align.aligned import Aligned
from alltrace.align.store import aligned, has_alignment
from alltrace.run.manifest import read_manifest
from alltrace.run.store import PartialRun, Run
from alltrace.tiles.build import kept_pyramid, pyramid
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.early_view import EarlyView
from alltrace.tiles.view import View
from alltrace.trace.amounts import shortened
from alltrace.trace.errors import AlltraceError, InputError, path_text
from alltrace.ui.history import HistoryFile
from alltrace.ui.kernels import KernelReports
from alltrace.ui.stages import CLOCKS, DOING, LEVELS, Stages

_LOOK_SECONDS = 0.25
_NAME_LENGTH = 50


class NotReadyError(AlltraceError):
    """The requested data is still being computed."""


class GoneError(AlltraceError):
    """The run was removed while it was shown."""


@contextmanager
def alone(lock: threading.Lock, token: Token) -> Iterator[None]:
    """Holds the lock; one who no longer wants the answer does not wait for it, as all who wait share some threads."""
    while not lock.acquire(timeout=_LOOK_SECONDS):
        token.check()
    try:
        token.check()
        yield
    finally:
        lock.release()


class Shown(NamedTuple):
    run: Run  # the run: as it was imported, then aligned
    view: View | None  # it with its pyramid, or before that without; None before the run is known to be readable
    aligned: Aligned | None  # the alignment; None before it is made, and of a run that is still being imported
    number: int  # how often what is shown was exchanged


# It is shown at once, as it was imported; then aligned; then with its pyramid. What is kept of an earlier time is taken
# at once. `scratch`: a folder for the pyramid of a run that is still being imported. `jobs`: the most processes for
# what is made on first use. `kernels`: reports of Nsight Compute that are shown with the run. `history`: a history of
# many runs that is shown with the run. `when_ready`: called in the background once a complete run has its pyramid, for
# the data that the page needs next. `name`: what the page calls the run; None for its folder. `partial`: whether the
# import has not finished. `stages`: how far what is made is.
class Session:
    """One run."""

    def __init__(
        self,
        path: Path,
        scratch: Path,
        jobs: int | None = None,
        kernels: KernelReports | None = None,
        when_ready: "Callable[[Session], object]" = lambda _: None,
        history: HistoryFile | None = None,
        name: str | None = None,
    ) -> None:
        self.path = path
        self.name: str = shortened(path_text(path.name if name is None else name), _NAME_LENGTH)
        self.kernels = kernels  # reports of Nsight Compute, or None
        self.history = history  # the history of many runs, or None
        self.jobs = jobs
        self._scratch = scratch
        self._when_ready = when_ready
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._kept: dict[str, Any] = {}
        self._error: str | None = None
        self._whole = False
        self._ready = threading.Event()
        self._begin(self._opened(), 0)

    def _opened(self) -> Run:
        return Run(self.path) if read_manifest(self.path).complete else PartialRun(self.path)

    def _begin(self, run: Run, number: int) -> None:
        self.partial: bool = isinstance(run, PartialRun)
        self.stages: Stages = Stages([LEVELS] if self.partial else list(DOING), len(run.ranks))
        self._shown = Shown(run, None, None, number)
        self._kept, self._error, self._whole = {}, None, False

    def start(self) -> None:
        threading.Thread(target=self._make_all, daemon=True).start()

    def _make_all(self) -> None:
        self.prepare()
        if self._whole and not self.partial:
            self._when_ready(self)

    def prepare(self) -> None:
        doing = DOING[LEVELS if self.partial else CLOCKS]
        try:
            run, alignment = (self.run, None) if self.partial else self._aligned()
            doing = DOING[LEVELS]
            view = self._with_levels(run, alignment)
            view.heat(view.metrics[0], view.grid.level + 1, 0)  # what the page shows first
            self._show(run, view, alignment, whole=True)
        except (AlltraceError, OSError) as error:
            self._error = str(error)
        except MemoryError:
            self._error = f"memory ran out while {doing}; give fewer --jobs, or more memory"
        finally:
            if not self._whole and self._error is None:  # the page would wait forever
                self._error = (
                    f"an internal error of alltrace while {doing}; please report it with the message in its terminal"
                )
            self._ready.set()

    def _aligned(self) -> tuple[Run, Aligned]:
        """The run aligned; shown as it was imported meanwhile, unless its alignment is kept."""
        run = copy(self.run)  # those who look at the other one see it as it was opened
        if not has_alignment(run):
            self._show(self.run, EarlyView(self.run), None)
        with self.stages.doing(CLOCKS) as advance:
            return run, aligned(run, jobs=self.jobs, progress=advance)

    def _with_levels(self, run: Run, alignment: Aligned | None) -> View:
        """The run with its pyramid; shown without it meanwhile, unless that is kept."""
        folder = self._scratch / "tiles" if self.partial else None
        if kept_pyramid(run, folder) is None:
            self._show(run, EarlyView(run), alignment)
        with self.stages.doing(LEVELS) as advance:
            return View(run, pyramid(run, folder=folder, jobs=self.jobs, progress=advance))

    def _show(self, run: Run, view: View, alignment: Aligned | None, *, whole: bool = False) -> None:
        with self._lock:
            if alignment is not self._shown.aligned:
                self._kept = {}
            self._shown = Shown(run, view, alignment, self._shown.number + 1)
            self._whole = whole

    def reopen(self) -> None:
        """Look again at a run that was still being imported: more of it may be there."""
        with self._lock:
            if not self.partial or not self._ready.is_set():
                return
            run = self._opened()
            if {r.rank for r in self._shown.run.ranks} == {r.rank for r in run.ranks} and isinstance(run, PartialRun):
                return
            self._ready.clear()
            self._begin(run, self._shown.number + 1)
        self.start()

    @property
    def state(self) -> dict[str, Any]:
        """What the page may show by now."""
        # Returns `shown` (how often the shown data was replaced; None if nothing is shown yet), `aligned`, `ready`
        # (whether clocks and pyramid are made), `partial`, `error` (why they could not be made, or None), and `stages`,
        # see `Stages.told`.
        with self._lock:
            shown, whole, error = self._shown, self._whole, self._error
        return {
            "shown": None if shown.view is None or error is not None else shown.number,
            "aligned": shown.aligned is not None,
            "ready": whole,
            "partial": self.partial,
            "error": error,
            "stages": self.stages.told(),
        }

    @property
    def shown(self) -> Shown:
        with self._lock:
            return self._shown

    @property
    def run(self) -> Run:
        return self.shown.run

    @property
    def aligned(self) -> Aligned | None:
        return self.shown.aligned

    @property
    def view(self) -> View:
        """What can be shown: perhaps before the clocks are aligned, and without a pyramid."""
        # Raises `NotReadyError`: it is still being opened. Raises `AlltraceError`: it could not be made.
        view = self.shown.view
        if view is None or self._error is not None:  # a damaged run is not shown: the data could be any part of it
            raise self._not_ready()
        return view

    def check_ready(self) -> None:
        """Raises NotReadyError while clocks or levels of detail are still made, and AlltraceError if that failed."""
        if not self._whole:
            raise self._not_ready()

    def _not_ready(self) -> AlltraceError:
        return NotReadyError(self.stages.current) if self._error is None else AlltraceError(self._error)

    def kept(self, name: str, make: Callable[[], Any], token: Token = WANTED) -> Any:
        """The answer cached under `name`, made by `make()` the first time; other names do not wait for it."""
        with self._lock:
            answers = self._kept  # of a run that is opened again meanwhile, what is made now is of the old one
            making = self._making.setdefault(name, threading.Lock())
        with alone(making, token):
            if name not in answers:
                answers[name] = make()
            return answers[name]

    def made(self, stage: str, make: Callable[[Callable[[int], None]], Any], token: Token = WANTED) -> Any:
        """The answer of a stage: cached, or made by `make(advance)`, which reports how many ranks are done."""

        def doing() -> Any:
            with self.stages.doing(stage) as advance:
                return make(advance)

        return self.kept(stage, doing, token)

    def check_there(self) -> None:
        """Raises GoneError where the run was removed."""
        if not (self.path / "manifest.json").is_file():
            raise GoneError(f"{self.path} was removed while it was open; import the reports again and reopen it")


def understandable(session: Session, error: AlltraceError | OSError) -> AlltraceError:
    """The error to report: that the run was removed, if that is why a file of it cannot be read."""
    if isinstance(error, InputError | OSError):
        try:
            session.check_there()
        except GoneError as gone:
            return gone
    return (
        error
        if isinstance(error, AlltraceError)
        else AlltraceError(f"a file cannot be read: {error.strerror or error}")
    )
