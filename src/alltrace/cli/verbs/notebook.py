"""The verb `notebook`: writes a Jupyter notebook that opens the run and plots the answers of its recipes."""

import argparse
import os

from alltrace.cli.argument_types import place
from alltrace.cli.command import add_run_argument, open_from
from alltrace.trace.errors import EXIT_DONE, UsageError, printable

EXAMPLE = "alltrace notebook ./reports/ -o run.ipynb"


def configure(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument(
        "--recipes",
        metavar="NAMES",
        help=(
            "the recipes to include, such as breakdown,overlap; default: those that the findings rest on, then usual"
            " ones"
        ),
    )
    parser.add_argument(
        "-o", "--output", type=place, required=True, metavar="FILE", help="the notebook (.ipynb) to write"
    )


def run(args: argparse.Namespace) -> int:
    """Open the run, so that the notebook finds it imported, and write the notebook."""
    from alltrace.cli.output import emit
    from alltrace.recipes.registry import find
    from alltrace.report.notebook import notebook, recipes_for

    if args.output.suffix != ".ipynb" or args.output.is_dir():
        raise UsageError(f"-o is {printable(str(args.output))!r}; expected the name of a file that ends in .ipynb")
    wanted = [n.strip() for n in args.recipes.split(",")] if args.recipes is not None else None
    for name in wanted or ():
        find(name)
    opened = open_from(args)
    inputs = [os.path.abspath(i) if os.path.exists(i) else i for i in args.run]  # noqa: PTH100, PTH110
    cache_dir = None if args.cache_dir is None else str(args.cache_dir.absolute())
    emit([notebook(inputs, ", ".join(args.run), *recipes_for(opened, wanted), cache_dir)], args.output)
    return EXIT_DONE
