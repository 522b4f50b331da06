"""Runs a profiler with the program in it, passes signals on to the program, and knows the program's own exit code.

nsys runs the program as a grandchild, and its exit code is not always the program's: it is 3 when the program was killed, and 0
when the profiler's agent was, while the program runs on. So a shell around the program writes down its process id and its exit
code, and this process becomes the one that orphans are given to, and waits for the program itself.

A scheduler may send a signal to every process of a job at once. An agent of nsys that gets SIGTERM or SIGUSR1 ends without a
report, so nsys is started with them blocked, which its agent inherits; the program is given the signals as they were.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGCONT,
}
_IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]
_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# starts the program with the signals of this process, where the profiler has passed its own on
_UNBLOCK = "import os, _signal as s, sys; s.pthread_sigmask(s.SIG_SETMASK, eval(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
_FROM_TERMINAL = 0x80  # SI_KERNEL: the terminal has sent it to its whole foreground group
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.1
_SETTLES_S = 0.5
_LINGERS_S = 2.0
REVOKED = "shell"
"""The end of the name of the file without which no program is started."""


class Manners(NamedTuple):
    """How a profiler is treated with signals.

    Attributes:
        held: Blocked in it.
        ends_by: Makes it finish its report and end; not one of `held`.
    """

    held: frozenset[signal.Signals] = frozenset()
    ends_by: signal.Signals = signal.SIGTERM


MANNERS = {
    # its front end handles SIGQUIT as it does SIGTERM
    "nsys": Manners(frozenset(_PASSED_ON - {signal.SIGQUIT, signal.SIGCONT}), signal.SIGQUIT),
    "ncu": Manners(),
}


class Outcome(NamedTuple):
    """How it ended.

    Attributes:
        code: The exit code to end with: the program's, or 128 and the signal that ended it.
        started: Whether the program was started at all; where not, it will not be.
        notes: What happened to the profiler, where that matters.
        asked_to_end: Whether a signal came that asks the program to end.
        killed: Whether a signal ended the profiler.
    """

    code: int
    started: bool
    notes: tuple[str, ...]
    asked_to_end: bool = False
    killed: bool = False

    @property
    def failed_to_start(self) -> bool:
        """Whether the profiler ended by itself before the program started, as nsys does now and then on a busy machine."""
        return not (self.started or self.asked_to_end or self.killed or self.code == 0)


class Witness:
    """A shell around the program that writes down which process it is and how it ended.

    It starts the program once at most: the file with its own process id is made only where there is none.

    Args:
        folder: Where it writes.
        turn: What the names of its files begin with.
    """

    # the inner shell becomes the program; the outer one outlives the signals that a whole process group is sent
    _SCRIPT = """set -C; echo $$ >"$1shell" || exit 1; set +C
