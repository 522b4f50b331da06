"""Progress on a terminal, on standard error: of an import in rows, rate and time left, and of stages over ranks."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, Timer
from typing import Any

from alltrace.run.import_progress import Watcher

ALIGNING = "aligning clocks"
"""The stage in which a run is aligned."""
_SOON_S = 0.5
"""Nothing is shown of what takes less."""
_WORKING = "working"
"""What is shown until a rank is done in any stage."""


@contextmanager
def watching() -> Iterator[Watcher]:
    """A watcher that draws a bar when standard error is a terminal, and is silent otherwise."""
    if not sys.stderr.isatty():
        yield Watcher()
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def stages(ranks: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Yield a function that names a stage and returns its `advance(n)`, for progress over a number of ranks."""
    # bars appear on standard error if it is a terminal and the work takes long enough to be seen
    bars = _Stages(ranks)
    try:
        yield bars.advance_of
    finally:
        bars.close()


class _Stages:
    def __init__(self, ranks: int) -> None:
        self._ranks, self._begun = ranks, time.monotonic()
        self._soon: Timer | None = None
        self._lock = RLock()
        self._progress: Any = None
        self._bars: dict[str, Any] = {}
        self._done: Counter[str] = Counter()

    def advance_of(self, stage: str) -> Callable[[int], None]:
        if self._soon is None and sys.stderr.isatty():
            self._soon = Timer(_SOON_S, self._show, [_WORKING])
            self._soon.start()

        def advance(ranks: int) -> None:
            self._done[stage] += ranks
            if self._soon is not None and time.monotonic() - self._begun >= _SOON_S:
                self._show(stage)

        return advance

    def close(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon.join()
        if self._progress is not None:
            self._progress.stop()

    def _show(self, stage: str) -> None:
        with self._lock:
            if self._progress is None:
                self._progress = _begun("{task.fields[done]}", "{task.elapsed:.0f} s")
            if stage == _WORKING:
                if not self._bars:
                    self._bars[stage] = self._progress.add_task(stage, total=None, done="")
                return
            if _WORKING in self._bars:
                self._progress.remove_task(self._bars.pop(_WORKING))
            if stage not in self._bars:
                self._bars[stage] = self._progress.add_task(f"{stage}, ranks", total=self._ranks, done="")
            done = min(self._done[stage], self._ranks)
            self._progress.update(self._bars[stage], completed=done, done=f"{done}/{self._ranks}")
            if done == self._ranks:
                self._progress.stop_task(self._bars[stage])


def _begun(*columns: str) -> Any:
    """Bars on standard error, with their descriptions, these columns and the time left, until they are stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    parts: list[Any] = ["{task.description}", BarColumn(), *columns, TimeRemainingColumn()]
    bars = Progress(*parts, console=Console(stderr=True), transient=True)
    bars.start()
    return bars


class _Bar(Watcher):
    """A bar that appears as soon as an import begins."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._ranks = self._done = 0

    def looking(self) -> None:
        self._progress = _begun("{task.percentage:>3.0f}%", "{task.fields[rate]}")
        self._task = self._progress.add_task("looking for reports", total=None, rate="")

    def listed(self, reports: int) -> None:
        self._progress.reset(self._task, total=reports, description="opening reports")

    def opened(self, reports: int) -> None:
        self._progress.advance(self._task, reports)

    def planned(self, ranks: int, rows: int) -> None:
        self._ranks = ranks
        self._progress.reset(self._task, total=max(rows, 1), description=self._text())

    def advance(self, rows: int) -> None:
        self._progress.advance(self._task, rows)
        speed = self._progress.tasks[0].speed
        self._progress.update(self._task, rate=_rate(speed) if speed else "")

    def rank_done(self, ranks: int) -> None:
        self._done += ranks
        self._progress.update(self._task, description=self._text())
        if self._done >= self._ranks:  # how many rows there are was estimated
            self._progress.update(self._task, completed=self._progress.tasks[0].total)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _text(self) -> str:
        return f"importing, {self._done} of {self._ranks} ranks"


def _rate(rows_per_s: float) -> str:
    return f"{rows_per_s / 1e6:.1f} M rows/s" if rows_per_s >= 1e6 else f"{rows_per_s / 1e3:.0f} k rows/s"
