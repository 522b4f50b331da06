"""The local engine: a task per item, in this process or in a pool of spawned processes (`alltrace.engine.pool`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from alltrace.engine.outcome import Outcome, attempt

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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

    `function`: a module-level function of an item and `advance(n)`, which it may call to report n units of work
    done. It is pickled once for each process, with the arguments of a `functools.partial`: use these for data that
    all items need. `items`: the items; each is pickled to its process, so keep them small. `jobs`: the most
    processes; None for the number of processors. One item, or one job, runs in this process. `progress`: called in
    this process with what the tasks report. Yields an `Outcome` for each item, in order of completion. Raises
    `AlltraceError`: a worker process was killed (out of memory, most often).
    """
    jobs = min(default_jobs() if jobs is None else max(1, jobs), len(items))
    advance = progress or (lambda _n: None)
    if jobs <= 1:
        for index, item in enumerate(items):
            yield attempt(index, function, item, advance)
        return
    from alltrace.engine.pool import in_pool  # it loads what processes need

    yield from in_pool(function, items, jobs, advance)
