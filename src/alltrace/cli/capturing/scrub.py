"""The sub-verb `capture scrub`: removes what must not be shared."""

from __future__ import annotations

import argparse
from pathlib import Path

from alltrace.capture.scrub import Scrubbed
from alltrace.cli.argument_types import place
from alltrace.trace.errors import EXIT_DONE, printable

EXAMPLE = "alltrace capture scrub rank0.sqlite -o shared/rank0.sqlite"


def configure(parser: argparse.ArgumentParser) -> None:
    """What to read and where to write."""
    parser.add_argument(
        "export",
        type=Path,
        metavar="EXPORT",
        help="an SQLite export of nsys, a .nsys-rep, which is exported first, or a folder of them; the originals are not changed",
    )
    parser.add_argument("-o", "--output", type=place, required=True, metavar="PATH", help="the new file, or the new folder")
    parser.add_argument(
        "--drop-texts",
        action="store_true",
        help="replace the texts of NVTX ranges and marks by `range 1` and so on, equal texts by the same; NCCL's stay",
    )
    parser.add_argument(
        "--keep-payloads",
        action="store_true",
        help="keep all payloads of NVTX ranges and marks, which hold what the program put there; NCCL's stay in any case",
    )
    parser.add_argument("--nsys", metavar="PATH", help="the nsys that exports reports; default: as for capture exec")


def run(args: argparse.Namespace) -> int:
    """Write the new file and list what was removed, by name."""
    from alltrace.capture.profilers.tool import locate
    from alltrace.capture.scrub import scrub, scrub_folder

    def nsys() -> Path:
        return locate("nsys", args.nsys)

    choices = {"drop_texts": args.drop_texts, "keep_payloads": args.keep_payloads}
    if args.export.is_dir():
        for place, found in scrub_folder(args.export, args.output, nsys=nsys, **choices):
            _tell(found, f"{printable(str(place))}: ")
    else:
        _tell(scrub(args.export, args.output, nsys=nsys, **choices))
    print("a .nsys-rep of the same run still holds all of it and cannot be scrubbed; do not share it")  # noqa: T201
    return EXIT_DONE


def _tell(found: Scrubbed, of: str = "") -> None:
    texts = f", {found.texts} texts of ranges" if found.texts else ""
    payloads = f", {found.payloads} payloads" if found.payloads else ""
    print(  # noqa: T201
        f"{of}removed {len(found.variables)} variables, {found.command_words} words of command lines, {found.streams} outputs, "
        f"{found.environments} environments of processes of the host, names of {found.processes} other processes, "
        f"{found.strings} strings that nothing refers to{texts}{payloads}"
    )
    if found.variables:
        print(printable(" ".join(found.variables)))  # noqa: T201
