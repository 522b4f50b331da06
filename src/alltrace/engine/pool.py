"""The worker processes of the local engine, by loky.

loky spawns workers (a forked one would hang in a data engine that its parent has used), does not run the user's script
again in each of them, and ends all workers when one of them is killed.
"""

import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from loky import ProcessPoolExecutor
from loky.backend import get_context
from loky.process_executor import BrokenProcessPool

from alltrace.engine.outcome import Outcome, attempt
from alltrace.trace.errors import AlltraceError, InputError
from alltrace.trace.scratch import scratch_folder, use_scratch

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_REPORT_EVERY_S = 0.1
_PARENT_POLL_S = 1.0
_GARBAGE_THRESHOLD = 20_000

_reports: Any = None
"""In a worker: the queue of (item, units of work done since the last report)."""

_function: Any = None
"""In a worker: what it does with items."""


def in_pool(
    function: Callable[[_Item, Callable[[int], None]], _Result],
    items: Sequence[_Item],
    jobs: int,
    advance: Callable[[int], None],
) -> Iterator[Outcome[_Result]]:
    """`function(item, advance)` for each item in `jobs` processes; see `alltrace.engine.tasks.run_tasks`."""
    # workers may be ended at any time, and what they have on disk then goes with this folder
    with _scratch() as scratch:
        context = get_context("loky")
        reports = context.SimpleQueue()
        # the function, with all that it holds, goes to each worker once; tasks are the items alone
        pool = ProcessPoolExecutor(
            jobs, context=context, initializer=_start_worker, initargs=(reports, os.getpid(), function, scratch)
        )
        waiting: set[Future[tuple[Outcome[_Result], int]]] = set()
        try:
            with _progress(reports, advance) as finish:
                # a bounded window: a worker that dies takes few results with it, and the pool's queue stays short
                for index, item in enumerate(items):
                    waiting.add(pool.submit(_in_worker, index, item))
                    if len(waiting) >= 2 * jobs:
                        yield from _completed(waiting, finish)
                while waiting:
                    yield from _completed(waiting, finish)
        except BrokenProcessPool as error:
            raise AlltraceError(
                "a worker process was killed, most likely because memory ran out; run it again with a smaller --jobs"
            ) from error
        except BaseException:
            pool.shutdown(kill_workers=True)  # no caller waits for running tasks any more
            raise
        pool.shutdown()


def _scratch() -> AbstractContextManager[str | None]:
    try:
        return scratch_folder("alltrace-work-")
    except InputError:  # most tasks need none
        return nullcontext()


def _completed(
    waiting: set[Future[tuple[Outcome[_Result], int]]], finish: Callable[[int, int], None]
) -> Iterator[Outcome[_Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        waiting.remove(future)
        outcome, units = future.result()
        finish(outcome.index, units)
        yield outcome


@contextmanager
def _progress(reports: Any, advance: Callable[[int], None]) -> Iterator[Callable[[int, int], None]]:
    """Pass on what workers report while the block runs."""
    # Yields a function of an item and all its units of work, to be called with its result: it passes on what has not
    # been reported yet, so that progress is complete when the result is.
    lock = threading.Lock()
    reported: dict[int, int] = {}
    finished: set[int] = set()

    def listen() -> None:
        while (report := reports.get()) is not None:
            index, units = report
            with lock:
                if index not in finished:
                    reported[index] = reported.get(index, 0) + units
                    advance(units)

    def finish(index: int, units: int) -> None:
        with lock:
            finished.add(index)
            advance(units - reported.pop(index, 0))

    thread = threading.Thread(target=listen, name="alltrace-progress", daemon=True)
    thread.start()
    try:
        yield finish
    finally:
        with lock:  # a listener that still waits says nothing any more
            advance = _ignore
        reports.put(None)


def _ignore(_units: int) -> None:
    pass


def _start_worker(
    reports: Any, parent: int, function: Callable[[Any, Callable[[int], None]], Any], scratch: str | None
) -> None:
    global _reports, _function
    _reports, _function = reports, function
    if scratch is not None:
        use_scratch(scratch)
    gc.set_threshold(_GARBAGE_THRESHOLD, 10, 10)  # what a worker loads stays, and need not be scanned again and again
    # Ctrl-C reaches every process of the terminal; the parent decides what becomes of its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, scratch)


def end_with_parent(parent: int, scratch: str | None) -> None:
    """From now on, end this worker when its parent is killed, so that it does not write when the next one does."""
    # `parent`: its process id. `scratch`: the folder of temporary files that the parent made for it, which goes too.

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="alltrace-parent", daemon=True).start()


def _in_worker(index: int, item: Any) -> tuple[Outcome[Any], int]:
    done = reported = 0
    next_report = time.monotonic() + _REPORT_EVERY_S

    def advance(units: int) -> None:
        nonlocal done, reported, next_report
        done += units
        if time.monotonic() >= next_report:
            _reports.put((index, done - reported))
            reported = done
            next_report = time.monotonic() + _REPORT_EVERY_S

    return attempt(index, _function, item, advance), done
