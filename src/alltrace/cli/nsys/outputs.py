"""Where `nsys stats` and `nsys analyze` put their answers: the console, files named after them, or a command's input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.cli.output import emit
from alltrace.trace.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alltrace.cli.nsys.forms import Form

CONSOLE = "-"
BESIDE = "."
COMMAND = "@"


def spread(given: Sequence[str], count: int, default: str) -> list[str]:
    """One value per report: those given, then the last one repeated; the default if none was given."""
    known = list(given) or [default]
    return (known + [known[-1]] * count)[:count]


def default_form(place: str) -> str:
    """The default form of an output: columns on the console, CSV elsewhere."""
    return "column" if place == CONSOLE else "csv"


def file_of(place: str, source: Path, spec: str, form: Form) -> Path:
    """The file of a report: the base, the report with its arguments, and the ending of the form."""
    base = str(source.with_suffix("")) if place == BESIDE else place
    return Path(f"{base}_{spec.replace(':', '_').replace('/', '_')}.{form.ending}")


def pipe(command: str, pieces: Iterable[str]) -> None:
    """Run a command, split at blanks and without a shell, with the text as its input.

    Raises:
        InputError: It cannot be run.
    """
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
