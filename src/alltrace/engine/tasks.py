"""Runs a function over items by the engine in use: processes of this machine, unless a cluster was chosen."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from alltrace.engine.outcome import Outcome, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from alltrace.engine.cluster import ClusterEngine

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

__all__ = ["Outcome", "default_jobs", "remote", "run_tasks", "sharing", "using"]

_engine: ClusterEngine | None = None


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def using(engine: ClusterEngine) -> Iterator[None]:
    """Within the block, tasks of all threads of this process run by `engine`."""
    global _engine
    before, _engine = _engine, engine
    try:
        yield
    finally:
        _engine = before


def remote() -> bool:
    return _engine is not None


@contextmanager
def sharing(paths: Sequence[Path]) -> Iterator[None]:
    """A block whose tasks need files that this process sees: no worker runs one that does not see the same."""
    if _engine is None:
        yield
        return
    with _engine.sharing(paths):
        yield


def run_tasks(
    function: Callable[[_Item, Callable[[int], None]], _Result],
    items: Sequence[_Item],
    *,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    hosts: Sequence[str | None] | None = None,
    needs: Sequence[Path] = (),
) -> Iterator[Outcome[_Result]]:
    """`function(item, advance)` for each item, by the engine in use; outcomes come as they are ready."""
    # `function`: a module-level function of an item and `advance(n)`, which it may call to report n units of work
    # done. It is pickled once for each worker, with the arguments of a `functools.partial`: use these for data that all
    # items need. `items`: the items; each is pickled to where it runs, so keep them small. `jobs`: the most processes
    # of this machine, None for the number of processors; a cluster has as many as it has, but with 1 all runs in this
    # process, as does one item without a cluster. `progress`: called in this process with what the tasks report.
    # `hosts`: for each item the only host of a cluster that may work on it; None for any. `needs`: files and folders
    # that a worker of a cluster must see as this process does. Yields an `Outcome` for each item, in order of
    # completion.
    engine = _engine
    if engine is not None and jobs != 1:
        if items:
            yield from engine.run_tasks(function, items, progress, hosts=hosts, needs=needs)
        return
    jobs = min(default_jobs() if jobs is None else max(1, jobs), len(items))
    advance = progress or (lambda _n: None)
    if jobs <= 1:
        for index, item in enumerate(items):
            yield attempt(index, function, item, advance)
        return
    from alltrace.engine.pool import in_pool  # it loads what processes need

    yield from in_pool(function, items, jobs, advance)