d=$1 mask=$2 python=$3 unblock=$4 signals=$5; shift 5; trap : HUP INT QUIT TERM USR1 USR2 ALRM
while read -r name blocked && [ "$name" != SigBlk: ]; do :; done 2>/dev/null </proc/$$/status
[ "$blocked" = "$mask" ] || set -- "$python" -ISc "$unblock" "$signals" "$@"
sh -c 'echo $$ >"${0}pid"; exec "$@"' "$d" "$@"; c=$?; echo $c >"${d}code"; exit $c"""

    def __init__(self, folder: Path, turn: str = "") -> None:
        self._files = f"{folder}/{turn}"

    def around(self, program: Sequence[str], mask: Collection[int]) -> list[str]:
        """The command that runs `program` under the witness, with the signals of `mask` blocked."""
        blocked = sorted(int(n) for n in mask)
        return [
            "/bin/sh", "-c", self._SCRIPT, "sh", self._files, f"{sum(1 << (n - 1) for n in blocked):016x}",
            sys.executable, _UNBLOCK, f"{blocked}", *program,
        ]  # fmt: skip

    def revoke(self) -> bool:
        """See that the program is not started any more; whether that came before it was."""
        try:
            os.close(os.open(f"{self._files}{REVOKED}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return self.shell() is None and self._settled()
        except OSError:  # the folder is gone or full, and so will be the shell's attempt
            return True
        return True

    def _settled(self) -> bool:
        """Whether a file without a number stays so: a shell that cannot write it does not start the program."""
        until = time.monotonic() + _SETTLES_S
        while time.monotonic() < until:
            if self.shell() is not None:
                return False
            time.sleep(_POLL_S / 10)
        return True

    def program(self) -> int | None:
        """The program's process id; None before it starts."""
        return self._read("pid")

    def shell(self) -> int | None:
        """The shell's own process id; None before it starts."""
        return self._read("shell")

    def code(self) -> int | None:
        """The program's exit code, or 128 and the signal that ended it; None before it ends, or when the shell was killed."""
        return self._read("code")

    def forget(self) -> None:
        """Remove what was written, but for what keeps the program from being started."""
        names = ("pid", "code", REVOKED) if self.shell() is not None else ("pid", "code")
        for name in names:
            with suppress(OSError):
                os.unlink(self._files + name)  # noqa: PTH108

    def _read(self, name: str) -> int | None:
        with suppress(OSError, ValueError):
            text = Path(self._files + name).read_text()
            return int(text) if text.endswith("\n") else None
        return None


class _State:
    def __init__(self, profiler: int, witness: Witness, manners: Manners) -> None:
        self.profiler = profiler
        self.witness = witness
        self.manners = manners
        self.started_at: str | None = None
        self.statuses: dict[int, int] = {}
        self.asked_to_end = False
        self.patience_ends: float | None = None

    def end_profiler(self, grace_s: float) -> None:
        """Ask the profiler to finish its report, and end it after a time of grace."""
        now = time.monotonic()
        if self.patience_ends is None:
            self.patience_ends = now + grace_s
            os.kill(self.profiler, self.manners.ends_by)
        elif now > self.patience_ends:
            os.kill(self.profiler, signal.SIGKILL)

    def program_runs(self) -> bool:
        """Whether the program is still there or about to be, and not another process that was given its number."""
        pid = self.witness.program()
        if pid is None:
            shell = self.witness.shell()  # which is about to start it
            return (
                shell is not None and shell not in self.statuses and self.witness.code() is None and _started_at(shell) is not None
            )
        if pid in self.statuses or self.witness.code() is not None:
            return False
        at = _started_at(pid)
        self.started_at = self.started_at or at
        return at is not None and at == self.started_at


def supervise(
    command: Sequence[str],
    environment: Mapping[str, str],
    witness: Witness,
    *,
    finished: Callable[[], bool],
    grace_s: float,
    manners: Manners,
    mask: Collection[int],
) -> Outcome:
    """Run `command`, wait for it and for the program in it.

    Args:
        command: The profiler's command, its program by path, with the program under `witness`.
        environment: Its variables.
        witness: Knows the program.
        finished: Whether the report is whole; asked when the profiler's front end was killed and its agent may still write.
        grace_s: Seconds that a profiler of which a part was killed is given to end.
        manners: How the profiler is treated with signals.
        mask: The signals that were blocked before; they stay so for the program. Those that are passed on are blocked afterwards.
    """
    _become_subreaper()
    signals = _PASSED_ON | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    held = {*mask, *manners.held}
    profiler = os.posix_spawn(command[0], list(command), dict(environment), setsigmask=held, setsigdef=_IGNORED_BY_PYTHON)
    state = _State(profiler, witness, manners)
    while True:
        orphaned = _wait(state, signals, grace_s)
        started = not witness.revoke()
        if not (started and state.program_runs()):  # else it was started at the last moment
            break
    ended = os.waitstatus_to_exitcode(state.statuses[profiler])
    notes = [f"the profiler was ended by {_name(-ended)}"] if ended < 0 and not orphaned else []
    if orphaned or (started and witness.shell() in state.statuses):
        notes.append("a part of the profiler was ended before the program")
    if ended < 0:
        until = time.monotonic() + grace_s
        while not finished() and time.monotonic() < until and _reap(state.statuses):
            signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
    _end_agents(state)
    program = witness.program()
    code = _last_word(state, grace_s)
    if code is None and program in state.statuses:  # the shell was killed, and the program was waited for here
        ended_by = os.waitstatus_to_exitcode(state.statuses[program])
        code = ended_by if ended_by >= 0 else 128 - ended_by
    if code is None:
        code = ended if ended >= 0 else 128 - ended
        if started:
            notes.append("the program's own exit code is not known")
    return Outcome(code, started, tuple(notes), state.asked_to_end, ended < 0)


