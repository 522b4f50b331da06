"""The verb `skill`: instructions for programs that use alltrace on a user's behalf, to print or to install."""

import argparse
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, InputError

EXAMPLE = "alltrace skill --install ./skills/"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--install",
        type=Path,
        metavar="FOLDER",
        help="write it to alltrace/SKILL.md in this folder of skills, instead of to standard output",
    )


def run(args: argparse.Namespace) -> int:
    from alltrace.cli.output import emit
    from alltrace.mcp.skill import skill_text

    path = None if args.install is None else args.install / "alltrace" / "SKILL.md"
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError.cannot_be("made", path.parent, error) from error
    emit([skill_text()], path)
    return EXIT_DONE
