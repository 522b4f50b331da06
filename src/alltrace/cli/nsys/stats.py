"""`alltrace nsys stats` and `alltrace nsys analyze`: reports and rules of one report file, in forms, at places."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from alltrace.cli.nsys.arguments import RefusedError, Switch, help_text, parse
from alltrace.cli.nsys.forms import ENDINGS, FORMATS, format_reference, parse_form
from alltrace.cli.nsys.units import time_unit
from alltrace.cli.output import emit
from alltrace.trace.errors import EXIT_DONE, AlltraceError, InputError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from alltrace.api import OpenRun
    from alltrace.cli.nsys.arguments import Parsed
    from alltrace.cli.nsys.forms import Form, Shown
    from alltrace.recipes.base import OptionValue

CONSOLE = "-"
BESIDE = "."
COMMAND = "@"


def spread(values: Sequence[str], count: int, default: str) -> list[str]:
    """One value per report: those given, then the last one repeated; the default if none was given."""
    listed = list(values) or [default]
    return (listed + [listed[-1]] * count)[:count]


def default_form(place: str) -> str:
    """The default form of an output: columns on the console, CSV elsewhere."""
    return "column" if place == CONSOLE else "csv"


def file_of(place: str, source: Path, spec: str, form: Form) -> Path:
    """The file of a report: the base, the report with its arguments, and the ending of the form."""
    base = str(source.with_suffix("")) if place == BESIDE else place
    return Path(f"{base}_{spec.replace(':', '_').replace('/', '_')}.{form.ending}")


def pipe(command: str, pieces: Iterable[str]) -> None:
    """Run a command, split at blanks and without a shell, with the text as its input."""
    words = command.split()
    sys.stdout.flush()
    try:
        running = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"@{command}", found=f"the command cannot be run ({error})", expected="a program with its arguments"
        ) from error
    assert running.stdin is not None  # noqa: S101  checked above
    try:
        with running.stdin as stream:
            stream.writelines(pieces)
    except BrokenPipeError:  # it has seen enough
        pass
    finally:
        running.wait()


def console(pieces: Iterable[str]) -> None:
    """Print text; on a terminal nothing but lines."""
    if sys.stdout.isatty():
        pieces = ("\n".join(map(printable, piece.split("\n"))) for piece in pieces)
    emit(pieces, None)


_ALL = "ALL"


class Asker(Protocol):
    """The requests of a command: their names, and the table of each."""

    command: str
    word: str

    @property
    def defaults(self) -> tuple[str, ...]:
        """The names used if the command line has none."""

    def names(self) -> dict[str, str]: ...

    def reference(self, name: str) -> str:
        """What one of them answers, its arguments and its columns, as text."""

    def ask(self, run: OpenRun, spec: str, filters: Mapping[str, OptionValue]) -> AbstractContextManager[Shown]:
        """The table of a report or rule with its arguments."""


class Skipped(AlltraceError):  # noqa: N818  not an error of the command: it continues with the next report
    """A report that a file has no data for, with the reason."""


class Job(NamedTuple):
    spec: str
    form: Form
    place: str


def switches(asker: Asker) -> tuple[Switch, ...]:
    word = asker.word
    return (
        Switch("format", "f", "list", f"format of each {word}: {', '.join(ENDINGS)}; . for the default", "NAME[:ARGS]"),
        Switch("filter-nvtx", "", "value", "include only what overlaps the first NVTX range with this name, or the "
               "one with this index",
               "RANGE[@DOMAIN][/INDEX]"),
        Switch("filter-time", "", "value", "include only what overlaps these times, such as 1s/2s500ms",
            "[START]/[END]"),
        Switch("force-export", "", "truth", "export a .nsys-rep again, even if its export exists", "[true|false]"),
        Switch("force-overwrite", "", "truth", "replace existing files", "[true|false]"),
        Switch("help", "h", "flag", "show this help"),
        Switch("help-formats", "", "optional", "list the formats, or explain one", "[NAME|ALL]"),
        Switch(f"help-{word}s", "", "optional", f"list the {word}s, or explain one", "[NAME|ALL]"),
        Switch("output", "o", "list",
            "where to write each: - for the console, . for a file next to the input, @COMMAND, or "
               "the start of a file name", "PLACE"),
        Switch("quiet", "q", "flag", "print only answers and errors"),
        Switch(word, "r", "list", f"which to run; default: {', '.join(asker.defaults)}", "NAME[:ARGS]"),
        *([Switch("report-dir", "", "list", "folders with report scripts; alltrace reports that it does not run them",
            "PATH")]
          if word == "report" else []),
        Switch("sqlite", "", "value", "the export of a .nsys-rep to use, or to write if it does not exist", "FILE"),
        Switch("timeunit", "", "value", "unit of times: nsec, usec, msec or seconds, which may be abbreviated", "UNIT"),
    )  # fmt: skip


def run(asker: Asker, arguments: Sequence[str]) -> int:
    """Answer a command line; returns the exit code."""
    options = switches(asker)
    command = asker.command
    parsed = parse(command, options, arguments)
    if "help" in parsed.truths:
        about = (
            f"Answers like `{command}`; docs/nsys-drop-in.md lists the differences. INPUT is a .nsys-rep, an export, or"
            " a run."
        )
        print(help_text(command, "[options] INPUT", about, options), end="")  # noqa: T201
        return EXIT_DONE
    if "help-formats" in parsed.values or f"help-{asker.word}s" in parsed.values:
        formats = "help-formats" in parsed.values
        wanted = parsed.values["help-formats" if formats else f"help-{asker.word}s"]
        print(  # noqa: T201
            _help(FORMATS if formats else asker.names(), format_reference if formats else asker.reference, wanted),
            end="",
        )
        return EXIT_DONE
    source = _source(command, parsed)
    jobs, warning = _jobs(asker, parsed)
    filters = _filters(parsed)
    quiet = parsed.truths.get("quiet", False)
    for folder in parsed.lists.get("report-dir", []):
        not_run = f"alltrace: --report-dir {printable(folder)}: report scripts are not run; write a recipe instead"
        print(not_run, file=sys.stderr)  # noqa: T201
    from alltrace.cli.command import open_named

    opened = open_named(str(_readable(parsed, source)))
    for job in jobs:
        _answer(asker, opened, job, source, filters, quiet=quiet, replace=parsed.truths.get("force-overwrite", False))
    if warning and not quiet:
        print(warning)  # noqa: T201
    return EXIT_DONE


def _help(names: Mapping[str, str], reference: Callable[[str], str], wanted: str) -> str:
    if wanted.upper() == _ALL:
        return "\n".join(map(reference, names))
    return reference(wanted) if wanted else "".join(f"  {name} -- {about}\n" for name, about in names.items())


def _source(command: str, parsed: Parsed) -> Path:
    if not parsed.rest:
        raise RefusedError(f"{command} needs an input: a .nsys-rep, its export, or a run directory")
    if len(parsed.rest) > 1:
        raise RefusedError(
            f"{command} takes one input, but {len(parsed.rest)} were given: {', '.join(map(printable, parsed.rest))}; "
            "for several ranks give a folder of reports or a run directory"
        )
    source = Path(parsed.rest[0])
    if not source.exists():
        raise RefusedError(
            f"{printable(parsed.rest[0])}: there is no such file; expected a .nsys-rep, its export, or a run directory"
        )
    return source


def _readable(parsed: Parsed, source: Path) -> Path:
    """What to read for the input: the export that is named or that is next to a `.nsys-rep`, or the input itself."""
    export = parsed.values.get("sqlite")
    if source.suffix not in (".nsys-rep", ".qdrep"):
        if export is not None:
            raise RefusedError(
                f"--sqlite names the export of a .nsys-rep, but the input is {printable(str(source))}; leave out"
                " --sqlite"
            )
        return source
    again = parsed.truths.get("force-export", False)
    if export is None:
        beside = source.with_suffix(".sqlite")
        return beside if beside.is_file() and not again and beside.stat().st_mtime >= source.stat().st_mtime else source
    target = Path(export)
    if again or not target.is_file():
        from alltrace.cli.nsys.export import write_sqlite

        write_sqlite(source, target)
    return target


def _jobs(asker: Asker, parsed: Parsed) -> tuple[list[Job], str]:
    """The reports with their forms and places, and what to say of too many of these."""
    specs = parsed.lists.get(asker.word, []) or list(asker.defaults)
    unit = parsed.values.get("timeunit")
    time = None
    if unit is not None:
        time = time_unit(unit)
        if time is None:
            raise RefusedError(f"--timeunit is {unit!r}; expected nsec, usec, msec or seconds")
    formats, places = parsed.lists.get("format", []), parsed.lists.get("output", [])
    chosen = spread(places, len(specs), CONSOLE)
    # without a form, each place has its default; the last form given applies to the rest
    forms = spread(formats, len(specs), ".")
    for form in formats:  # all are checked, including those without a report
        parse_form(form, time, "csv")
    jobs = [Job(s, parse_form(f, time, default_form(p)), p) for s, f, p in zip(specs, forms, chosen, strict=True)]
    many = [word for word, values in (("formats", formats), ("outputs", places)) if len(values) > len(specs)]
    return (
        jobs,
        (
            f"WARNING: more {' and '.join(many)} than {asker.word}s were given; the extra ones were not used."
            if many
            else ""
        ),
    )


def _filters(parsed: Parsed) -> dict[str, OptionValue]:
    """The filters; the filter by range takes precedence if both are given."""
    time, nvtx = parsed.values.get("filter-time"), parsed.values.get("filter-nvtx")
    if time is None and nvtx is None:
        return {}
    from alltrace.nvidia.filters import given_filters

    filters: dict[str, OptionValue] = {}
    if time is not None:
        filters["filter_time"] = time
    if nvtx is not None:
        name, slash, index = nvtx.rpartition("/")
        # text after the last slash that is not a number belongs to the name
        filters["nvtx"] = nvtx if not slash or index.isdigit() else f"{name}\\/{index}"
    try:
        for name, value in filters.items():
            given_filters({name: value})
    except UsageError as error:
        raise RefusedError(str(error)) from error
    return {"nvtx": filters["nvtx"]} if "nvtx" in filters else filters


def _answer(
    asker: Asker,
    opened: OpenRun,
    job: Job,
    source: Path,
    filters: Mapping[str, OptionValue],
    *,
    quiet: bool,
    replace: bool,
) -> None:
    """Compute a report and write its answer; if it cannot be computed, report why and continue with the next."""
    name, colon, arguments = job.spec.partition(":")
    to_file = job.place != CONSOLE and not job.place.startswith(COMMAND)
    file = file_of(job.place, source, job.spec, job.form) if to_file else None
    where = f" to [{file}]" if file else f" to process [{job.place}]" if job.place.startswith(COMMAND) else ""
    if not quiet:
        doing = f"Processing [{source}] with [{name}]{f'({arguments})' if colon else ''}{where}..."
        print(printable(doing), end=" " if to_file else "\n", flush=True)  # noqa: T201
    if file is not None and file.exists() and not replace:
        _say(quiet, f"SKIPPED: {file} exists; --force-overwrite=true replaces it.")
        return
    try:
        with asker.ask(opened, job.spec, filters) as shown:
            _write(job, file, job.form.text(shown))
    except Skipped as reason:
        _say(quiet, f"SKIPPED: {source}: {reason}")
        return
    except AlltraceError as error:
        if to_file and not quiet:
            print()  # noqa: T201
        print(f"ERROR: {printable(str(error))}", file=sys.stderr)  # noqa: T201
        return
    if file is not None:
        _say(quiet, "PROCESSED")


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        print(f"{printable(text)}\n")  # noqa: T201


def _ended(pieces: Iterator[str]) -> Iterator[str]:
    """The text followed by an empty line, if there is any text."""
    piece = ""
    for piece in pieces:
        yield piece
    if piece:
        yield "\n"


def _write(job: Job, file: Path | None, pieces: Iterator[str]) -> None:
    if file is not None:
        emit(pieces, file)
    elif job.place.startswith(COMMAND):
        pipe(job.place.removeprefix(COMMAND), pieces)
    else:
        console(_ended(pieces))
