"""What is done with a rank's reports once they are written: its part of a run, copies elsewhere, and a verdict at the job's end.

Each rank does its own share, on its own node, by commands that a user could type: `alltrace import REPORT --part -o RUN` and
`alltrace capture upload REPORT URL`. The last rank, or the first one that has waited for it, finishes the run.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from alltrace.capture.guard import Guard
from alltrace.capture.job_folder import JobFolder
from alltrace.capture.once_per_node import first_to_say
from alltrace.capture.plan import Plan, Request
from alltrace.capture.processes import end_children
from alltrace.capture.selection import expand
from alltrace.capture.supervise import TO_END
from alltrace.capture.writer_slots import writer_slot
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, InputError, printable

_POLL_S = 0.05
_LISTED = 8
_RANKS = "ranks"  # the folder that each run has
_ALLTRACE = (sys.executable, "-m", "alltrace.cli.main")


class Afterwards:
    """What one profiled rank does when its program has ended; nothing if nothing is asked for."""

    def __init__(
        self, request: Request, plan: Plan, variables: Mapping[str, str], guard: Guard, say: Callable[[str], None]
    ) -> None:
        self._then = request.then
        self._selection = request.selection
        self._who = plan.who
        self._force = request.force
        self._guard = guard
        self._say = say
        self._stopped = False
        job = expand("{job}", "--job", plan.who, variables, request.job)
        output = Path(expand(request.output, "--output", plan.who, variables, request.job, folder=True)).absolute()
        named = self._then.run
        self.run = output / f"{job}.run" if named is None else Path(
            expand(named, "--run", plan.who, variables, request.job, folder=True)
        ).absolute()  # fmt: skip
        self._folder = JobFolder(self.run.with_name(f".{self.run.name}.job"), plan.who.rank, self._selection.chosen(plan.who))
        self._environment = {
            **variables,
            **({"ALLTRACE_NSYS": plan.command[0]} if request.profiler == "nsys" and plan.command else {}),
        }

    def begin(self) -> None:
        if not self._then.imports:
            return
        first = self._selection.is_first(self._who)
        self._check_run(replace=first)
        self._folder.begin(first=first)
        self._folder.meet(self._stop)

    def _check_run(self, *, replace: bool) -> None:
        """See that the run of this job is the only thing in its place, or make it so."""
        if not self.run.exists():
            return
        there = sorted(os.listdir(self.run)) if self.run.is_dir() else [""]  # noqa: PTH208  only names are needed
        if there and _RANKS not in there:
            what = f"it already contains {there[0]}" if there[0] else "a file"
            raise InputError(self.run, found=what, expected="a new folder for the run", advice="give another --run")
        if there and not self._force:
            raise InputError(
                self.run, found="the run already exists", advice="give another --run or --job, or --force to replace it"
            )
        if replace:
            shutil.rmtree(self.run, ignore_errors=True)

    def leave(self, lacking: str) -> None:
        if self._then.imports:
            self._folder.done(lacking)

    def finish(self, reports: Sequence[Path], beside: Sequence[Path], *, ended: bool) -> None:
        """Do it.

        `ended`: whether the job is ending, so there is no time.
        """
        if ended:
            self._stopped = True
        elif reports and self._then.asked:
            with writer_slot(self._folder.folder, self._then.max_writers, self._who.rank, self._stop) as keep:
                if self._then.imports and not self._stopped:
                    self._command("imported", ["import", *map(str, reports), "--part", "-o", str(self.run)], keep)
                if self._then.url is not None and not self._stopped:
                    words = ["capture", "upload", *(["--scrub"] if self._then.scrub else []), *map(str, (*reports, *beside))]
                    self._command("copied", [*words, self._then.url], keep)
        self.leave("" if reports else "no report")
        if self._then.imports and not self._stopped:
            self._finish_run()
        if self._stopped and self._then.asked:
            self._say_stopped()

    def _finish_run(self) -> None:
        """Make the run of all parts, if this rank is the last, or the first and has waited for the others."""
        missing = self._folder.missing()
        if missing and self._selection.is_first(self._who):
            missing = self._folder.wait(self._then.wait_s, self._stop)
        elif missing:
            return
        if self._stopped or not self._folder.may_finish():
            return
        if missing:
            more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
            ranks = ", ".join(missing[:_LISTED]) + more
            self._say(f"the run lacks ranks that did not finish within {self._then.wait_s:g} s after the others: {ranks}")
        # what it prints belongs into the log of the job
        if (
            self._command("finished", ["import", "--finish", "-o", str(self.run)], lambda: None, shown=True)
            and self._then.diagnoses
        ):
            self._command("diagnosed", ["diagnose", str(self.run)], lambda: None, shown=True)
        if not missing:
            self._folder.remove()

    def _command(self, done: str, words: list[str], keep: Callable[[], None], *, shown: bool = False) -> bool:
        """Run `alltrace` and report a failure in one sentence; returns whether it succeeded."""
        with tempfile.TemporaryFile() as errors:
            code = self._run([*_ALLTRACE, *words], None if shown else errors, keep)
            errors.seek(0)
            printed = errors.read().decode(errors="replace").strip()
        if code in (EXIT_DONE, None):
            return code is not None
        lines = [line.removeprefix("alltrace: ").removeprefix("alltrace capture: ") for line in printed.splitlines()]
        why = "; ".join(lines[-3:]) if lines else f"`alltrace {words[0]}` ended with {code}"
        what = f"rank {self._who.rank}: its report was" if not shown else "the run was"
        wrong = "not all" if done == "copied" and code == EXIT_INPUT else "not"
        self._say(f"{what} {wrong} {done}: {printable(why)}; the report stays where it is")
        return False

    def _run(self, command: list[str], errors: IO[bytes] | None, keep: Callable[[], None]) -> int | None:
        """Run a command; returns its exit code, or None if it was ended because this rank must end."""
        files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        if errors is not None:
            files.append((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0))
            files.append((os.POSIX_SPAWN_DUP2, errors.fileno(), 2))  # type: ignore[arg-type]
        pid = os.posix_spawn(command[0], command, self._environment, file_actions=files, setsigmask=self._guard.mask)
        statuses: dict[int, int] = {}
        while True:
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                return os.waitstatus_to_exitcode(status)
            keep()
            if self._stop(_POLL_S):
                os.kill(pid, signal.SIGKILL)
                end_children(statuses)
                return None

    def _stop(self, seconds: float) -> bool:
        """Wait for a time; returns whether a signal to end arrived, or the launcher killed the rank."""
        until = time.monotonic() + seconds
        while not self._stopped:
            ready, _, _ = select.select([self._guard.signals], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            message = os.read(self._guard.signals, 2)
            self._stopped = not message or message[0] in TO_END
        return True

    def _say_stopped(self) -> None:
        from alltrace.capture.stores import public_url  # it loads what speaks HTTP

        upload = f"`alltrace capture upload DIR {public_url(self._then.url or '')}`"
        again = f"`alltrace import DIR -o {self.run}`" if self._then.imports else upload
        text = f"the job ended before all reports were processed (--then); {again} does the rest"
        if first_to_say(text, self._guard.launcher):
            self._say(text)
