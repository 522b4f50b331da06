"""The local engine: a task per item, in this process or in a pool of spawned processes (`alltrace.engine.pool`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Outcome(Generic[_Result]):
    """What became of one item: its result, or the error that was raised on purpose.

    Attributes:
        index: The item's position.
        result: What the function returned, or None.
        error: The `AlltraceError` it raised, or None.
    """

    def __init__(self, index: int, result: _Result | None, error: AlltraceError | None) -> None:
        self.index = index
        self.result = result
        self.error = error

    def get(self) -> _Result:
        """The result; raises the error where there is one."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


def default_jobs() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(
    function: Callable[[_Item, Callable[[int], None]], _Result],
    items: Sequence[_Item],
    *,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Outcome[_Result]]:
    """`function(item, advance)` for each item; outcomes come as they are ready.

    Args:
        function: A module-level function of an item and `advance(n)`, which it may call to report n units of work done.
        items: The items; each is pickled to its process, so keep them small.
        jobs: The most processes; None for the number of processors. One item, or one job, runs in this process.
        progress: Called in this process with what the tasks report.

    Yields:
        An `Outcome` for each item, in order of completion.

    Raises:
        AlltraceError: A worker process was killed (out of memory, most often).
    """
    jobs = min(default_jobs() if jobs is None else max(1, jobs), len(items))
    advance = progress or (lambda _n: None)
    if jobs <= 1:
        for index, item in enumerate(items):
            yield attempt(index, function, item, advance)
        return
    from alltrace.engine.pool import in_pool  # it loads what processes need

    yield from in_pool(function, items, jobs, advance)


def attempt(
    index: int, function: Callable[[_Item, Callable[[int], None]], _Result], item: _Item, advance: Callable[[int], None]
) -> Outcome[_Result]:
    """The outcome of one item, in this process."""
    try:
        return Outcome(index, function(item, advance), None)
    except AlltraceError as error:
        return Outcome(index, None, error)
