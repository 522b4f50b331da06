"""The sub-verb `capture now`: has an armed job record a window of steps."""

import argparse
import sys
from pathlib import Path

from alltrace.trace.errors import EXIT_DONE, UsageError
from alltrace.trace.options import Option, count, seconds
from alltrace.trace.spans import RANKS_WORDS

_LEAD_S = 3.0
EXAMPLE = "alltrace capture now reports --steps 10"

_OPTIONS = (
    Option("job", str, None, "the job, if several were armed with this folder", metavar="NAME"),
    count(
        "at",
        None,
        "the first step to record, instead of one that the job chooses; for nodes that share no folder: give each the"
        " same",
        0,
        metavar="STEP",
    ),
    count("steps", 10, "how many steps are recorded"),
    Option("ranks", str, None, f"only these of the armed ranks, {RANKS_WORDS}; default: all", metavar="LIST"),
    seconds("lead", None, "how far ahead the window is at least; default: 3"),
    seconds("wait", 60.0, "how long to wait for the job's answer"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of reports with which the job was armed")
    for option in _OPTIONS:
        option.add_to(parser)


def run(args: argparse.Namespace) -> int:
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
        window, recording = name_steps(control, args.at, args.steps, spans, wait_s=args.wait)
        ranks = ", ".join(map(str, recording))
    print(f"window {window.id}: steps {window.first} to {window.end - 1}, ranks {ranks}")  # noqa: T201
    here, count = seen(control)
    if args.at is None and len(here) < count:
        note = f"only {len(here)} of {count} armed ranks see {args.folder}; the others record nothing"
        sys.stderr.write(f"alltrace: {note}; if the nodes share no folder, give the steps with --at on each node\n")
    return EXIT_DONE
