"""The pool of processes of the local engine.

Processes are spawned, never forked: a data engine that was used before a fork hangs in the child.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from alltrace.engine.local import Outcome, attempt
from alltrace.trace.absent import keep_pandas_out
from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_TELL_EVERY_S = 0.1
_PATIENCE_S = 5.0
_GARBAGE = 20_000  # objects more than there were, before Python looks for garbage; as in a command

_done: Any = None
"""In a worker: the count of all workers' units of work."""


def in_pool(
    function: Callable[[_Item, Callable[[int], None]], _Result],
    items: Sequence[_Item],
    jobs: int,
    advance: Callable[[int], None],
) -> Iterator[Outcome[_Result]]:
    """`function(item, advance)` for each item in `jobs` processes; see `alltrace.engine.local.run_tasks`."""
    needs_main = b"__main__" in pickle.dumps((function, items[0]))
    context = multiprocessing.get_context("spawn") if needs_main else _Context()
    # A shared number, not a queue: it is up to date when the task's result arrives, and reading it takes no lock, which a worker
    # that was killed may hold for ever
    done = context.Value("q", 0)
    given = (done, "pandas" in sys.modules)
    with _watching(done, advance), ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=given) as pool:
        waiting: dict[Future[Outcome[_Result]], int] = {}
        try:
            # a bounded window: a worker that dies takes few results with it, and the pool's queue stays short
            for index, item in enumerate(items):
                waiting[pool.submit(_in_worker, index, function, item)] = index
                if len(waiting) >= 2 * jobs:
                    yield from _ready(waiting)
            while waiting:
                yield from _ready(waiting)
        except BrokenProcessPool as error:
            raise AlltraceError(
                "a worker process was killed, most often because memory ran out; run it again with a smaller --jobs"
            ) from error
        except BaseException:
            _stop(pool)
            raise


class _Process(SpawnProcess):
    """A spawned process that does not run the user's script again.

    Spawning imports the main module, so a script that asks a question without `if __name__ == "__main__"` would ask it in every
    worker, which waits for its parent's lock while the parent waits for it. What our workers need is in modules.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802  the name is multiprocessing's
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)  # noqa: SLF001  there is no other place to step in
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def _ready(waiting: dict[Future[Outcome[_Result]], int]) -> Iterator[Outcome[_Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        del waiting[future]
        yield future.result()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now; the executor itself would wait for running tasks, and forgets its processes when shut down."""
    workers = list((pool._processes or {}).values())  # noqa: SLF001  the executor has no other way to stop a running task
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(_PATIENCE_S)
        if worker.is_alive():
            worker.kill()


def _start_worker(done: Any, with_pandas: bool) -> None:
    global _done
    _done = done
    gc.set_threshold(_GARBAGE, 10, 10)  # what a worker loads stays, and is not to be looked through again and again
    # Ctrl-C reaches every process of the terminal; the parent decides what becomes of its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if not with_pandas:  # each worker would load it where it is installed, half a second
        keep_pandas_out()


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed, so that it does not go on writing beside the parent's successor."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_worker(index: int, function: Callable[[_Item, Callable[[int], None]], _Result], item: _Item) -> Outcome[_Result]:
    return attempt(index, function, item, _advance)


def _advance(n: int) -> None:
    with _done.get_lock():
        _done.value += n


@contextmanager
def _watching(done: Any, advance: Callable[[int], None]) -> Iterator[None]:
    """Hands what the workers have counted to `advance` while the block runs, and the rest at its end."""
    told = 0
    ended = threading.Event()

    def tell() -> None:
        nonlocal told
        now = done.get_obj().value
        if now != told:
            advance(now - told)
            told = now

    def watch() -> None:
        while not ended.wait(_TELL_EVERY_S):
            tell()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        tell()
