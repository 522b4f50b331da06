"""What runs on a worker of a Dask cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from alltrace.engine.outcome import Outcome, attempt

if TYPE_CHECKING:
    from collections.abc import Callable


class Shared(WorkerPlugin):
    """What the tasks of one call of the engine do, with all that they share: Dask gives it to each worker before any task.

    Args:
        function: A function of an item and `advance(n)`.
    """

    def __init__(self, function: Callable[[Any, Callable[[int], None]], Any]) -> None:
        self.function = function


def on_worker(topic: str, index: int, item: Any) -> Outcome[Any]:
    """One task.

    Args:
        topic: The name of the call: of its `Shared`, and of what is told of its progress.
        index: The item's position.
        item: The item.
    """
    worker = get_worker()

    def advance(count: int) -> None:
        with suppress(Exception):  # progress is told as far as it can be
            worker.log_event(topic, count)

    shared: Any = worker.plugins[topic]
    return attempt(index, shared.function, item, advance)
