"""How a verb is run, and the options that many verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from alltrace.cli.argument_types import file_or_output, not_negative, positive
from alltrace.cli.engine import add_engine_options, start_engine
from alltrace.cli.progress import watching
from alltrace.trace.errors import StrictError, UsageError
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.api import OpenRun
    from alltrace.cli.registry import Verb
    from alltrace.trace.kernel_rules import KernelRules

FORMATS = ("table", "json", "csv", "md", "parquet")


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one sentence, like the rest of the command line, and ends its help with an example."""

    def __init__(self, *, example: str, **options: Any) -> None:
        super().__init__(
            **options, epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments as a UsageError."""
        raise UsageError(f"{message}; `{self.prog} --help` shows the usage")


def run_verb(verb: Verb, prog: str, arguments: Sequence[str], **further: Any) -> int:
    """Run a verb with its arguments, and what `further` adds to them; returns the exit code."""
    command = verb.command()
    parser = Parser(prog=prog, description=f"{verb.help[0].upper()}{verb.help[1:]}.", example=command.EXAMPLE)
    command.configure(parser)
    # a parser accepts options between positional arguments only if it is set to
    parse = parser.parse_intermixed_args if getattr(command, "INTERMIXED", False) else parser.parse_args
    return command.run(parse(arguments, argparse.Namespace(**further)))


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """RUN, and how to import reports that are given instead of a run."""
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="a run directory; or reports, folders of reports, patterns or URLs, which are imported into the cache first",
    )
    add_import_options(parser)


def add_pattern_option(group: argparse._ActionsContainer, about: str = "") -> None:
    """A user's own form of the lines of steps in a training log."""
    group.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help=f"{about}your own regular expression for a step's line, such as 'step (?P<step>\\d+) .* loss (?P<loss>\\S+)'; "
        "name the groups step and like the metrics, or step_time_ms; no other format is tried then",
    )


def add_import_options(parser: argparse.ArgumentParser) -> None:
    """How reports are read."""
    group = parser.add_argument_group("reading reports")
    group.add_argument("--jobs", type=positive, metavar="N", help="the maximum number of processes; default: one per processor")
    add_engine_options(group)
    group.add_argument(
        "--strict", action="store_true", help="exit with 4 if a report cannot be read, instead of leaving out its ranks"
    )
    group.add_argument(
        "--cache-dir",
        type=Path,
        metavar="DIR",
        help="the folder for imported reports; default: ALLTRACE_CACHE_DIR or the user's cache folder",
    )
    group.add_argument(
        "--kernel-rules",
        type=Path,
        metavar="FILE",
        help="a file with lines of `class regular-expression` that classify kernels before the built-in rules",
    )


def add_answer_options(
    parser: argparse.ArgumentParser,
    *,
    folders: bool = False,
    cards: bool = False,
    top: bool = True,
    output: Sequence[str] = ("-o", "--output"),
) -> None:
    """How an answer is written.

    Args:
        parser: What gets the arguments.
        folders: Whether -o may also be a folder or a URL; it then stays text.
        cards: Whether the answer can be written as cards, as it is on a terminal.
        top: Whether --top is another name of --limit; recipes may have an option of that name.
        output: The options that name the file of the answer.
    """
    group = parser.add_argument_group("output")
    if cards:
        group.add_argument("--format", choices=("cards", *FORMATS), help="default: cards on a terminal, else table")
    else:
        group.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    group.add_argument(
        "--units",
        choices=("auto", "ns"),
        help="times and sizes in tables: with suitable units, such as 12.4 ms (auto), or as plain numbers in ns and "
        "bytes (ns); default: auto on a terminal, else ns",
    )
    if folders:
        group.add_argument(
            "-o",
            "--output",
            metavar="PLACE",
            help="write the answer to this file, or each of its tables to a file in this folder (DIR/) "
            "or URL, as Parquet by default",
        )
        group.add_argument("--table", metavar="NAME", help="only this table of an answer with several")
        group.add_argument("--csv", action="store_true", help="write a folder, with each table also as CSV")
    else:
        group.add_argument(
            *output,
            dest="output",
            type=file_or_output,
            metavar="FILE",
            help="write the answer to FILE instead of standard output; needed for parquet",
        )
    group.add_argument(
        "--csv-safe", action="store_true", help="CSV that is safe for spreadsheets: put a ' before texts that look like formulas"
    )
    flags = ("--limit", "--top") if top else ("--limit",)
    group.add_argument(*flags, type=not_negative, metavar="N", help="show only the first N rows; a picture shows all rows")
    group.add_argument(
        "--picture", type=Path, metavar="FILE", help="also draw the answer to FILE, a .png or .svg; needs `alltrace[pictures]`"
    )


def add_rank_option(parser: argparse._ActionsContainer) -> None:
    """Which ranks to analyze."""
    parser.add_argument("--ranks", metavar="LIST", help=f"include only these ranks, {RANKS_WORDS}")


def add_steps_option(parser: argparse._ActionsContainer, what: str) -> None:
    """Which steps, `what` says of them; for `parse_steps`."""
    parser.add_argument("--steps", metavar="STEPS", help=f"{what}: {STEPS_WORDS}")


def add_step_options(parser: argparse._ActionsContainer) -> None:
    """Which steps to analyze."""
    add_steps_option(parser, "include only these steps")
    parser.add_argument("--skip-warmup", action="store_true", help="leave out warm-up steps and everything outside of steps")


def rules_from(args: argparse.Namespace) -> KernelRules | None:
    """The kernel rules that the arguments name; None for the built-in ones alone."""
    if args.kernel_rules is None:
        return None
    from alltrace.trace.kernel_rules import read_rules

    return read_rules(args.kernel_rules)


def open_from(args: argparse.Namespace) -> OpenRun:
    """The run that the arguments of `add_run_argument` name, imported first if the arguments name reports."""
    from alltrace.api import OpenRun
    from alltrace.run.resolve import resolve

    start_engine(args)
    rules = rules_from(args)
    with watching() as watcher:
        path = resolve(args.run, cache_dir=args.cache_dir, jobs=args.jobs, strict=args.strict, rules=rules, watcher=watcher)
    run = OpenRun(path)
    if rules is not None and run.manifest.kernel_rules != rules.fingerprint:
        raise UsageError(
            f"the run {path} was imported with different kernel rules than {args.kernel_rules}; "
            "import its reports again with --kernel-rules"
        )
    unread = next((r.error for r in run.manifest.reports if r.error), None)
    if args.strict and unread:
        raise StrictError(unread)
    return run


def open_named(run: str) -> OpenRun:
    """The run directory at that place; or the reports, folder or URL there, imported into the cache first."""
    parser = argparse.ArgumentParser()
    add_run_argument(parser)
    return open_from(parser.parse_args([run]))
