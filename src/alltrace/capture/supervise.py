"""Runs a profiler with the program in it, and ensures that the report is written in spite of signals.

The effect of a signal to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT) depends on the phase:

| phase | the first one | a second one, or `end_after_s` later | the guard is gone | | --- | --- | --- | --- | |
STARTING: the program is not there | the profiler ends, the program never starts | nothing more | as the first one | |
RUNNING: the program runs | the program gets it | the program gets it, the recording ends | the program is killed after
2 s | | WRITING: the program has ended | the report is waited for | the report is waited for | it is waited for, 25 s at
most |

Other signals go to the program while it runs, and nowhere else. nsys ends a recording without ending the program, so
its report is written while a program that saves its work runs on; ncu ends the program.

A scheduler may send a signal to every process of a job at once. An agent of nsys that gets SIGTERM or SIGUSR1 ends
without a report, so nsys is started with them blocked, which its agent inherits; the program gets the original signal
mask.
"""

import enum
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from alltrace.capture.guard import PASSED_ON, Guard
from alltrace.capture.processes import (
    become_subreaper,
    children,
    descendants,
    end_children,
    reap,
    send,
    started_at,
    words,
)
from alltrace.capture.program_shell import ProgramShell

_IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]
TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_POLL_S = 0.1
_LINGERS_S = 2.0
_ABANDONED_S = 2.0
_WRITES_S = 25.0


class Manners(NamedTuple):
    held: frozenset[signal.Signals] = frozenset()  # signals that are blocked in it
    ends_by: signal.Signals = signal.SIGTERM  # makes it finish its report and end; not one of `held`
    # the arguments with which its program, called once more, ends the recording and not the program, `{}` being the
    # process of the first call; empty if it cannot
    stops_by: tuple[str, ...] = ()


MANNERS = {
    # its front end handles SIGQUIT as it does SIGTERM
    "nsys": Manners(
        frozenset(PASSED_ON - {signal.SIGQUIT, signal.SIGCONT}), signal.SIGQUIT, ("stop", "--session=profile-{}")
    ),
    "ncu": Manners(),
    "torch": Manners(),
}


class Patience(NamedTuple):
    grace_s: float  # seconds that a profiler of which a part was killed is given to end
    end_after_s: float  # seconds after a signal to end in which a program is still recorded


