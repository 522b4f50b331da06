"""The verb `capture`, which has verbs of its own."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from alltrace.cli.command import Parser
from alltrace.cli.registry import CAPTURE_VERBS
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.cli.command import Command


class CaptureCommand:
    """Profiles every rank of a job, and looks after what came of it."""

    example = "alltrace capture exec --ranks first-local -- python train.py"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The sub-verb's name; everything after it belongs to it."""
        width = max(len(v.name) for v in CAPTURE_VERBS)
        verbs = "\n".join(f"  {v.name:<{width}}  {v.help}" for v in CAPTURE_VERBS)
        parser.epilog = f"verbs:\n{verbs}\n\n{parser.epilog}"
        parser.add_argument(
            "what", metavar="VERB", help=f"one of {', '.join(v.name for v in CAPTURE_VERBS)}; `VERB --help` tells more"
        )
        parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="the verb's arguments")

    def run(self, args: argparse.Namespace) -> int:
        """Run the sub-verb; what follows a lone `--` is a program and is not looked into."""
        verb = next((v for v in CAPTURE_VERBS if v.name == args.what), None)
        if verb is None:
            raise UsageError.unknown("verb of capture", args.what, (v.name for v in CAPTURE_VERBS))
        command: Command = import_module(verb.module).COMMAND
        parser = Parser(
            prog=f"alltrace capture {verb.name}",
            description=f"{verb.help[0].upper()}{verb.help[1:]}.",
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.configure(parser)
        at = args.rest.index("--") if "--" in args.rest else len(args.rest)
        parsed = parser.parse_args(args.rest[:at])
        parsed.program = args.rest[at + 1 :]
        return command.run(parsed)


COMMAND = CaptureCommand()
