"""The wrapper that runs under each rank: profiles the ranks that are chosen, runs the others plainly."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from alltrace.capture.identity import find_identity
from alltrace.capture.plan import Request, instrument_variables, plan_rank, say_notes
from alltrace.capture.profilers.ncu import patience
from alltrace.capture.variables import RAY_JOB
from alltrace.trace.errors import AlltraceError, UsageError

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_RAYLET = "RAY_RAYLET_PID"
_NCCL_TEST = re.compile(
    "(all_gather|all_reduce|alltoallv?|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf.*"
)
_FATAL = {
    int(signal.Signals[f"SIG{name}"])
    for name in "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL SEGV PIPE ALRM TERM USR1 USR2 XCPU XFSZ SYS".split()
}


def run_rank(
    request: Request, program: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]
) -> int:
    """Run the program as this rank, profiled or plainly; a plain one replaces this process and does not return."""
    # The program's exit code; 4 if `strict` is set, the program succeeded and its report is missing. If a signal ended
    # the program, it ends this process, too.
    runnable = shutil.which(program[0], path=environment.get("PATH"))
    if runnable is None:
        exists = Path(program[0]).exists()
        say(f"{program[0]}: {'it cannot be executed' if exists else 'there is no such program'}; nothing was run")
        return _NOT_EXECUTABLE if exists else _NOT_FOUND
    if request.nsys.steps is not None and _NCCL_TEST.fullmatch(Path(program[0]).name):
        raise UsageError(
            f"{program[0]} is one of nccl-tests, which have no steps; give --delay and --duration instead of --steps"
        )
    variables = dict(environment)
    if _RAYLET in environment:
        from alltrace.capture.ray_actors import ray_variables

        variables.update(ray_variables(request, program, environment))
        if RAY_JOB in variables and request.then.imports:
            raise UsageError(
                "--then import does not work with Ray actors, which do not end together; run `alltrace import` on their"
                " reports"
            )
    if request.profiler == "ncu":
        variables = {**patience(), **variables}
    try:
        chosen = request.selection.holds(find_identity(variables, os.uname().nodename))
    except AlltraceError as error:
        if request.on_error != "run":
            raise
        say(f"{error}; the program runs unprofiled")
        _become(program, variables)
    if not chosen or (request.profiler == "torch" and not (request.gpu_log or request.nccl_log or request.then.asked)):
        _unprofiled(request, program, variables, say)
    from alltrace.capture.attempts import profile
    from alltrace.capture.guard import guarded  # a rank that is not profiled does without

    code = guarded(lambda guard: profile(request, program, variables, guard, say))
    if code is None:
        _become(program, variables)
    if code - 128 in _FATAL:
        _die(code - 128)
    return code


def _die(number: int) -> NoReturn:
    """End by the signal that ended the program: launchers of MPI then end the other ranks, and not for an exit code."""
    import resource

    # it would be one of the wrapper
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    sys.stderr.flush()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os._exit(128 + number)


def _unprofiled(
    request: Request, program: Sequence[str], variables: dict[str, str], say: Callable[[str], None]
) -> NoReturn:
    """Become the program, if no profiler is put around it."""
    try:
        plan = plan_rank(request, variables, os.uname().nodename)
    except (AlltraceError, OSError) as error:
        if request.on_error != "run":
            raise
        say(f"{error}; the program runs unprofiled")
        _become(program, variables)
    say_notes(request, plan, say)
    if plan.traces is not None:
        variables.update(instrument_variables(request, plan, plan.traces, variables))
    _become(program, variables)


def _become(program: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(program[0], list(program), dict(environment))  # noqa: S606
