"""The sub-verb `capture arm`: starts a rank that records nothing until it gets a command."""

import argparse

from alltrace.capture.armed import parse_rule
from alltrace.cli.capturing import exec_
from alltrace.trace.errors import UsageError
from alltrace.trace.options import Option, count

EXAMPLE = "srun alltrace capture arm -o reports --when 'step_time > 1.3 * median' -- python train.py"

_OPTIONS = (
    Option(
        "when",
        str,
        None,
        "also record when this rule holds, such as 'step_time > 1.3 * median' or 'step_time > 2 s'",
        metavar="RULE",
    ),
    count("when_steps", 10, "how many steps to record then"),
    count("when_most", 3, "at most how many times"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """What `capture exec` has, but for when; and a rule."""
    exec_.configure(parser, arms=True)
    group = parser.add_argument_group("by a rule")
    for option in _OPTIONS:
        option.add_to(group)


def run(args: argparse.Namespace) -> int:
    if args.profiler == "ncu":
        raise UsageError("capture arm works with nsys and torch, and --profiler is ncu; use `capture exec`")
    if args.when is not None:
        parse_rule(args.when)
    rule = "" if args.when is None else f"{args.when_steps} {args.when_most} {args.when}"
    return exec_.run(args, arms=True, rule=rule)
