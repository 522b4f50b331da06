"""Runs a chosen rank's program that PyTorch's profiler traces, if there is work to do meanwhile or afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from alltrace.capture.afterwards import Afterwards
from alltrace.capture.attempts import say_left_out
from alltrace.capture.gpu_log import gpu_log_path, recording
from alltrace.capture.guard import Guard
from alltrace.capture.identity import safe
from alltrace.capture.nccl_log import nccl_log
from alltrace.capture.plan import Request, plan_rank, say_notes, trace_variables
from alltrace.capture.program_shell import ProgramShell
from alltrace.capture.report_files import files_beside, prepare, tidy
from alltrace.capture.selection import expand
from alltrace.capture.supervise import MANNERS, Patience, supervise
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, EXIT_STRICT, AlltraceError
from alltrace.trace.side_file_words import ROLE

_ENDING = ".pt.trace.json.gz"


def run_with_torch(
    request: Request, program: Sequence[str], variables: Mapping[str, str], guard: Guard, say: Callable[[str], None]
) -> int | None:
    """Run the program; returns the exit code, or None if it should run without a profiler."""
    after: Afterwards | None = None
    try:
        plan = plan_rank(request, variables, os.uname().nodename)
        folder = plan.traces
        if folder is None:
            return None
        after = Afterwards(request, plan, variables, guard, say)
        after.begin()
        job = expand("{job}", "--job", plan.who, variables, request.job)
        role = safe(variables.get(ROLE, ""))
        beginning = f"{job.replace('/', '-')}{role and '_' + role}_rank{plan.who.rank}-of-"
        own = {**variables, **trace_variables(request, plan, folder, variables)}
        private = prepare(request, folder / f"{beginning}{_ENDING}", plan.who.rank)
    except (AlltraceError, OSError) as error:
        if after is not None:
            after.leave(str(error))
        if request.on_error != "run":
            raise
        say(f"{error}; the program runs unprofiled")
        return None
    nccl = nccl_log(request, plan, folder, private, variables)
    own.update(nccl.variables)
    say_notes(request, plan, say)
    say_left_out(plan, (), guard, say)
    log = gpu_log_path(folder, job, plan.who.host)
    before = time.time()
    shell = ProgramShell(private)
    try:
        with recording(list(plan.gpu_log) if plan.gpu_log else None, log):
            outcome = supervise(
                shell.around(program, guard.mask),
                own,
                shell,
                guard=guard,
                finished=lambda: True,
                patience=Patience(request.grace_s, request.end_after_s),
                manners=MANNERS["torch"],
            )
    except OSError as error:
        say(f"{error.filename or program[0]}: {error.strerror}; nothing was run")
        after.leave("it was not run")
        return EXIT_INPUT
    shell.forget()
    nccl.finish(f"rank {plan.who.rank}", say)
    tidy(private)
    traces = _written_since(folder, beginning, before)
    if not traces and (request.verbose or request.then.asked):
        say(f"rank {plan.who.rank}: no trace in {folder}; `alltrace.instrument.steps` or `torch_profile` writes them")
    after.finish(traces, files_beside(plan, folder / beginning, log), ended=outcome.asked_to_end)
    return EXIT_STRICT if not traces and request.strict and outcome.code == EXIT_DONE else outcome.code


def _written_since(folder: Path, beginning: str, before: float) -> list[Path]:
    """The traces of one rank that were written after a time, by the clock of their writer."""
    traces = sorted(p for p in folder.iterdir() if p.name.startswith(beginning) and p.name.endswith(_ENDING))
    # a file system's clock may lag the node's
    return [p for p in traces if p.stat().st_mtime > before - 60]
