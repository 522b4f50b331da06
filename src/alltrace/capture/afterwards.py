"""What is done with a rank's reports once written: its part of a run, copies, and a verdict at the end.

Each rank does its own share, on its own node, by commands that a user could type: `alltrace import REPORT --part -o
RUN` and `alltrace capture upload REPORT URL`. The last rank, or the first one that has waited for it, finishes the run.
"""

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from alltrace.capture.guard import Guard
from alltrace.capture.once_per_node import first_to_say
from alltrace.capture.plan import Plan, Request
from alltrace.capture.processes import end_children, started_at
from alltrace.capture.selection import expand
from alltrace.capture.supervise import TO_END
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, InputError, printable

_BEGAN, _DONE, _FINISHING = "began.", "done.", "finishing"
_SEEN_S = 90.0
"""Some shared file systems show a new file of another node after a minute."""
_LOOK_EVERY_S = 0.2


class JobFolder:
    """The folder, for one rank of the given number that are profiled; None if that is unknown."""

    def __init__(self, folder: Path, rank: int, count: int | None = None) -> None:
        self.folder = folder
        self._rank = rank
        self._count = count or 0

    def begin(self, *, first: bool) -> None:
        """Announce to the others that this rank has started."""
        # `first`: whether it is the first of those that are profiled.
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._path(_DONE).unlink(missing_ok=True)  # of a job of the same name before
            if first:
                (self.folder / _FINISHING).unlink(missing_ok=True)
            self._path(_BEGAN).write_text(f"{os.uname().nodename} {os.getpid()}\n", encoding="ascii")
        except OSError as error:
            advice = "give another --run or --output"
            raise InputError.cannot_be("written", self.folder, error, advice=advice) from error

    def meet(self, stop: Callable[[float], bool], patience_s: float = _SEEN_S) -> None:
        """Wait until all ranks that are profiled see each other, before any of them starts its program."""
        # `stop`: waits a number of seconds; returns whether this rank must end.
        until = time.monotonic() + patience_s
        while (seen := len(self._numbers(_BEGAN))) < self._count:
            if time.monotonic() > until:
                raise InputError(
                    self.folder.parent,
                    found=f"only {seen} of {self._count} ranks see it after {patience_s:g} s",
                    expected="a folder that all nodes of the job share, for the run directory",
                    advice="give another --run, or leave out --then; nothing was run",
                )
            if stop(_LOOK_EVERY_S):
                raise InputError(
                    self.folder.parent,
                    found=f"{seen} of {self._count} ranks saw it when the job was ended; nothing was run",
                )

    def done(self, lacking: str = "") -> None:
        part = self.folder / f".{_DONE}{self._rank}"
        with suppress(OSError):  # then the finishing rank waits for it in vain
            part.write_text(lacking, encoding="utf-8", errors="backslashreplace")
            part.replace(self._path(_DONE))

    def missing(self) -> list[str]:
        """The ranks that are not done, by number, with the number of those that have not begun at the end."""
        began, done = self._numbers(_BEGAN), self._numbers(_DONE)
        absent = self._count - len(began | done)
        return [*map(str, sorted(began - done)), *([f"{absent} that did not begin"] if absent > 0 else [])]

    def may_finish(self) -> bool:
        """Whether this rank is the one that finishes the run; so once for each job."""
        try:
            os.close(os.open(self.folder / _FINISHING, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except OSError:
            return False
        return True

    def finished_by_another(self) -> bool:
        """Whether another rank finishes the run, or has finished it and removed the folder."""
        return (self.folder / _FINISHING).exists() or not self.folder.exists()

    def wait(self, patience_s: float, stop: Callable[[float], bool]) -> list[str]:
        """Wait for the other ranks, up to a time after the last one that was done; returns those that were not."""
        # `stop`: waits a number of seconds; returns whether this rank must end.
        missing, until = self.missing(), time.monotonic() + patience_s
        while (
            missing
            and time.monotonic() < until
            and not self.finished_by_another()
            and not stop(min(1.0, patience_s / 4))
        ):
            now = self.missing()
            if now != missing:
                missing, until = now, time.monotonic() + patience_s
        return missing

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}{self._rank}"

    def _numbers(self, kind: str) -> set[int]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  only names are needed
        except OSError:
            return set()
        return {int(n[len(kind) :]) for n in names if n.startswith(kind) and n[len(kind) :].isdecimal()}


# A writing rank holds one of N files. A dead holder blocks no other rank: its file is taken over, at once if its
# process is visibly gone, and elsewhere when it has not been touched for two minutes. In a rare race two take over one
# file, and one more writes than should.
_STALE_S = 120.0
TOUCHED_EVERY_S = 10.0


@contextmanager
def writer_slot(folder: Path, most: int, number: int, stop: Callable[[float], bool]) -> Iterator[Callable[[], None]]:
    """Hold one of `most` slots while the block runs; yields a function to call regularly to keep it."""
    # Where no file can be written in the folder, nothing is limited. `number`: this rank's number, so that not all
    # ranks try the same slot first. `stop`: waits a number of seconds; returns whether this rank must end, so it stops
    # waiting for a slot.
    mine = f"{os.uname().nodename} {os.getpid()} {started_at(os.getpid())}\n"
    slot = _take(folder, most, number, mine, stop)
    touched = time.monotonic()

    def keep() -> None:
        nonlocal touched
        if slot is not None and time.monotonic() > touched + TOUCHED_EVERY_S:
            touched = time.monotonic()
            with suppress(OSError):
                os.utime(slot)

    try:
        yield keep
    finally:
        if slot is not None and _read(slot) == mine:
            slot.unlink(missing_ok=True)


def _take(folder: Path, most: int, number: int, mine: str, stop: Callable[[float], bool]) -> Path | None:
    pause = 0.1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            for n in range(most):
                place = folder / f"writer.{(number + n) % most}"
                if _make(place, mine):
                    return place
                held_by = _read(place)
                if held_by is not None and _is_stale(place, held_by) and _remove(place, held_by) and _make(place, mine):
                    return place
            if stop(pause):
                return None
            pause = min(2.0, pause * 1.5)
    except OSError:
        return None


def _make(place: Path, mine: str) -> bool:
    try:
        handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(handle, mine.encode())
    finally:
        os.close(handle)
    return True


def _read(place: Path) -> str | None:
    with suppress(OSError):
        return place.read_text(encoding="utf-8", errors="replace")
    return None


def _is_stale(place: Path, held_by: str) -> bool:
    host, _, process = held_by.strip().partition(" ")
    pid, _, began = process.partition(" ")
    if host == os.uname().nodename and pid.isdecimal():
        return started_at(int(pid)) != began
    probe = place.with_name(f".clock.{os.uname().nodename}.{os.getpid()}")
    try:
        probe.touch()  # its time is from the file system's own clock
        return probe.stat().st_mtime - place.stat().st_mtime > _STALE_S
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _remove(place: Path, held_by: str) -> bool:
    away = place.with_name(f".stale.{os.urandom(6).hex()}")
    try:
        place.rename(away)
    except FileNotFoundError:
        return True
    if _read(away) == held_by:
        away.unlink(missing_ok=True)
        return True
    with suppress(OSError):
        os.link(away, place)  # it was taken meanwhile
    away.unlink(missing_ok=True)
    return False


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
        self._folder = JobFolder(
            self.run.with_name(f".{self.run.name}.job"), plan.who.rank, self._selection.chosen(plan.who)
        )
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
        # `ended`: whether the job is ending, so there is no time.
        if ended:
            self._stopped = True
        elif reports and self._then.asked:
            with writer_slot(self._folder.folder, self._then.max_writers, self._who.rank, self._stop) as keep:
                if self._then.imports and not self._stopped:
                    self._command("imported", ["import", *map(str, reports), "--part", "-o", str(self.run)], keep)
                if self._then.url is not None and not self._stopped:
                    words = [
                        "capture",
                        "upload",
                        *(["--scrub"] if self._then.scrub else []),
                        *map(str, (*reports, *beside)),
                    ]
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
            self._say(
                f"the run lacks ranks that did not finish within {self._then.wait_s:g} s after the others: {ranks}"
            )
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
