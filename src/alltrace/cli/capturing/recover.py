"""The sub-verb `capture recover`: makes reports of raw captures."""

import argparse
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, EXIT_INPUT, printable

EXAMPLE = "alltrace capture recover /local/scratch/alltrace-7-x1y2z3 -o reports"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="searched for .qdstrm files, with all folders in it")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="the folder for reports; default: where the capture would have put them, else next to each file",
    )
    parser.add_argument("--nsys", metavar="PATH", help="use the importer of this nsys; default: as for capture exec")


def run(args: argparse.Namespace) -> int:
    """Recover what can be; 3 if something cannot."""
    from alltrace.capture.profilers.tool import locate
    from alltrace.capture.recover import recover

    results = recover(args.folder, locate("nsys", args.nsys), args.output)
    for result in results:
        print(  # noqa: T201
            printable(f"{result.raw}: {result.fault}" if result.report is None else f"{result.raw}: is {result.report}")
        )
    if not results:
        print(printable(f"{args.folder}: no .qdstrm files"))  # noqa: T201
    return EXIT_INPUT if any(result.report is None for result in results) else EXIT_DONE
