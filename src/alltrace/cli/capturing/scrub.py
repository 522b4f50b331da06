"""The sub-verb `capture scrub`: removes what must not be shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import place
from alltrace.trace.errors import EXIT_DONE, printable

if TYPE_CHECKING:
    import argparse

EXAMPLE = "alltrace capture scrub rank0.sqlite -o shared/rank0.sqlite"


def configure(parser: argparse.ArgumentParser) -> None:
    """What to read and where to write."""
    parser.add_argument("export", type=Path, metavar="EXPORT", help="a SQLite export of nsys; it is not changed")
    parser.add_argument("-o", "--output", type=place, required=True, metavar="FILE", help="the new file")


def run(args: argparse.Namespace) -> int:
    """Write the new file and list what was removed, by name."""
    from alltrace.capture.scrub import scrub

    found = scrub(args.export, args.output)
    print(  # noqa: T201
        f"removed {len(found.variables)} variables, {found.command_words} words of command lines, {found.streams} outputs, "
        f"{found.environments} environments of processes of the host"
    )
    if found.variables:
        print(printable(" ".join(found.variables)))  # noqa: T201
    print("a .nsys-rep of the same run still holds all of it and cannot be scrubbed; do not share it")  # noqa: T201
    return EXIT_DONE