def _wait(state: _State, signals: set[signal.Signals], grace_s: float) -> bool:
    """Wait for the profiler and the program, and pass signals on; whether the profiler's launcher was killed."""
    orphaned = False
    while state.profiler not in state.statuses or state.program_runs():
        orphaned = state.witness.shell() in state.statuses  # its launcher is gone, and the profiler would wait for it for ever
        if orphaned and state.profiler not in state.statuses:
            state.end_profiler(grace_s)
        # a program whose parent is another part of the profiler tells nobody here that it ended
        info = signal.sigtimedwait(signals, _POLL_S if orphaned or state.profiler in state.statuses else 3600)
        if info is not None and info.si_signo != signal.SIGCHLD:
            _pass_on(state, info.si_signo, from_terminal=info.si_code == _FROM_TERMINAL)
        _reap(state.statuses)
    return orphaned


def _end_agents(state: _State) -> None:
    """End the profiler's agent where it stays although the front end, which it served, has ended."""
    session = f"--session-name=profile-{state.profiler}".encode()
    until = time.monotonic() + _LINGERS_S
    while agents := [pid for pid in _children() if session in _words(pid)]:
        late = time.monotonic() > until
        for pid in agents if late else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(state.statuses)
        if late:
            return
        signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)


def _children() -> list[int]:
    """The children of this process, which a subreaper's orphans are; empty where the kernel does not tell."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def _last_word(state: _State, grace_s: float) -> int | None:
    """The exit code that the shell writes down; a shell that outlived the program may be about to."""
    shell = state.witness.shell()
    until = time.monotonic() + grace_s
    while shell is not None and time.monotonic() < until:
        lives = _started_at(shell) is not None  # asked first: it writes before it ends
        if state.witness.code() is not None or not lives:
            break
        _reap(state.statuses)
        time.sleep(_POLL_S / 10)
    return state.witness.code()


def _pass_on(state: _State, number: int, *, from_terminal: bool) -> None:
    """Give a signal to the program, which may want to save its work; to the profiler where there is none, or a second time."""
    program = state.witness.program() if state.program_runs() else None
    if from_terminal and (number not in state.manners.held or _same_group(program)):
        return
    ends = number in _TO_END
    target = state.profiler if program is None or (ends and state.asked_to_end) else program
    state.asked_to_end = state.asked_to_end or ends
    if target not in state.statuses and (target != state.profiler or ends):
        with suppress(ProcessLookupError):
            os.kill(target, number if target != state.profiler else state.manners.ends_by)


def _same_group(program: int | None) -> bool:
    """Whether what the terminal sends has reached the program, too."""
    with suppress(OSError):
        return program is not None and os.getpgid(program) == os.getpgrp()
    return False


def _reap(statuses: dict[int, int]) -> bool:
    """Take the status of every child that has ended; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        statuses[pid] = status


def _become_subreaper() -> None:
    import ctypes  # a rank that is not profiled does without

    with suppress(OSError, AttributeError):  # not Linux: orphans go elsewhere, and only the exit code of a killed profiler is lost
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _started_at(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None where it is gone or has ended."""
    try:
        # the name in it may be cut within a letter
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
