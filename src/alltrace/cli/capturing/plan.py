"""The sub-verb `capture plan`: what a first profile of a job costs, and what to type."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import positive
from alltrace.cli.capturing.exec_ import seconds
from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

_COLUMNS = 80

EXAMPLE = "alltrace capture plan --ranks 512 --seconds 30"


def configure(parser: argparse.ArgumentParser) -> None:
    """The job to plan."""
    parser.add_argument("--ranks", type=positive, required=True, metavar="N", help="how many ranks the job has")
    parser.add_argument("--per-node", type=positive, default=8, metavar="N", help="ranks per node; default: 8")
    parser.add_argument("--seconds", type=seconds, default=30.0, metavar="SECONDS", help="how long to record; default: 30")
    parser.add_argument(
        "--launches", type=positive, default=10_000, metavar="N", help="kernels that a rank launches per second; default: 10000"
    )
    parser.add_argument("--profiler", choices=("nsys", "torch"), default="nsys", help="default: nsys")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")


def run(args: argparse.Namespace) -> int:
    """Show it."""
    from alltrace.capture.budget import Job, plan_job

    found = plan_job(Job(args.ranks, args.per_node, args.seconds, args.launches, args.profiler))
    if args.format == "json":
        import json

        print(json.dumps([line._asdict() for line in found]))  # noqa: T201
        return EXIT_DONE
    width = max(len(line.what) for line in found) + 2
    for line in found:
        first, *more = textwrap.wrap(line.answer, _COLUMNS - width, drop_whitespace=False)
        print(f"{line.what:<{width}}{first}".rstrip())  # noqa: T201
        for rest in more:
            print(f"{'':<{width}}{rest.strip()}")  # noqa: T201
    return EXIT_DONE
