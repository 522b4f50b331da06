"""The verb `nsys`: command lines of NVIDIA's `nsys stats`, `analyze`, `recipe` and `export`, answered by alltrace."""

import argparse

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
    if args.command == "stats":
        from alltrace.cli.nsys import stats
        from alltrace.cli.nsys.reports import Reports

        return stats.run(Reports(), args.rest)
    if args.command == "analyze":
        from alltrace.cli.nsys import stats
        from alltrace.cli.nsys.rules import Rules

        return stats.run(Rules(), args.rest)
    if args.command == "recipe":
        from alltrace.cli.nsys import recipe

        return recipe.run(args.rest)
    if args.command == "export":
        from alltrace.cli.nsys import export

        return export.run(args.rest)
    raise RefusedError(f"unknown nsys command {args.command!r}; expected stats, analyze, recipe or export")
