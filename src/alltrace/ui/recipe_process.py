"""Asks recipes of large runs in a process of its own, so that the memory that they take is given back."""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from alltrace.engine.pool import end_with_parent
from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from alltrace.recipes.base import Answer
    from alltrace.tiles.cancel import Token
    from alltrace.ui.session import Session

_pools: set[Any] = set()
_LOOK_SECONDS = 0.25

LARGE_ROWS = 20_000_000
"""From so many rows on starting a process costs little beside the question."""


@dataclass(frozen=True)
class Question:
    """A question to a run, see `alltrace.recipes.execution.ask.ask`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] | None = None
    steps: str | None = None
    skip_warmup: bool = False
    jobs: int | None = None


def answer(session: Session, question: Question, token: Token | None = None) -> Answer:
    """The answer to a question.

    Args:
        session: The run.
        question: The question.
        token: Asked while a process of its own answers whether that is still wanted; the process is ended where it is not.

    Raises:
        UsageError: There is no such recipe, option, rank or step.
        AlltraceError: The run cannot be read, or memory ran out.
        CancelledError: The answer is no longer wanted.
    """
    run = session.run
    if session.partial or _rows(session) < LARGE_ROWS:
        return _ask(run, question)
    return _there(token, _ask_there, _source(session), question)


def comparison(first: Session, second: Session, question: Question, token: Token | None = None) -> Answer:
    """What differs between two runs, see `alltrace.recipes.questions.diff.compare`; the question's name is not looked at.

    Args:
        first: One run.
        second: The other.
        question: The question.
        token: As that of `answer`.

    Raises:
        UsageError: There is no such thing, rank or step.
        AlltraceError: A run cannot be read, or memory ran out.
        CancelledError: The answer is no longer wanted.
    """
    if first.partial or second.partial or _rows(first) + _rows(second) < LARGE_ROWS:
        return _compare(first.run, second.run, question)
    return _there(token, _compare_there, _source(first), _source(second), question)


def _rows(session: Session) -> int:
    return sum(sum(r.rows.values()) for r in session.run.ranks)


def _source(session: Session) -> tuple[Path, Path | None]:
    """A run's folder and that of its alignment, from which another process opens it."""
    overlay = session.run.overlay
    return session.path, None if overlay is None else overlay.folder


def _there(token: Token | None, function: Callable[..., Answer], *arguments: Any) -> Answer:
    from concurrent.futures import wait

    from loky import ProcessPoolExecutor
    from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

    # the process may be ended at any time, and what it has on disk then goes with this folder
    with tempfile.TemporaryDirectory(prefix="alltrace-ui-", ignore_cleanup_errors=True) as scratch:
        pool = ProcessPoolExecutor(1, initializer=_start, initargs=(scratch, os.getpid()))
        _pools.add(pool)
        try:
            asked = pool.submit(function, *arguments)
            while token is not None and wait([asked], _LOOK_SECONDS).not_done:
                token.check()
            found: Answer = asked.result()
            return found
        except (BrokenProcessPool, ShutdownExecutorError) as error:
            why = "the process that was asked was killed, most often because memory ran out"
            raise AlltraceError(f"{why}; ask fewer ranks") from error
        finally:
            _pools.discard(pool)
            pool.shutdown(kill_workers=True)


def stop() -> None:
    """End what is still being asked; nobody waits for it any more."""
    for pool in list(_pools):
        pool.shutdown(wait=False, kill_workers=True)


def _start(scratch: str, server: int) -> None:
    os.environ["TMPDIR"] = tempfile.tempdir = scratch  # also for the processes that this one starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this
    end_with_parent(server)


def _ask(run: Any, question: Question) -> Answer:
    from alltrace.recipes.execution.ask import ask

    return ask(
        run,
        question.name,
        question.options,
        ranks=question.ranks,
        steps=question.steps,
        skip_warmup=question.skip_warmup,
        jobs=question.jobs,
    )


def _compare(first: Any, second: Any, question: Question) -> Answer:
    from alltrace.recipes.questions.diff import compare

    return compare(
        first,
        second,
        **question.options,
        ranks=question.ranks,
        steps=question.steps,
        skip_warmup=question.skip_warmup,
        jobs=question.jobs,
    )


def _opened(source: tuple[Path, Path | None]) -> Any:
    from alltrace.run.store import Run

    return Run(source[0], align=source[1])


def _ask_there(source: tuple[Path, Path | None], question: Question) -> Answer:
    return _ask(_opened(source), question)


def _compare_there(first: tuple[Path, Path | None], second: tuple[Path, Path | None], question: Question) -> Answer:
    return _compare(_opened(first), _opened(second), question)
