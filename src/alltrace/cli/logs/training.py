"""`logs training`."""

from __future__ import annotations

import argparse

from alltrace.cli.command import add_pattern_option, add_steps_option
from alltrace.trace.errors import EXIT_DONE, InputError, UsageError
from alltrace.trace.spans import parse_steps

EXAMPLE = "alltrace logs training train_a.log train_b.log --steps 45:50"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the question")
    group.add_argument(
        "--view",
        choices=("summary", "steps"),
        default="summary",
        help="each metric over all steps, or each step; default: summary",
    )
    add_steps_option(group, "only these steps")
    add_pattern_option(group)


def run(args: argparse.Namespace) -> int:
    from functools import partial

    from alltrace.cli.output import write_answer
    from alltrace.readers.training_log.formats import own_pattern
    from alltrace.readers.training_log.read import read_training
    from alltrace.recipes.logs.training import answer
    from alltrace.run.log_files import expand, read_files

    span = parse_steps(args.steps)
    for text in args.pattern:
        own_pattern(text)
    read = read_files(partial(read_training, patterns=tuple(args.pattern)), expand(args.files)).require_any()
    logs = read.results
    steps = [s[0] for log in logs for s in log.steps]
    if not steps:
        raise InputError(
            logs[0].path if len(logs) == 1 else f"{logs[0].path} and {len(logs) - 1} more",
            found=f"no step lines in {sum(log.lines for log in logs)} lines",
            expected="step lines of a supported training framework (`logs training --help`)"
            if not args.pattern
            else "lines that match --pattern",
            advice=None if args.pattern else "describe its lines with --pattern",
        )
    if span is not None and not any(map(span.holds, steps)):
        raise UsageError(f"--steps is {span}; the logs have steps {min(steps)} to {max(steps)}")
    facts = {"ranks": 0, "hosts": 0, "devices": 0, "span_ns": 0}
    write_answer("logs training", answer(logs, args.view, span).with_notes(*read.notes), facts, args)
    return EXIT_DONE
