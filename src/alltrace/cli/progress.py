"""Progress of an import on a terminal, on standard error: rows, rate and time left."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from alltrace.run.import_progress import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield `advance(n)` of a progress bar over `total` ranks; it does nothing if standard error is not a terminal."""
    if not sys.stderr.isatty() or total <= 1:
        yield lambda _n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{what}, ranks", total=total)
        yield lambda n: bar.advance(task, n)


class _Bar(Watcher):
    """A bar that appears once there is something to import."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._ranks = 0
        self._done = 0

    def planned(self, ranks: int, rows: int) -> None:
        if ranks == 0:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._ranks = ranks
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(self._text(), total=max(rows, 1), rate="")

    def advance(self, rows: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, rows)
            speed = self._progress.tasks[0].speed
            self._progress.update(self._task, rate=_rate(speed) if speed else "")

    def rank_done(self, ranks: int) -> None:
        self._done += ranks
        if self._progress is not None:
            self._progress.update(self._task, description=self._text())

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()

    def _text(self) -> str:
        return f"importing, {self._done} of {self._ranks} ranks"


def _rate(rows_per_s: float) -> str:
    """A rate in millions or thousands of rows."""
    return f"{rows_per_s / 1e6:.1f} M rows/s" if rows_per_s >= 1e6 else f"{rows_per_s / 1e3:.0f} k rows/s"
