"""The wrapper that runs under each rank: profiles the ranks that are chosen, runs the others plainly."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from alltrace.capture.check import ENDINGS, find_reports
from alltrace.capture.identity import Identity, find_identity
from alltrace.capture.profilers.ncu import NcuOptions, ask_ncu, ncu_command, patience
from alltrace.capture.profilers.nsys import JOB, MARK, STEPS, TRACES, NsysOptions, ask_nsys, nsys_command
from alltrace.capture.profilers.tool import locate
from alltrace.capture.selection import NAME, Selection, expand
from alltrace.capture.supervise import MANNERS, REVOKED, Outcome, Witness, supervise
from alltrace.trace.errors import EXIT_DONE, EXIT_STRICT, AlltraceError, InputError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_LEAVINGS = "nvidia"
_LEAST_BYTES = 1 << 20
_PAUSE_S = 1.0
_RAW = (".qdstrm", ".nsys-rep", ".ncu-rep")


class Request(NamedTuple):
    """What `capture exec` is asked to do.

    Attributes:
        output: The folder for reports, made where it is missing; may hold fields.
        name: The report's name without ending, with fields.
        job: The job's name; None for what the launcher says.
        selection: Which ranks are profiled.
        profiler: `nsys`, `ncu` or `torch`, which is the program's own: `alltrace.instrument.torch_profile` then records.
        tool: The profiler's program, as given; None to look for it.
        nsys: What nsys records.
        ncu: What ncu records.
        kernels: Gives the filter for ncu where `ncu` has none; asked only where this rank is profiled.
        tmp: Where the private temporary folder is made; None for TMPDIR or the system's.
        force: Whether an existing report may be replaced.
        on_error: `stop` ends before the program starts when it cannot be profiled, `run` runs it plainly.
        strict: Whether a missing report is an exit code of its own, where the program succeeded.
        verbose: Whether every rank says what it did.
        grace_s: Seconds that a profiler of which a part was killed is given to finish a report.
    """

    output: str = "reports"
    name: str = NAME
    job: str | None = None
    selection: Selection = Selection()
    profiler: str = "nsys"
    tool: str | None = None
    nsys: NsysOptions = NsysOptions()
    ncu: NcuOptions = NcuOptions()
    kernels: Callable[[], str] | None = None
    tmp: str | None = None
    force: bool = False
    on_error: str = "stop"
    strict: bool = False
    verbose: bool = False
    grace_s: float = 60.0


class Plan(NamedTuple):
    """How one rank is run.

    Attributes:
        who: Its place.
        command: The profiler's switches, without the program; None to run the program plainly.
        report: The report that there should be afterwards; None for none.
        notes: What a reader must know.
        traces: The folder in which `torch_profile` writes; None where it records nothing.
    """

    who: Identity
    command: tuple[str, ...] | None
    report: Path | None
    notes: tuple[str, ...]
    traces: Path | None = None


def plan_rank(request: Request, environment: Mapping[str, str], host: str) -> Plan:
    """Whether and how this rank is profiled; makes nothing.

    Raises:
        UsageError: An option cannot be met.
        InputError: The report exists already.
    """
    who = find_identity(environment, host)
    notes = list(who.notes)
    chosen = request.selection.holds(who)
    outside = request.selection.outside(who.world_size)
    if outside:
        notes.append(f"--ranks names {outside}, which a world of {who.world_size} does not have")
    if not chosen:
        return Plan(who, None, None, tuple(notes))
    folder = Path(expand(request.output, "--output", who, environment, request.job, folder=True)).absolute()
    if request.profiler == "torch":
        return Plan(who, None, None, tuple(notes), folder)
    name = expand(request.name, "--name", who, environment, request.job)
    ending = ENDINGS[request.profiler]
    report = folder / (name if name.endswith(ending) else name + ending)
    found = find_reports(report)
    if not request.force and (found.whole or found.faults):
        raise InputError(
            (found.whole or tuple(p for p, _ in found.faults))[0],
            found="the report exists already",
            advice="give another --output or --job, or --force to replace it",
        )
    node_wide = records_node(request.selection, who)
    path = locate(request.profiler, request.tool)
    if request.profiler == "ncu":
        options = request.ncu
        if request.kernels is not None:
            options = options._replace(kernels=request.kernels())
        peers = request.selection.chosen(who)
        if peers != 1 and options.lockstep is None:
            notes.append("several ranks replay kernels by themselves; this ends only where no chosen kernel waits for another rank")
        command = ncu_command(ask_ncu(path), report, options, force=request.force, peers=peers)
    else:
        command = nsys_command(ask_nsys(path), report, request.nsys, node_wide=node_wide, force=request.force)
    return Plan(who, tuple(command), report, tuple(notes))


def records_node(selection: Selection, who: Identity) -> bool:
    """Whether this rank is the first one of its node that is profiled, where a node's ranks follow each other."""
    if not who.local_rank:
        return True
    return not any(
        selection.holds(who._replace(rank=who.rank - lower, local_rank=who.local_rank - lower))
        for lower in range(1, min(who.local_rank, who.rank) + 1)
    )


