"""The stages in which a run is made ready for the page, and how far each of them is."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CLOCKS, LEVELS, JOB_TIME, FINDINGS = "clocks", "levels", "job-time", "findings"

DOING = {
    CLOCKS: "aligning clocks",
    LEVELS: "drawing levels of detail",
    JOB_TIME: "adding up where the time went",
    FINDINGS: "looking for what costs time",
}
"""What is done in each stage, in the order of the stages."""

_LEAST_SECONDS = 0.5
"""The time after which the speed of a stage predicts the rest."""


@dataclass
class _Stage:
    state: str = "waiting"
    done: int = 0
    error: str | None = None
    kept: int = 0  # of `done`, what was there before
    since: float | None = None


class Stages:
    """How far each stage is; for many threads. `names`: the stages, keys of `DOING`. `ranks`: the ranks of the run."""

    def __init__(self, names: Sequence[str], ranks: int) -> None:
        self._ranks = ranks
        self._lock = threading.Lock()
        self._stages = {name: _Stage() for name in names}

    @contextmanager
    def doing(self, name: str) -> Iterator[Callable[[int], None]]:
        """Run a stage: yields a function to call with the number of ranks done; an exception is its error."""
        stage = _Stage("doing")
        with self._lock:
            if name in self._stages:
                self._stages[name] = stage

        def advance(ranks: int) -> None:
            with self._lock:
                stage.done += ranks
                if stage.since is None:
                    stage.since, stage.kept = time.monotonic(), stage.done

        try:
            yield advance
        except BaseException as error:
            with self._lock:
                stage.state, stage.error = "failed", str(error) or type(error).__name__
            raise
        with self._lock:
            stage.state = "done"

    def told(self) -> list[dict[str, Any]]:
        # Returns `name`, `doing` (what is done in it), `state` (`waiting`, `doing`, `done` or `failed`), `done` of
        # `ranks` ranks, `rest_s` (how long those left take at the speed of those done; None if it is not known), and
        # `error`.
        now = time.monotonic()
        with self._lock:
            return [
                {
                    "name": name,
                    "doing": DOING[name],
                    "state": stage.state,
                    "done": min(stage.done, self._ranks),
                    "ranks": self._ranks,
                    "rest_s": self._rest_s(stage, now),
                    "error": stage.error,
                }
                for name, stage in self._stages.items()
            ]

    def _rest_s(self, stage: _Stage, now: float) -> float | None:
        computed = stage.done - stage.kept
        if stage.state != "doing" or stage.since is None or computed <= 0 or now - stage.since < _LEAST_SECONDS:
            return None
        return round((now - stage.since) * max(self._ranks - stage.done, 0) / computed, 1)

    @property
    def current(self) -> str:
        """What is done now, with how far it is; or what was done last."""
        rows = self.told()
        begun = [r for r in rows if r["state"] != "waiting"] or rows[:1]
        row = next((r for r in begun if r["state"] == "doing"), begun[-1])
        return f"{row['doing']}: {row['done']} of {row['ranks']} ranks done"
