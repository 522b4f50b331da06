"""Two processes that look after each other: the one that the launcher knows, and the one that runs the profiler.

A launcher that aborts a job kills the processes that it has started, and at once. The profiler and the program would
run on without anybody, or a report would be cut in the middle. So the process that the launcher knows, here the
*guard*, only passes signals on. It has a child in a separate process group, here the *supervisor*, which does the rest:

* The guard is killed: the supervisor reads the end of the pipe, ends the program, and waits for the report.
* The supervisor is killed: the guard becomes the parent of its children, and kills them.
"""

import os
import signal
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple, NoReturn

from alltrace.capture.processes import become_subreaper, end_children, reap
from alltrace.trace.errors import EXIT_DEFECT, AlltraceError

PASSED_ON = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGCONT,
    }
)
"""The signals that the guard passes on."""
_FROM_TERMINAL = 0x80  # SI_KERNEL: the terminal has sent it to its whole foreground group
_PLAINLY = "run it plainly"


class Guard(NamedTuple):
    pid: int  # the guard's process
    launcher: int  # the process that has started it
    # A pipe with two bytes for each signal: its number, and whether a terminal sent it. It ends with the guard
    signals: int
    mask: Collection[int]  # the signals that were blocked before, and stay so for the program


class SupervisorError(AlltraceError):
    """An error that the supervisor met, for the guard's caller."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def guarded(work: Callable[[Guard], int | None]) -> int | None:
    """Do `work` in a child, and pass on to it what signals come."""
    # What `work` gave, or 128 and the signal if the child was killed; no process below is left then. With None the
    # signals are blocked as they were before.
    become_subreaper()
    signals = PASSED_ON | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    heard, sent = os.pipe()
    verdict, reply = os.pipe()
    guard = Guard(os.getpid(), os.getppid(), heard, mask)
    supervisor = os.fork()
    if not supervisor:
        os.close(sent)
        os.close(verdict)
        _supervise(work, guard, reply)
    os.close(heard)
    os.close(reply)
    statuses: dict[int, int] = {}
    while supervisor not in statuses:
        info = signal.sigwaitinfo(signals)
        if info.si_signo == signal.SIGCHLD:
            reap(statuses)
            continue
        with suppress(BrokenPipeError):
            os.write(sent, bytes((info.si_signo, info.si_code == _FROM_TERMINAL)))
    with os.fdopen(verdict, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    os.close(sent)
    code = os.waitstatus_to_exitcode(statuses[supervisor])
    if code < 0:
        end_children(statuses)
        return 128 - code
    if text == _PLAINLY:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return None
    if text:
        raise SupervisorError(text, code)
    return code


def _supervise(work: Callable[[Guard], int | None], guard: Guard, reply: int) -> NoReturn:
    code, text = EXIT_DEFECT, ""
    try:
        # what a launcher sends to the guard's group would end the profiler; a terminal is read by its foreground group
        # alone
        if not os.isatty(0):
            os.setpgid(0, 0)
        done = work(guard)
        code, text = (0, _PLAINLY) if done is None else (done, "")
    except AlltraceError as error:
        code, text = error.exit_code, str(error)
    except BaseException:  # noqa: BLE001  this process has no caller
        with suppress(OSError):
            traceback.print_exc()
    with suppress(OSError):
        os.write(reply, text.encode("utf-8", "surrogateescape"))
    os._exit(code)
