"""The verb `explain`: says what a kind of finding, a recipe, a table or a column means."""

import argparse

from alltrace.cli.command import add_answer_options
from alltrace.trace.errors import EXIT_DONE

EXAMPLE = "alltrace explain exposed-communication"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "term", metavar="TERM", help="a kind of finding, a recipe, a table, or a column of a recipe or table"
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from alltrace.cli.output import check_output, write_answer
    from alltrace.recipes.terms import explain

    check_output(args)
    answer = explain(args.term)
    if args.format == "table" and args.output is None and sys.stdout.isatty():
        for row in answer.table.to_pylist():  # sentences read better than cells that are cut
            unit = f", {row['unit']}" if row["unit"] else ""
            print(f"{row['term']} ({row['what']}{unit}): {row['meaning']}")  # noqa: T201
        return EXIT_DONE
    write_answer("explain", answer, {"ranks": 0, "hosts": 0, "devices": 0, "span_ns": 0}, args)
    return EXIT_DONE