class Output(NamedTuple):
    log: Path  # the file that gets what the profiler prints
    out: int  # the descriptor with the program's standard output
    err: int  # the descriptor with its standard error

    def file_actions(self) -> list[tuple[Any, ...]]:
        opened = (os.POSIX_SPAWN_OPEN, 1, str(self.log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        dup = os.POSIX_SPAWN_DUP2
        return [(dup, 1, self.out), (dup, 2, self.err), opened, (dup, 1, 2)]


class Outcome(NamedTuple):
    code: int  # the exit code to end with: the program's, or 128 and the signal that ended it
    started: bool  # whether the program was started; if not, it will not be
    notes: tuple[str, ...]  # what happened to the profiler, if that matters
    asked_to_end: bool = False  # whether a signal to end the program arrived
    killed: bool = False  # whether a signal ended the profiler

    @property
    def failed_to_start(self) -> bool:
        """Whether the profiler ended before the program started, as nsys sometimes does on a busy machine."""
        return not (self.started or self.asked_to_end or self.killed or self.code == 0)


class _Phase(enum.Enum):
    STARTING = enum.auto()
    RUNNING = enum.auto()
    WRITING = enum.auto()


class _Supervision:
    """The profiler, the program, and the requests to them; see the table above."""

    def __init__(
        self,
        profiler: int,
        program_shell: ProgramShell,
        manners: Manners,
        guard: Guard,
        patience: Patience,
        stop: Callable[[], None],
    ) -> None:
        self.profiler = profiler
        self.statuses: dict[int, int] = {}
        self.asked_to_end = False
        self.abandoned_at: float | None = None
        self.orphaned = False
        self._program_shell = program_shell
        self._manners = manners
        self._guard = guard
        self._patience = patience
        self._stop = stop
        self._waiting: list[int] = []  # signals for a program that is about to be there
        self._recorded_until: float | None = None
        self._profiler_until: float | None = None
        self._started_at: str | None = None

    # --- what there is

    @property
    def phase(self) -> _Phase:
        if self.program_runs():
            return _Phase.RUNNING
        return _Phase.STARTING if self._program_shell.shell() is None else _Phase.WRITING

    def program_runs(self) -> bool:
        """Whether the program is still running or about to start, and its id is not reused by another process."""
        pid, shell = self._program_shell.program(), self._program_shell.shell()
        if pid is None:
            return (
                shell is not None
                and shell not in self.statuses
                and self._program_shell.code() is None
                and started_at(shell) is not None
            )
        if pid in self.statuses or self._program_shell.code() is not None:
            return False
        at = started_at(pid)
        self._started_at = self._started_at or at
        return at is not None and at == self._started_at

    @property
    def profiler_runs(self) -> bool:
        return self.profiler not in self.statuses

    # --- what comes

    def get(self, number: int, *, from_terminal: bool) -> None:
        phase, again = self.phase, self.asked_to_end
        asks = number in TO_END
        self.asked_to_end = again or asks
        if phase is _Phase.STARTING:
            if asks and self._program_shell.revoke():
                self._end_profiler(self._patience.grace_s)
            elif asks:  # it was started meanwhile
                self._waiting.append(number)
        elif phase is _Phase.RUNNING:
            if not (from_terminal and self._has_from_terminal(number)):
                self._waiting.append(number)
            if asks and (again or self._manners.stops_by):
                until = time.monotonic() + (0 if again else self._patience.end_after_s)
                self._recorded_until = min(until, self._recorded_until or until)
        elif asks and self._profiler_until is None:
            self._profiler_until = time.monotonic() + self._patience.grace_s

    def lose_guard(self) -> None:
        self.get(signal.SIGTERM, from_terminal=False)
        self.abandoned_at = time.monotonic()

    def tick(self) -> float:
        """Do the actions that are due; returns the seconds until the next."""
        program = self._program_shell.program()
        if program is not None and self._waiting and self.program_runs():
            for number in self._waiting:
                send(program, number)
            self._waiting.clear()
        now = time.monotonic()
        if self._program_shell.shell() in self.statuses and self.profiler_runs:
            self.orphaned = True  # the profiler's launcher is gone, and it would wait for that forever
        if self.orphaned:
            self._end_profiler(self._patience.grace_s)
        if self._recorded_until is not None and now >= self._recorded_until:
            self._recorded_until = None
            self._end_recording()
        if self.abandoned_at is not None:
            self._end_all(now)
        if self._profiler_until is not None and now > self._profiler_until and self.profiler_runs:
            send(self.profiler, signal.SIGKILL)
        # no process here is notified of the end of a program whose parent is another part of the profiler
        hurried = self.orphaned or self._waiting or self._profiler_until is not None or self.abandoned_at is not None
        if hurried or not self.profiler_runs:
            return _POLL_S
        return 3600 if self._recorded_until is None else max(_POLL_S, self._recorded_until - now)

    def _end_recording(self) -> None:
        """Have the report written while the program runs on, if the profiler can do that."""
        if not self.program_runs() or not self.profiler_runs:
            return
        if self._manners.stops_by:
            self._stop()
        else:
            self._end_profiler(self._patience.grace_s)

    @property
    def asked_profiler(self) -> bool:
        return self._profiler_until is not None

    def _end_profiler(self, patience_s: float) -> None:
        """Ask the profiler, once, to finish its report, and end it after a time."""
        if self._profiler_until is None and self.profiler_runs:
            self._profiler_until = time.monotonic() + patience_s
            send(self.profiler, self._manners.ends_by)

    def _end_all(self, now: float) -> None:
        """End the program, which got SIGTERM, and what it has started; and in the end the profiler, too."""
        since = now - (self.abandoned_at or now)
        shell = self._program_shell.shell()
        if since > _ABANDONED_S and shell is not None:
            for pid in descendants(shell):
                send(pid, signal.SIGKILL)
        self._profiler_until = min(self._profiler_until or now + _WRITES_S, (self.abandoned_at or now) + _WRITES_S)

    def _has_from_terminal(self, number: int) -> bool:
        """Whether what a terminal sends to its foreground group, which is the guard's, has reached the program."""
        with suppress(OSError):
            group = os.getpgid(self._guard.pid)
            if os.getpgrp() == group and number not in self._manners.held:
                return True
            program = self._program_shell.program()
            return program is not None and os.getpgid(program) == group
        return False


def supervise(
    command: Sequence[str],
    environment: Mapping[str, str],
    program_shell: ProgramShell,
    *,
    guard: Guard,
    finished: Callable[[], bool],
    patience: Patience,
    manners: Manners,
    output: Output | None = None,
) -> Outcome:
    """Run `command`, wait for it and for the program in it."""
    # `program_shell`: knows the program. `finished`: whether the report is complete; called if the profiler's front end
    # was killed and its agent may still write. `output`: where the profiler prints; None for where the program prints.
    become_subreaper()
    files = [] if output is None else output.file_actions()
    blocked = {*guard.mask, *manners.held}
    with _Ends() as ends:
        profiler = _spawned(command, environment, files, blocked)
        stop = partial(_stop, [command[0], *(word.format(profiler) for word in manners.stops_by)], environment, blocked)
        state = _Supervision(profiler, program_shell, manners, guard, patience, stop)
        while True:
            while state.profiler_runs or state.program_runs():
                ends.wait(state, guard)
            started = not program_shell.revoke()
            if not (started and state.program_runs()):  # else it was started at the last moment
                break
        ended = os.waitstatus_to_exitcode(state.statuses[profiler])
        notes = [f"the profiler was ended by {_name(-ended)}"] if ended < 0 and not state.orphaned else []
        # else the program was to run on without it
        alone = program_shell.shell() in state.statuses and not state.asked_profiler
        if state.orphaned or (started and alone):
            notes.append("a part of the profiler was ended before the program")
        if ended < 0 and state.abandoned_at is None:
            until = time.monotonic() + patience.grace_s
            while not finished() and time.monotonic() < until and reap(state.statuses):
                time.sleep(_POLL_S)
        _end_agents(state)
        code = _last_word(state, program_shell, patience.grace_s)
        if state.abandoned_at is not None:
            notes.append("the launcher killed the rank, and the program was ended")
            end_children(state.statuses)
    reap(state.statuses)  # the program may have ended after the last time
    program = program_shell.program()
    if code is None and program in state.statuses:  # the shell was killed, and the program was waited for here
        ended_by = os.waitstatus_to_exitcode(state.statuses[program])
        code = ended_by if ended_by >= 0 else 128 - ended_by
    if code is None:
        code = ended if ended >= 0 else 128 - ended
        if started:
            notes.append("the program's own exit code is not known")
    return Outcome(code, started, tuple(notes), state.asked_to_end, ended < 0)


def _stop(command: Sequence[str], environment: Mapping[str, str], blocked: Collection[int]) -> None:
    """Call the profiler once more, for it to end the recording of the first call."""
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    with suppress(OSError):  # else its report comes when the program has ended
        _spawned(command, environment, nowhere, blocked)


def _spawned(
    command: Sequence[str], environment: Mapping[str, str], files: Sequence[Any], blocked: Collection[int]
) -> int:
    return os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=files,
        setsigmask=blocked,
        setsigdef=_IGNORED_BY_PYTHON,
    )


class _Ends:
    """Wakes this process when a child has ended, or the guard has sent a signal or is gone."""

    def __enter__(self) -> Self:
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)
        self._before = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        os.close(self._woken)
        os.close(self._wakes)

    def wait(self, state: _Supervision, guard: Guard) -> None:
        timeout = state.tick()
        watched = [self._woken, *([] if state.abandoned_at is not None else [guard.signals])]
        ready, _, _ = select.select(watched, [], [], timeout)
        reap(state.statuses)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if guard.signals in ready:
            message = os.read(guard.signals, 2)
            if message:
                state.get(message[0], from_terminal=bool(message[1]))
            else:
                state.lose_guard()


def _end_agents(state: _Supervision) -> None:
    """End the profiler's agent if it stays although the front end, which it served, has ended."""
    session = f"--session-name=profile-{state.profiler}".encode()
    until = time.monotonic() + _LINGERS_S
    while agents := [pid for pid in children(os.getpid()) if session in words(pid)]:
        late = time.monotonic() > until
        for pid in agents if late else ():
            send(pid, signal.SIGKILL)
        reap(state.statuses)
        if late:
            return
        time.sleep(_POLL_S)


def _last_word(state: _Supervision, program_shell: ProgramShell, grace_s: float) -> int | None:
    """The exit code that the shell writes down; a shell that outlived the program may be about to."""
    shell = program_shell.shell()
    until = time.monotonic() + grace_s
    while shell is not None and time.monotonic() < until:
        lives = started_at(shell) is not None  # checked first: it writes before it ends
        if program_shell.code() is not None or not lives:
            break
        reap(state.statuses)
        time.sleep(_POLL_S / 10)
    return program_shell.code()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
