"""What runs on a worker of a Dask cluster."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from distributed import get_worker
from distributed.protocol import pickle

from alltrace.engine.outcome import Outcome, attempt
from alltrace.engine.seen import Mark, host_names, unseen

PATIENCE_S = 3.0
"""How late a new file may appear on a shared file system."""


class Call(NamedTuple):
    topic: str  # the name of the call, under which progress is reported
    function: bytes  # a pickled function of an item and `advance(n)`, which a worker loads once for all tasks of a call
    needs: tuple[Mark, ...] = ()  # the files that a worker must see as the caller does


class UnseenError(Exception):
    """A worker does not see files of the caller. `host`: the worker's machine."""

    def __init__(self, host: str, paths: list[str]) -> None:
        super().__init__(host, paths)
        self.host = host
        self.paths = paths


def on_worker(call: Call, items: list[tuple[int, Any]]) -> tuple[list[Outcome[Any]], float]:
    """One task: one item after another."""
    # `items`: the items, with their positions. Returns their outcomes, and how many seconds they took.
    worker = get_worker()
    function = _loaded(call)
    start_s = time.monotonic()

    def advance(count: int) -> None:
        with suppress(Exception):  # progress is reported as far as possible
            worker.log_event(call.topic, count)

    outcomes = [attempt(index, function, item, advance) for index, item in items]
    return outcomes, time.monotonic() - start_s


@lru_cache(2)
def _loaded(call: Call) -> Callable[[Any, Callable[[int], None]], Any]:
    missing = unseen(call.needs, PATIENCE_S)
    if missing:
        raise UnseenError(host_names()[0], missing)
    loaded: Callable[[Any, Callable[[int], None]], Any] = pickle.loads(call.function)  # type: ignore[no-untyped-call]
    return loaded


def unseen_here(marks: tuple[Mark, ...]) -> list[str]:
    return unseen(marks, PATIENCE_S)
