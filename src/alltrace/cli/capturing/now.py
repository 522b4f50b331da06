"""The sub-verb `capture now`: has an armed job record a window of steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import positive
from alltrace.cli.capturing.exec_ import seconds
from alltrace.trace.errors import EXIT_DONE
from alltrace.trace.spans import RANKS_WORDS

if TYPE_CHECKING:
    import argparse

EXAMPLE = "alltrace capture now reports --steps 10"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which job, which steps, which ranks."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of reports that the job was armed with")
    parser.add_argument("--job", metavar="NAME", help="the job, where several were armed with this folder")
    parser.add_argument("--steps", type=positive, default=10, metavar="N", help="how many steps are recorded; default: 10")
    parser.add_argument("--ranks", metavar="LIST", help=f"of the ranks that were armed only these, {RANKS_WORDS}; default: all")
    parser.add_argument(
        "--lead", type=seconds, default=3.0, metavar="SECONDS", help="the window is so far ahead at least; default: 3"
    )
    parser.add_argument("--wait", type=seconds, default=60.0, metavar="SECONDS", help="for the job's answer; default: 60")


def run(args: argparse.Namespace) -> int:
    """Ask, and say when the window begins."""
    from alltrace.capture.now import ask, find_armed
    from alltrace.capture.selection import parse_selection

    spans = parse_selection(args.ranks, None, None).spans
    window = ask(find_armed(args.folder, args.job), args.steps, spans, lead_s=args.lead, wait_s=args.wait)
    print(f"window {window.id}: steps {window.first} to {window.end - 1}, ranks {args.ranks or 'all'}")  # noqa: T201
    return EXIT_DONE
