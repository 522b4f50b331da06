"""Runs recipes on large runs in a separate process, so that their memory is returned."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alltrace.engine.pool import end_with_parent
from alltrace.recipes.base import Answer
from alltrace.run.store import Run
from alltrace.tiles.cancel import WANTED, Token
from alltrace.trace.errors import AlltraceError
from alltrace.trace.scratch import scratch_folder, use_scratch
from alltrace.ui.session import Session

_Function = Callable[[list[Run], "Question", Callable[[int], None] | None], Answer]

_pools: set[Any] = set()
_LOOK_SECONDS = 0.25

LARGE_ROWS = 20_000_000
"""The number of rows from which starting a process costs little compared with the question."""


@dataclass(frozen=True)
class Question:
    """A question to a run, see `alltrace.recipes.execution.ask.ask`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] | None = None
    steps: str | None = None
    skip_warmup: bool = False
    jobs: int | None = None

    @property
    def about(self) -> dict[str, Any]:
        return {"ranks": self.ranks, "steps": self.steps, "skip_warmup": self.skip_warmup, "jobs": self.jobs}


def answer(
    session: Session, question: Question, token: Token = WANTED, progress: Callable[[int], None] | None = None
) -> Answer:
    # `token`: checked while a separate process works: whether the answer is still needed; otherwise the process is
    # ended.
    answer = kept(session, question)
    return _answered_apart(_ask, [session], question, token, progress) if answer is None else answer


def stage_answer(session: Session, question: Question, progress: Callable[[int], None]) -> Answer:
    """The answer to a question as from `answer`, stored with run and findings for the next start of the page."""
    from alltrace.recipes.execution.ask import checked
    from alltrace.recipes.execution.kept_findings import keep_findings, kept_findings

    query, run = checked(question.name, question.options), session.run
    if not run.manifest.complete:
        return answer(session, question, progress=progress)
    findings = kept_findings(run, query.recipe, query.options)
    if findings is None:
        findings = answer(session, question, progress=progress)
        keep_findings(run, query.recipe, query.options, findings)
    return findings


def kept(session: Session, question: Question) -> Answer | None:
    """An answer that is stored with the run and needs no separate process."""
    from alltrace.recipes.execution.ask import checked, kept_answer

    about = {name: value for name, value in question.about.items() if name != "jobs"}
    return kept_answer(session.run, checked(question.name, question.options, **about))


def comparison(first: Session, second: Session, question: Question, token: Token = WANTED) -> Answer:
    """What differs between two runs, see `alltrace.recipes.questions.diff.compare`; the question's name is ignored."""
    return _answered_apart(_compare, [first, second], question, token)


def _answered_apart(
    function: _Function,
    sessions: list[Session],
    question: Question,
    token: Token,
    progress: Callable[[int], None] | None = None,
) -> Answer:
    """The function of the sessions' runs, in a separate process if they are large and complete."""
    rows = sum(sum(r.rows.values()) for s in sessions for r in s.run.ranks)
    if rows < LARGE_ROWS or any(s.partial for s in sessions):
        return function([s.run for s in sessions], question, progress)
    from concurrent.futures import wait

    from loky import ProcessPoolExecutor
    from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

    overlays = [s.run.overlay for s in sessions]
    folders = [(s.path, None if o is None else o.folder) for s, o in zip(sessions, overlays, strict=True)]
    # the process may be ended at any time, and what it has on disk then goes with this folder
    with scratch_folder("alltrace-ui-") as scratch:
        pool = ProcessPoolExecutor(1, initializer=_start, initargs=(scratch, os.getpid()))
        _pools.add(pool)
        try:
            done = Path(scratch, "ranks-done")
            answering, seen = pool.submit(_there, function, folders, question, done), 0
            while wait([answering], _LOOK_SECONDS).not_done:
                token.check()
                seen = _report_progress(done, seen, progress)
            _report_progress(done, seen, progress)
            answer: Answer = answering.result()
            return answer
        except (BrokenProcessPool, ShutdownExecutorError) as error:
            why = "the process for this request was killed, most likely because memory ran out"
            raise AlltraceError(f"{why}; select fewer ranks") from error
        finally:
            _pools.discard(pool)
            pool.shutdown(kill_workers=True)


def _report_progress(done: Path, seen: int, progress: Callable[[int], None] | None) -> int:
    """Report the progress of another process: its file grows by a byte per rank, as a queue needs a process."""
    now = done.stat().st_size if done.exists() else 0
    if progress is not None and now > seen:
        progress(now - seen)
    return now


def stop() -> None:
    """End the questions in progress; no client waits for them any more."""
    for pool in list(_pools):
        pool.shutdown(wait=False, kill_workers=True)


def _start(scratch: str, server: int) -> None:
    use_scratch(scratch)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the server, which then ends this
    end_with_parent(server, scratch)


def _there(function: _Function, folders: list[tuple[Path, Path | None]], question: Question, done: Path) -> Answer:
    """The function in another process, of runs opened from their folders and those of their alignments."""
    with done.open("ab", buffering=0) as file:

        def advance(ranks: int) -> None:
            file.write(b"." * ranks)

        return function([Run(path, align=align) for path, align in folders], question, advance)


def _ask(runs: list[Run], question: Question, progress: Callable[[int], None] | None) -> Answer:
    from alltrace.recipes.execution.ask import ask

    return ask(runs[0], question.name, question.options, **question.about, progress=progress)


def _compare(runs: list[Run], question: Question, progress: Callable[[int], None] | None) -> Answer:  # noqa: ARG001
    from alltrace.recipes.questions.diff import compare

    return compare(runs[0], runs[1], **question.options, **question.about)
