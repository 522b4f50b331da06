"""The verb `stats`: prints the report of `nsys stats` with that name."""

import argparse

from alltrace.cli.command import listed
from alltrace.cli.recipe_verb import ask_by_name
from alltrace.recipes.reference import summary
from alltrace.trace.errors import EXIT_DONE, UsageError

EXAMPLE = "alltrace stats cuda_gpu_kern_sum ./reports/ --format csv"


def configure(parser: argparse.ArgumentParser) -> None:
    """The report's name; everything after it goes to the report's own parser."""
    parser.add_argument("--list", action="store_true", help="list all reports, with what each shows")
    parser.add_argument(
        "name", nargs="?", metavar="NAME[:flag][:option=value]", help="the report; `NAME --help` shows its options"
    )
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="RUN [options]", help="the run and the report's options"
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.recipes.registry import REPORTS, find_report

    if args.list:
        for line in listed((name, summary(find_report(name))) for name in REPORTS):
            print(line)  # noqa: T201
        return EXIT_DONE
    if args.name is None:
        raise UsageError("stats needs the name of a report; `alltrace stats --list` lists the reports")
    return ask_by_name("stats", find_report(args.name), args.rest, command=f"alltrace stats {args.name}")
