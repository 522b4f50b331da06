"""The verb `stats`."""

from __future__ import annotations

import argparse

from alltrace.cli.command import Parser, add_answer_options, add_run_argument
from alltrace.cli.recipe_verb import add_recipe_options, ask_and_write, summary
from alltrace.trace.errors import EXIT_DONE, UsageError


class StatsCommand:
    """Gives the report of `nsys stats` of that name."""

    example = "alltrace stats cuda_gpu_kern_sum ./reports/ --format csv"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The report's name; everything after it belongs to the report, whose own parser reads it."""
        import argparse

        parser.add_argument("--list", action="store_true", help="name all reports, with what each shows")
        parser.add_argument(
            "name", nargs="?", metavar="NAME[:flag][:option=value]", help="the report; `NAME --help` shows its options"
        )
        parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="RUN [options]", help="the run and the report's options")

    def run(self, args: argparse.Namespace) -> int:
        """List the reports, or give one."""
        from alltrace.recipes.stats import REPORTS, find_report

        if args.list:
            for name in REPORTS:
                print(f"{name:<26}{summary(find_report(name))}")  # noqa: T201
            return EXIT_DONE
        if args.name is None:
            raise UsageError("stats needs the name of a report; `alltrace stats --list` names them")
        report = find_report(args.name)
        parser = Parser(
            prog=f"alltrace stats {args.name}",
            description=report.__doc__,
            epilog=f"example:\n  alltrace stats {args.name} ./reports/ --format csv",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_run_argument(parser)
        add_recipe_options(parser, report)
        add_answer_options(parser)
        return ask_and_write("stats", report, parser.parse_args(args.rest))


COMMAND = StatsCommand()
