"""Reads, while no request waits for an answer, the events that the next zoom will need."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from alltrace.trace.errors import AlltraceError

MOST_JOBS = 64
"""How many ranks are read ahead for a view; more would evict each other from the cache."""

_IDLE_SECONDS = 5.0


class Prefetcher:
    """Does the latest wishes, one at a time, in a thread that ends when there is nothing to do."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._asking = 0
        self._running = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While an answer is made no new wish is begun."""
        with self._changed:
            self._asking += 1
        try:
            yield
        finally:
            with self._changed:
                self._asking -= 1
                self._changed.notify_all()

    def want(self, jobs: Iterable[Callable[[], object]]) -> None:
        """Do these, and forget what was wished for another view."""
        with self._changed:
            self._jobs = deque(list(jobs)[:MOST_JOBS])
            if self._jobs and not self._running:
                self._running = True
                threading.Thread(target=self._work, daemon=True).start()
            self._changed.notify_all()

    def done(self, seconds: float) -> bool:
        """Wait until all wishes are done; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, seconds)

    _busy = False

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                ready = self._changed.wait_for(lambda: self._jobs and not self._asking, _IDLE_SECONDS)
                if not ready and not self._jobs:
                    self._running = False
                    return
                if not ready:
                    continue
                job = self._jobs.popleft()
                self._busy = True
            with suppress(AlltraceError, OSError):  # the request for it reports the error
                job()
