"""The sub-verb `capture arm`: starts a rank that records nothing until it gets a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.armed import parse_rule
from alltrace.cli.argument_types import positive
from alltrace.cli.capturing import exec_
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    import argparse

EXAMPLE = "srun alltrace capture arm -o reports --when 'step_time > 1.3 * median' -- python train.py"
_WINDOWS = ("steps", "capture_range", "delay", "duration", "repeat")


def configure(parser: argparse.ArgumentParser) -> None:
    """What `capture exec` has, but for when; and a rule."""
    exec_.configure(parser, arms=True)
    when = parser.add_argument_group("by a rule")
    when.add_argument(
        "--when", metavar="RULE", help="also record when this rule holds, such as 'step_time > 1.3 * median' or 'step_time > 2 s'"
    )
    when.add_argument("--when-steps", type=positive, default=10, metavar="N", help="how many steps to record then; default: 10")
    when.add_argument("--when-most", type=positive, default=3, metavar="N", help="at most how many times; default: 3")


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit code."""
    if args.profiler == "ncu":
        raise UsageError("capture arm works with nsys and torch, and --profiler is ncu; use `capture exec`")
    for name in _WINDOWS:
        setattr(args, name, None)
    if args.when is not None:
        parse_rule(args.when)
    rule = "" if args.when is None else f"{args.when_steps} {args.when_most} {args.when}"
    return exec_.run(args, arms=True, rule=rule)
