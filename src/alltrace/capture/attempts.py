"""Runs a chosen rank's program under the profiler, and once more without what the profiler refuses."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from alltrace.capture.afterwards import Afterwards
from alltrace.capture.check import find_reports
from alltrace.capture.gpu_log import gpu_log_path, recording
from alltrace.capture.guard import Guard
from alltrace.capture.identity import safe
from alltrace.capture.nccl_log import nccl_log
from alltrace.capture.once_per_node import first_to_say
from alltrace.capture.plan import (
    Plan,
    Request,
    instrument_variables,
    plan_rank,
    records_node,
    say_notes,
)
from alltrace.capture.profilers.nsys import LeftOut, may_be_left_out
from alltrace.capture.program_shell import BASH, ProgramShell
from alltrace.capture.report_files import (
    LOG,
    account,
    files_beside,
    full,
    name_by_rank,
    name_windows,
    prepare,
    remove_older,
    tidy,
    write_side_file,
)
from alltrace.capture.selection import expand
from alltrace.capture.supervise import MANNERS, Outcome, Output, Patience, supervise
from alltrace.capture.variables import MARK
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, EXIT_STRICT, AlltraceError, printable
from alltrace.trace.side_file_words import ROLE

_TRACE = ".pt.trace.json.gz"
_LAST_DIGIT = 9
_LONGEST = 240
_PAUSE_S = 1.0
_PROGRESS = re.compile(r"\s*\[\d+/\d+\] \[.*%")


def profile(
    request: Request, program: Sequence[str], variables: Mapping[str, str], guard: Guard, say: Callable[[str], None]
) -> int | None:
    """Profile the program; returns the exit code, or None if it should run without a profiler."""
    # PyTorch's profiler is a part of the program, which writes its traces itself.
    after: Afterwards | None = None
    try:
        plan = plan_rank(request, variables, os.uname().nodename)
        folder = plan.traces or (plan.report and plan.report.parent)
        if folder is None:
            return None
        after = Afterwards(request, plan, variables, guard, say)
        after.begin()
        job = expand("{job}", "--job", plan.who, variables, request.job)
        role = safe(variables.get(ROLE, ""))
        traces = f"{job.replace('/', '-')}{role and '_' + role}_rank{plan.who.rank}-of-"
        report = plan.report or folder / traces
        own = instrument_variables(request, plan, folder, variables)
        private = prepare(request, report, plan.who.rank)
    except (AlltraceError, OSError) as error:
        if after is not None:
            after.leave(str(error))
        if request.on_error != "run":
            raise
        say(f"{error}; the program runs unprofiled")
        return None
    if request.force and plan.report is not None:  # what is there afterwards must be of this run
        remove_older(report)
    say_notes(request, plan, say)
    _say_left_out(plan, (), guard, say)
    nccl = nccl_log(request, plan, folder, private, variables)
    own = {**variables, **own, **nccl.variables}
    if plan.report is not None:
        own |= {"TMPDIR": str(private), MARK: request.profiler}
    me = f"rank {plan.who.rank}"
    before = time.time()
    try:
        log = gpu_log_path(folder, job, plan.who.host)
        with recording(list(plan.gpu_log) if plan.gpu_log else None, log):
            plan, outcome = _attempted(request, plan, program, own, private, guard, say)
    except OSError as error:
        say(f"{error.filename or me}: {error.strerror}; nothing was run")
        after.leave("it was not run")
        return EXIT_INPUT
    nccl.finish(me, say)
    if plan.traces is not None:
        tidy(private)
        reports: Sequence[Path] = _written_since(report, before)
        if not reports and (request.verbose or request.then.asked):
            say(f"{me}: no trace in {folder}; `alltrace.instrument.steps` or `torch_profile` writes them")
        lost = not reports
    elif not outcome.started and request.on_error != "stop" and not outcome.asked_to_end and full(private) is None:
        say(f"{me}: {_unstarted(outcome, private)}, which now runs unprofiled")
        tidy(private)
        after.leave("it was not profiled")
        return None
    else:
        plan, report, lost = _accounted(request, plan, report, outcome, private, variables, say)
        reports = find_reports(report).whole
    after.finish(reports, files_beside(plan, report, log), ended=outcome.asked_to_end)
    return EXIT_STRICT if lost and request.strict and outcome.code == EXIT_DONE else outcome.code


def _written_since(beginning: Path, before: float) -> list[Path]:
    """The traces of one rank, whose names have this beginning, written after a time, by the clock of their writer."""
    names = (p for p in beginning.parent.iterdir() if p.name.startswith(beginning.name) and p.name.endswith(_TRACE))
    # a file system's clock may lag the node's
    return [p for p in sorted(names) if p.stat().st_mtime > before - 60]


def _accounted(
    request: Request,
    plan: Plan,
    report: Path,
    outcome: Outcome,
    private: Path,
    variables: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[Plan, Path, bool]:
    """Name the report of a profiler and say what it lacks; the plan and report by then, and whether it is missing."""
    me = f"rank {plan.who.rank}"
    if request.nsys.armed:
        name_windows(report, private)
    plan, report = name_by_rank(request, plan, report, private, variables)
    problems = list(outcome.notes) if outcome.started else [_unstarted(outcome, private)]
    _show_printed(request, private, me, say)
    lost = account(request, report, private, me, problems, say)
    if not lost:
        with suppress(OSError):
            write_side_file(request, plan, report, safe(variables.get(ROLE, "")))
    return plan, report, lost


def _attempted(
    request: Request,
    plan: Plan,
    program: Sequence[str],
    variables: Mapping[str, str],
    private: Path,
    guard: Guard,
    say: Callable[[str], None],
) -> tuple[Plan, Outcome]:
    """Run the program under the profiler, which may end before the program has started."""
    # If it names an option that it refuses, it is started without that option; otherwise it is started again, as nsys
    # sometimes fails on a busy machine, and then without all optional options. The program is started once at most.
    again, turn = False, -1
    while True:  # each turn leaves out an option more, but for the one that is the same again
        turn += 1
        program_shell = ProgramShell(private, f"turn{turn}-" if turn else "")
        # a profiler that has failed once shows what it says
        descriptors = None if request.verbose or again or plan.report is None else _descriptors()
        outcome = supervise(
            [*(plan.command or ()), *program_shell.around(program, guard.mask, descriptors)],
            variables,
            program_shell,
            guard=guard,
            finished=partial(_is_written, plan.report),
            patience=Patience(request.grace_s, request.end_after_s),
            manners=MANNERS[request.profiler],
            output=Output(private / LOG, *descriptors) if descriptors else None,
        )
        program_shell.forget()
        if plan.report is None or not outcome.failed_to_start or full(private) is not None:
            return plan, outcome
        refused = _refused(request, plan, private, every=again)
        if refused:
            before = plan.left_out
            plan = plan_rank(request, variables, os.uname().nodename, (*before, *refused))
            _say_left_out(plan, before, guard, say)
            continue
        if again:
            return plan, outcome
        if request.verbose:
            say(f"rank {plan.who.rank}: {_unstarted(outcome, private)}; it is started again")
        time.sleep(_PAUSE_S)
        again = True


def _is_written(report: Path | None) -> bool:
    return report is None or bool(find_reports(report).whole)


def _refused(request: Request, plan: Plan, private: Path, *, every: bool) -> list[LeftOut]:
    """The options that the profiler complains of; with `every`, all that can be left out; none if nothing can."""
    if request.profiler != "nsys" or request.on_error != "drop":
        return []
    without = {one.option for one in plan.left_out}
    may_be = may_be_left_out(request.nsys, plan.command or (), node_wide=records_node(request.selection, plan.who))
    complaint = _complaint(private)
    named = {o for o, words in may_be.items() if any(word in complaint for word in words)} - without
    reason = f"nsys says: {complaint}" if complaint else "nsys ended before the program started"
    return [
        LeftOut(option, reason) for option in may_be if option in (named or (set(may_be) - without if every else ()))
    ]


def _complaint(private: Path) -> str:
    """What the profiler printed before it ended, as one short sentence; empty if that is not known."""
    try:
        lines = (private / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    stripped = [line.strip() for line in lines if line.strip()]
    usage = next((n for n, line in enumerate(stripped) if line.startswith("usage:")), len(stripped))
    return printable(" ".join(stripped[:usage]))[:_LONGEST]


def _show_printed(request: Request, private: Path, me: str, say: Callable[[str], None]) -> None:
    """Say what the profiler printed for a user's own arguments, such as `--stats=true`, without progress bars."""
    if not (request.nsys.extra or request.ncu.extra):
        return
    try:
        lines = (private / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return
    for line in lines:
        last = line.rsplit("\r", 1)[-1].rstrip()
        if last and not _PROGRESS.match(last):
            say(f"{me}: {printable(last)}")


def _say_left_out(plan: Plan, before: Sequence[LeftOut], guard: Guard, say: Callable[[str], None]) -> None:
    """Say which options this node cannot have; ranks of a node say the same, and the first is heard."""
    for reason in dict.fromkeys(one.reason for one in plan.left_out if one not in before):
        options = ", ".join(one.option for one in plan.left_out if one.reason == reason)
        text = f"{plan.who.host}: {options} left out: {reason}; the rest is recorded"
        if first_to_say(text, guard.launcher):
            say(text)


def _descriptors() -> tuple[int, int] | None:
    """Two descriptors that the program does not inherit anyway; None without two."""
    # They have one digit, which is what each shell knows, unless all of these are taken, as below Hydra, and there is
    # bash.
    free = []
    for number in (*range(_LAST_DIGIT, 2, -1), *(range(20, 64) if BASH else ())):
        try:
            inherited = os.get_inheritable(number)
        except OSError:
            inherited = False
        free += [] if inherited else [number]
    return (free[0], free[1]) if len(free) > 1 else None


def _unstarted(outcome: Outcome, private: Path) -> str:
    complaint = _complaint(private)
    return f"the profiler ended with {outcome.code} before the program started" + (
        f" ({complaint})" if complaint else ""
    )
