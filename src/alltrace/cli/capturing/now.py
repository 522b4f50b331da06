"""The sub-verb `capture now`: has an armed job record a window of steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.argument_types import not_negative, positive
from alltrace.cli.capturing.exec_ import seconds
from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.spans import RANKS_WORDS

if TYPE_CHECKING:
    import argparse

_LEAD_S = 3.0
EXAMPLE = "alltrace capture now reports --steps 10"


def configure(parser: argparse.ArgumentParser) -> None:
    """Which job, which steps, which ranks."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of reports with which the job was armed")
    parser.add_argument("--job", metavar="NAME", help="the job, if several were armed with this folder")
    parser.add_argument(
        "--at",
        type=not_negative,
        metavar="STEP",
        help="the first step to record, instead of one that the job chooses; for nodes that share no folder: give each the same",
    )
    parser.add_argument("--steps", type=positive, default=10, metavar="N", help="how many steps are recorded; default: 10")
    parser.add_argument("--ranks", metavar="LIST", help=f"only these of the armed ranks, {RANKS_WORDS}; default: all")
    parser.add_argument("--lead", type=seconds, metavar="SECONDS", help="how far ahead the window is at least; default: 3")
    parser.add_argument(
        "--wait", type=seconds, default=60.0, metavar="SECONDS", help="how long to wait for the job's answer; default: 60"
    )


def run(args: argparse.Namespace) -> int:
    """Ask, and say when the window begins."""
    from alltrace.capture.now import ask, find_armed, name_steps, seen
    from alltrace.capture.selection import parse_selection

    spans = parse_selection(args.ranks, None, None).spans
    control = find_armed(args.folder, args.job)
    if args.at is None:
        window = ask(control, args.steps, spans, lead_s=_LEAD_S if args.lead is None else args.lead, wait_s=args.wait)
        ranks = args.ranks or "all"
    elif args.lead is not None:
        raise UsageError("--at and --lead both set when the window begins; give one of them")
    else:
        window, asked = name_steps(control, args.at, args.steps, spans, wait_s=args.wait)
        ranks = ", ".join(map(str, asked))
    print(f"window {window.id}: steps {window.first} to {window.end - 1}, ranks {ranks}")  # noqa: T201
    here, count = seen(control)
    if args.at is None and len(here) < count:
        note = f"only {len(here)} of {count} armed ranks see {args.folder}; the others record nothing"
        sys.stderr.write(f"alltrace: {note}; if the nodes share no folder, give the steps with --at on each node\n")
    return EXIT_DONE
