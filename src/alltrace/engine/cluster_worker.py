"""What runs on a worker of a Dask cluster."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distributed import get_worker
from distributed.protocol import pickle

from alltrace.engine.outcome import Outcome, attempt

if TYPE_CHECKING:
    from collections.abc import Callable


def on_worker(topic: str, function: bytes, index: int, item: Any) -> Outcome[Any]:
    """One task.

    Args:
        topic: The name of the call of the engine, under which progress is reported.
        function: A pickled function of an item and `advance(n)`, which a worker loads once for all tasks of a call.
        index: The item's position.
        item: The item.
    """
    worker = get_worker()

    def advance(count: int) -> None:
        with suppress(Exception):  # progress is reported as far as possible
            worker.log_event(topic, count)

    return attempt(index, _loaded(topic, function), item, advance)


@lru_cache(2)
def _loaded(_topic: str, function: bytes) -> Callable[[Any, Callable[[int], None]], Any]:
    loaded: Callable[[Any, Callable[[int], None]], Any] = pickle.loads(function)  # type: ignore[no-untyped-call]
    return loaded