def run_rank(request: Request, program: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Run the program as this rank, profiled or plainly; a plain one replaces this process and does not return.

    Args:
        request: What is asked.
        program: The program and its arguments.
        environment: The variables, not changed.
        say: Gets each message.

    Returns:
        The program's exit code; 4 where `strict` is set, the program succeeded and its report is missing.
    """
    runnable = shutil.which(program[0], path=environment.get("PATH"))
    if runnable is None:
        exists = Path(program[0]).exists()
        say(f"{program[0]}: {'it cannot be executed' if exists else 'there is no such program'}; nothing was run")
        return _NOT_EXECUTABLE if exists else _NOT_FOUND
    variables = dict(environment)
    if request.profiler == "ncu":
        variables = {**patience(), **variables}
    try:
        plan = plan_rank(request, environment, os.uname().nodename)
        private = _prepare(request, plan.report, plan.who.rank) if plan.report else None
    except (AlltraceError, OSError) as error:
        if request.on_error != "run":
            raise
        say(f"{error}; the program runs unprofiled")
        _become(program, variables)
    me = f"rank {plan.who.rank}"
    if plan.who.rank == 0 or request.verbose:
        for note in plan.notes:
            say(f"{me}: {note}")
    if plan.traces is not None:
        variables.update(_for_torch(request, plan))
    if plan.command is None or plan.report is None or private is None:
        _become(program, variables)
    report = plan.report
    if request.force:  # what is there afterwards must be of this run
        _remove(report)
    plain = dict(variables)
    variables.update({"TMPDIR": str(private), MARK: request.profiler, **_window(request)})
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    outcome = _profiled(request, plan, program, variables, private, mask, say)
    if not outcome.started and request.on_error == "run" and not outcome.asked_to_end:
        say(f"{me}: {_unstarted(outcome)}, which now runs unprofiled")
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _become(program, plain)
    problems = list(outcome.notes) if outcome.started else [_unstarted(outcome)]
    lost = _account(request, report, private, me, problems, say)
    return EXIT_STRICT if lost and request.strict and outcome.code == EXIT_DONE else outcome.code


def _profiled(
    request: Request,
    plan: Plan,
    program: Sequence[str],
    variables: Mapping[str, str],
    private: Path,
    mask: Collection[int],
    say: Callable[[str], None],
) -> Outcome:
    """Run the program under the profiler; where that ends by itself before the program started, once more."""
    turn = ""
    while True:
        witness = Witness(private, turn)
        outcome = supervise(
            [*(plan.command or ()), *witness.around(program, mask)],
            variables,
            witness,
            finished=lambda: plan.report is not None and bool(find_reports(plan.report).whole),
            grace_s=request.grace_s,
            manners=MANNERS[request.profiler],
            mask=mask,
        )
        witness.forget()
        if turn or not outcome.failed_to_start or _full(private) is not None:
            return outcome
        if request.verbose:
            say(f"rank {plan.who.rank}: {_unstarted(outcome)}; it is started once more")
        time.sleep(_PAUSE_S)
        turn = "again-"


def _unstarted(outcome: Outcome) -> str:
    return f"the profiler ended with {outcome.code} before the program started"


def _for_torch(request: Request, plan: Plan) -> dict[str, str]:
    """The variables that `alltrace.instrument.torch_profile` finds."""
    found = {TRACES: str(plan.traces)}
    if request.job is not None:
        found[JOB] = request.job
    return {**found, **_window(request)}


def _window(request: Request) -> dict[str, str]:
    """The variable that `alltrace.instrument.steps` finds; none where no steps are named."""
    steps = request.nsys.steps
    return {} if steps is None else {STEPS: f"{steps[0]}:{steps[1]}"}


def _prepare(request: Request, report: Path, rank: int) -> Path:
    """Make the report's folder and the rank's temporary one.

    Raises:
        InputError: One of them cannot be made or written.
    """
    folder = report.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".alltrace-{os.urandom(8).hex()}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InputError(
            folder, found=f"no report can be written there ({error.strerror})", advice="give another --output"
        ) from error
    base = request.tmp or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    private = Path(base).absolute() / f"alltrace-{rank}-{os.urandom(8).hex()}"
    try:
        private.mkdir(mode=0o700)
        return private
    except OSError as error:
        raise InputError(
            base, found=f"no temporary folder can be made there ({error.strerror})", advice="give a local, writable --tmp or TMPDIR"
        ) from error


def _remove(report: Path) -> None:
    """Remove the reports that stand where this rank's will be.

    Raises:
        InputError: One of them cannot be removed.
    """
    found = find_reports(report)
    for path in (*found.whole, *(p for p, _ in found.faults)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                path, found=f"the older report cannot be removed ({error.strerror})", advice="give another --output or --job"
            ) from error


def _become(program: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(program[0], list(program), dict(environment))  # noqa: S606


def _account(request: Request, report: Path, private: Path, me: str, problems: list[str], say: Callable[[str], None]) -> bool:
    """Say what there is and what is missing, tidy up; whether the report is missing."""
    found = find_reports(report)
    problems += [f"{path.name}: {fault}" for path, fault in found.faults]
    # not rglob, which fails where the profiler removes a folder meanwhile
    left = sorted(Path(at, n) for at, _, names in os.walk(private) for n in names if n.endswith(_RAW))
    if not found.whole:
        began = request.nsys.range_began_by if request.profiler == "nsys" else None
        if began and not found.faults and not problems:
            problems.append(f"the recording never began, because {began} did not come")
        problems += [full for folder in (report.parent, private) if (full := _full(folder)) is not None]
        for path in left:
            problems.append(f"a raw capture is left at {path}; `alltrace capture recover {private}` may save it")
        say(f"{me}: no whole report {report}" + "".join(f"; {printable(p)}" for p in problems))
        if not left:
            _tidy(private)
        return True
    for path in found.whole:
        if request.verbose or problems:
            say(f"{me}: report {path}, {path.stat().st_size} bytes")
    if problems:
        say(f"{me}: {'; '.join(printable(p) for p in problems)}")
    _tidy(private)
    return False


def _full(folder: Path) -> str | None:
    """Says so where a folder has no space for a report; None where it has."""
    with suppress(OSError):
        about = os.statvfs(folder)
        free = about.f_bavail * about.f_frsize
        if free < _LEAST_BYTES:
            return f"only {free} bytes are free in {folder}"
    return None


def _tidy(private: Path) -> None:
    """Remove what the profiler left; what the program put there stays."""
    shutil.rmtree(private / _LEAVINGS, ignore_errors=True)
    with suppress(OSError):
        for path in private.iterdir():
            if path.name.startswith(("injection_config_", "quadd_", "nsys-")) or path.name.endswith(REVOKED):
                path.unlink()
        private.rmdir()
