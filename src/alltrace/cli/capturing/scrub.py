"""The sub-verb `capture scrub`: copies of what is shared without what must not be."""

import argparse
from pathlib import Path

from alltrace.cli.argument_types import place
from alltrace.trace.errors import EXIT_DONE

EXAMPLE = "alltrace capture scrub reports/ logs/ -o shared/"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="PATH",
        help=(
            "SQLite exports of nsys, .nsys-rep (exported first), traces of PyTorch's profiler, flight recorder dumps,"
            " run directories, logs of NCCL and of the training, or folders of them; the originals are not changed"
        ),
    )
    parser.add_argument(
        "-o",
        "--output",
        type=place,
        required=True,
        metavar="PATH",
        help="the new file; the new folder for a folder or several",
    )
    parser.add_argument(
        "--hide", action="append", default=[], metavar="WORD", help="replace this word too; may be given several times"
    )
    parser.add_argument(
        "--drop-texts",
        action="store_true",
        help="replace the texts of ranges and marks by `range 1` and so on, equal texts by the same; NCCL's stay",
    )
    parser.add_argument(
        "--keep-payloads",
        action="store_true",
        help=(
            "of exports, keep all payloads of ranges and marks, which hold what the program put there; NCCL's stay in"
            " any case"
        ),
    )
    parser.add_argument("--nsys", metavar="PATH", help="the nsys that exports reports; default: as for capture exec")


def run(args: argparse.Namespace) -> int:
    from alltrace.capture.profilers.tool import locate
    from alltrace.share.files import share

    lines = share(
        args.sources,
        args.output,
        hide=args.hide,
        drop_texts=args.drop_texts,
        keep_payloads=args.keep_payloads,
        nsys=lambda: locate("nsys", args.nsys),
    )
    print("\n".join(lines))  # noqa: T201
    print("a .nsys-rep of the same run still holds all of it and cannot be scrubbed; do not share it")  # noqa: T201
    return EXIT_DONE
