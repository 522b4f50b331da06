"""The verb `capture` with its sub-verbs: profiles every rank of a job, and manages the result."""

import argparse

from alltrace.cli.command import listed, run_verb
from alltrace.cli.registry import CAPTURE_VERBS
from alltrace.trace.errors import UsageError

EXAMPLE = "alltrace capture exec -o reports -- python train.py"


def configure(parser: argparse.ArgumentParser) -> None:
    """The sub-verb's name; everything after it belongs to it."""
    width = max(len(v.name) for v in CAPTURE_VERBS)
    verbs = "\n".join(listed(((verb.name, verb.help) for verb in CAPTURE_VERBS), width))
    parser.epilog = f"verbs:\n{verbs}\n\n{parser.epilog}"
    parser.add_argument(
        "what",
        metavar="VERB",
        help=f"one of {', '.join(v.name for v in CAPTURE_VERBS)}; `VERB --help` shows its options",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="the verb's arguments")


def run(args: argparse.Namespace) -> int:
    """Run the sub-verb; what follows a lone `--` is a program and is not looked into."""
    verb = next((v for v in CAPTURE_VERBS if v.name == args.what), None)
    if verb is None:
        raise UsageError.unknown("verb of capture", args.what, (v.name for v in CAPTURE_VERBS))
    at = args.rest.index("--") if "--" in args.rest else len(args.rest)
    return run_verb(verb, f"alltrace capture {verb.name}", args.rest[:at], program=args.rest[at + 1 :])
