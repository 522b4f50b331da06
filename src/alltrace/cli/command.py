"""How a verb is run, and the options that many verbs share."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from alltrace.cli.argument_types import file_or_output
from alltrace.cli.engine import add_engine_options, start_engine
from alltrace.cli.progress import watching
from alltrace.trace.errors import StrictError, UsageError
from alltrace.trace.options import Option, count, flag
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from alltrace.api import OpenRun
    from alltrace.cli.registry import Verb
    from alltrace.trace.kernel_rules import KernelRules

FORMATS = ("table", "json", "csv", "md", "parquet")
# fmt: off
_PATTERN = Option("pattern", list, [],
    "your own regular expression for a step's line, such as 'step (?P<step>\\d+) .* loss (?P<loss>\\S+)'; name the "
    "groups "
    "step and like the metrics, or step_time_ms; no other format is tried then", metavar="REGEX")
_JOBS = count("jobs", None, "the maximum number of processes; default: one per processor")
_IMPORT = (
    flag("strict", "exit with 4 if a report cannot be read, instead of leaving out its ranks"),
    Option("cache_dir", Path, None,
        "the folder for imported reports; default: ALLTRACE_CACHE_DIR or the user's cache folder", metavar="DIR"),
    Option("kernel_rules", Path, None,
        "a file with lines of `class regular-expression` that classify kernels before the built-in rules",
        metavar="FILE"),
    Option("rank_from", str, None,
        "a regular expression that finds the rank in a report's path, such as 'gpu-(?P<rank>\\d+)'; a file "
        "ranks.csv in the "
        "folder of the reports, with the columns file,rank and optionally host,local_rank, says it for each",
        metavar="REGEX"),
)
_FORMAT = Option("format", str, "table", "", FORMATS)
_UNITS = Option("units", str, None,
    "times and sizes in tables: with suitable units, such as 12.4 ms (auto), or as plain numbers in ns and bytes (ns); "
    "default: auto on a terminal, else ns", ("auto", "ns"))
_OUTPUT = Option("output", str, None, "write the answer to FILE instead of standard output; needed for parquet",
    metavar="FILE")
_OUTPUTS = (
    Option("output", str, None,
        "write the answer to this file, or each of its tables to a file in this folder (DIR/) or URL, as Parquet by "
        "default", metavar="PLACE", flags=("-o", "--output")),
    Option("table", str, None, "only this table of an answer with several", metavar="NAME"),
    flag("csv", "write a folder, with each table also as CSV"),
)
_CSV_SAFE = flag("csv_safe", "CSV that is safe for spreadsheets: put a ' before texts that look like formulas")
_WIDE = flag("wide", "tables with all columns and whole names, however wide the terminal is")
_LIMIT = count("limit", None, "show only the first N rows; a picture shows all rows", 0)
_PICTURE = Option("picture", Path, None, "also draw the answer to FILE, a .png or .svg; needs `alltrace[pictures]`",
    metavar="FILE")
_RANKS = Option("ranks", str, None, f"include only these ranks, {RANKS_WORDS}", metavar="LIST")
_SKIP_WARMUP = flag("skip_warmup", "leave out warm-up steps and everything outside of steps")
# fmt: on


# Options for reading reports come last, and are in the help only if `--help-all` is among `arguments`; None for parsers
# whose help nobody reads.
class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one sentence, as the rest of the command line, with an example in its help."""

    def __init__(self, *, example: str, arguments: Sequence[str] | None = None, **options: Any) -> None:
        self.arguments_given = arguments
        self.reads_reports = False
        super().__init__(
            **options,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def add_last(self) -> None:
        """Add the options for reading reports, if there are some, after all others."""
        if not self.reads_reports or self.arguments_given is None:
            return
        hidden = {} if "--help-all" in self.arguments_given else {"help": argparse.SUPPRESS}
        _add_reading(self.add_argument_group("reading reports"), hidden)
        self.add_argument(
            "--help-all", action="help", help="also show the options for reading reports, processes and clusters"
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` shows the usage")


def run_verb(verb: Verb, prog: str, arguments: Sequence[str], **further: Any) -> int:
    """Run a verb with its arguments, and what `further` adds to them; returns the exit code."""
    command = verb.command()
    about = textwrap.fill(f"{verb.help[0].upper()}{verb.help[1:]}.", 79)
    parser = Parser(prog=prog, description=about, example=command.EXAMPLE, arguments=arguments)
    command.configure(parser)
    parser.add_last()
    # a parser accepts options between positional arguments only if it is set to
    parse = parser.parse_intermixed_args if getattr(command, "INTERMIXED", False) else parser.parse_args
    return command.run(parse(arguments, argparse.Namespace(**further)))


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help=(
            "a run directory; or reports, folders of reports, patterns or URLs, which are imported into the cache first"
        ),
    )
    add_import_options(parser)


def add_pattern_option(group: argparse._ActionsContainer, about: str = "") -> None:
    _PATTERN._replace(help=f"{about}{_PATTERN.help}").add_to(group)


def add_import_options(parser: argparse.ArgumentParser, *, last: bool = True) -> None:
    """How reports are read; with `last` after all other options and hidden (see `Parser`)."""
    if last and isinstance(parser, Parser) and parser.arguments_given is not None:
        parser.reads_reports = True
    else:
        _add_reading(parser.add_argument_group("reading reports"), {})


def _add_reading(group: argparse._ActionsContainer, hidden: Mapping[str, str]) -> None:
    _JOBS.add_to(group, **hidden)
    add_engine_options(group, hidden)
    for option in _IMPORT:
        option.add_to(group, **hidden)


def listed(entries: Iterable[tuple[str, str]], width: int = 22) -> Iterator[str]:
    """The lines of names and what they mean, within 80 columns."""
    for name, meaning in entries:
        head = f"  {name:<{width}}  "
        yield from textwrap.wrap(
            meaning, 79, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
        )


def add_answer_options(
    parser: argparse.ArgumentParser,
    *,
    folders: bool = False,
    cards: bool = False,
    top: bool = True,
    output: tuple[str, ...] = ("-o", "--output"),
) -> None:
    """How an answer is written."""
    # `folders`: whether -o may also be a folder or a URL; it then stays text. `cards`: whether the answer can be
    # written as cards, as it is by default. `top`: whether --top is another name of --limit; recipes may have an option
    # of that name. `output`: the options that name the file of the answer.
    group = parser.add_argument_group("output")
    with_cards = {"default": None, "choices": ("cards", *FORMATS), "help": "default: cards"}
    _FORMAT.add_to(group, **(with_cards if cards else {}))
    _UNITS.add_to(group)
    if folders:
        for option in _OUTPUTS:
            option.add_to(group)
    else:
        _OUTPUT._replace(flags=output).add_to(group, type=file_or_output)
    _CSV_SAFE.add_to(group)
    _WIDE.add_to(group)
    _LIMIT._replace(flags=("--limit", "--top") if top else ()).add_to(group)
    _PICTURE.add_to(group)


def add_rank_option(parser: argparse._ActionsContainer) -> None:
    _RANKS.add_to(parser)


def add_steps_option(parser: argparse._ActionsContainer, what: str) -> None:
    """Which steps, `what` says of them; for `parse_steps`."""
    Option("steps", str, None, f"{what}: {STEPS_WORDS}", metavar="STEPS").add_to(parser)


def add_step_options(parser: argparse._ActionsContainer) -> None:
    add_steps_option(parser, "include only these steps")
    _SKIP_WARMUP.add_to(parser)


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
        path = resolve(
            args.run,
            cache_dir=args.cache_dir,
            jobs=args.jobs,
            strict=args.strict,
            rules=rules,
            watcher=watcher,
            rank_from=args.rank_from,
        )
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


def open_other(args: argparse.Namespace, run: str) -> OpenRun:
    return open_from(argparse.Namespace(**{**vars(args), "run": [run]}))


def open_named(run: str) -> OpenRun:
    """The run directory at that place; or the reports, folder or URL there, imported into the cache first."""
    parser = argparse.ArgumentParser()
    add_run_argument(parser)
    return open_from(parser.parse_args([run]))
