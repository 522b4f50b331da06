"""The sub-verb `capture plan`: what a first profile of a job costs, and what to type."""

import argparse
import textwrap

from alltrace.trace.errors import EXIT_DONE
from alltrace.trace.options import Option, count, seconds

_COLUMNS = 80

EXAMPLE = "alltrace capture plan --ranks 512 --seconds 30"

_OPTIONS = (
    count("ranks", None, "how many ranks the job has", required=True),
    count("per_node", 8, "ranks per node"),
    seconds("seconds", 30.0, "how long to record"),
    count("launches", 10_000, "kernels that a rank launches per second"),
    Option("profiler", str, "nsys", "", ("nsys", "torch")),
    Option("format", str, "table", "", ("table", "json")),
)


def configure(parser: argparse.ArgumentParser) -> None:
    for option in _OPTIONS:
        option.add_to(parser, **({"required": True} if option.required else {}))


def run(args: argparse.Namespace) -> int:
    from alltrace.capture.budget import Job, plan_job

    lines = plan_job(Job(args.ranks, args.per_node, args.seconds, args.launches, args.profiler))
    if args.format == "json":
        import json

        print(json.dumps([line._asdict() for line in lines]))  # noqa: T201
        return EXIT_DONE
    width = max(len(line.what) for line in lines) + 2
    for line in lines:
        first, *more = textwrap.wrap(line.answer, _COLUMNS - width, drop_whitespace=False)
        print(f"{line.what:<{width}}{first}".rstrip())  # noqa: T201
        for rest in more:
            print(f"{'':<{width}}{rest.strip()}")  # noqa: T201
    return EXIT_DONE
