"""The sub-verb `capture exec`: profiles this rank if it is chosen."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from alltrace.capture.exec import run_rank
from alltrace.capture.identity import find_identity
from alltrace.capture.options import OPTIONS, WHEN, check_command, make_request
from alltrace.capture.plan import Request, plan_rank
from alltrace.cli.capturing.heaviest import checked_top, heaviest
from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, AlltraceError, UsageError, printable
from alltrace.trace.side_file_words import ROLE

EXAMPLE = "mpirun -np 16 alltrace capture exec --ranks first-local --steps 70:75 -- python train.py --batch 8"


def configure(parser: argparse.ArgumentParser, *, arms: bool = False) -> None:
    """Who is profiled, what is recorded, where it goes; the program follows `--`. With `arms`, nothing says when."""
    parser.usage = f"{parser.prog} [options] -- PROGRAM [ARGUMENT ...]"
    options = [o for o in OPTIONS if not (arms and o.group == WHEN)]
    groups = {title: parser.add_argument_group(title) for title in dict.fromkeys(o.group for o in options)}
    for option in options:
        option.add_to(groups[option.group])


def run(args: argparse.Namespace, *, arms: bool = False, rule: str = "") -> int:
    """Run the program and return its exit code. With `arms`, it records on command, or by `rule`."""
    request = request_from(args)
    if arms:
        request = request._replace(nsys=request.nsys._replace(armed=True), rule=rule)
    if args.emit_sh:
        from alltrace.capture.scripts.exec_sh import exec_script

        if request.kernels is not None:
            request = request._replace(ncu=request.ncu._replace(kernels=request.kernels()))
        only_python = [o.flag for o in OPTIONS if not o.in_shell and getattr(args, o.name) != o.default]
        print(exec_script(request, only_python), end="")  # noqa: T201
        return EXIT_DONE
    if not args.program:
        raise UsageError(
            "capture exec needs a program after a lone --, such as `alltrace capture exec -- python train.py`"
        )
    if args.dry_run:
        return _show(request, args.program, _environment(args))
    try:
        return run_rank(request, args.program, _environment(args), _say)
    except AlltraceError as error:
        from alltrace.capture.once_per_node import first_to_say

        who = find_identity(os.environ, os.uname().nodename)
        if who.world_size != 1 and not first_to_say(str(error)):
            return error.exit_code
        raise
    except OSError as error:
        _say(f"{error.filename or args.program[0]}: {error.strerror}; nothing was run")
        return EXIT_INPUT


def request_from(args: argparse.Namespace) -> Request:
    """What the options ask for; a UsageError for options that exclude each other, or a value that cannot be."""
    values: dict[str, Any] = {o.name: getattr(args, o.name, o.default) for o in OPTIONS}
    check_command(values)
    top = checked_top(values["top"])
    return make_request(values, None if top is None else partial(heaviest, *top))


def _environment(args: argparse.Namespace) -> dict[str, str]:
    return {**os.environ, **({} if args.role is None else {ROLE: args.role})}


def _show(request: Request, program: list[str], environment: Mapping[str, str]) -> int:
    import shlex

    plan = plan_rank(request, environment, os.uname().nodename)
    for note in plan.notes:
        _say(f"rank {plan.who.rank}: {note}")
    for one in plan.left_out:
        _say(f"rank {plan.who.rank}: {one.option} would be left out: {one.reason}")
    print(shlex.join([*(plan.command or ()), *program]))  # noqa: T201
    return EXIT_DONE


def _say(text: str) -> None:
    """One write for one line, so that the lines of many ranks do not mix; a launcher that is gone gets nothing."""
    with suppress(OSError):
        sys.stderr.write(f"alltrace capture: {printable(text)}\n")
        sys.stderr.flush()
