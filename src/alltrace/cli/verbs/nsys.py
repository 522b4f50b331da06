"""The verb `nsys`: command lines of NVIDIA's `nsys stats`, `analyze`, `recipe` and `export`, answered by alltrace."""

import argparse
from importlib import import_module

from alltrace.cli.nsys.arguments import RefusedError

EXAMPLE = "alltrace nsys stats --report cuda_gpu_kern_sum,cuda_api_sum --format csv report.nsys-rep"


def configure(parser: argparse.ArgumentParser) -> None:
    """The command; everything after it is read as nsys reads it."""
    parser.add_argument(
        "command",
        choices=("stats", "analyze", "recipe", "export"),
        help="NVIDIA's command; `COMMAND --help` shows its options",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="as for NVIDIA's command")


def run(args: argparse.Namespace) -> int:
    if args.command in ("recipe", "export"):
        code: int = import_module(f"alltrace.cli.nsys.{args.command}").run(args.rest)
        return code
    if args.command in ("stats", "analyze"):
        from alltrace.cli.nsys import stats
        from alltrace.cli.nsys.reports import Reports
        from alltrace.cli.nsys.rules import Rules

        return stats.run(Reports() if args.command == "stats" else Rules(), args.rest)
    raise RefusedError(f"unknown nsys command {args.command!r}; expected stats, analyze, recipe or export")
