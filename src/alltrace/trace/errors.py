"""Errors for users: one sentence with the file or option, what was expected, what was found and what to do."""

from collections.abc import Iterable
from os import PathLike
from typing import Self

EXIT_DONE = 0
EXIT_BREACH = 1
EXIT_USAGE = 2
EXIT_INPUT = 3
EXIT_STRICT = 4
EXIT_DEFECT = 70
"""An unexpected error, as EX_SOFTWARE of `sysexits.h`."""


class AlltraceError(Exception):
    """Base of all errors raised on purpose by alltrace; `exit_code` is what the command line ends with."""

    exit_code = EXIT_INPUT


class UsageError(AlltraceError):
    """An option or argument that cannot be used as given."""

    exit_code = EXIT_USAGE

    @classmethod
    def unknown(cls, what: str, given: str, available: Iterable[str]) -> "UsageError":
        """An unknown name, with the closest of the available ones as a hint.

        Args:
            what: The kind of name, such as `recipe`.
            given: The unknown name.
            available: The names that exist.
        """
        import difflib

        names = sorted(available)
        close = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else f"expected one of {', '.join(names)}"
        return cls(f"unknown {what} {given!r}; {hint}")


class InputError(AlltraceError):
    """An input that cannot be read; composed of the four facts a reader needs.

    Args:
        path: The file or folder.
        found: What is wrong with it, as found.
        expected: What was expected instead.
        advice: What to do about it.
    """

    exit_code = EXIT_INPUT

    def __init__(
        self, path: str | PathLike[str], *, found: str, expected: str | None = None, advice: str | None = None
    ) -> None:
        self.path: str = str(path)
        self.found: str = found
        self.expected: str | None = expected
        self.advice: str | None = advice
        parts = [f"{printable(self.path)}: {found}"]
        if expected:
            parts.append(f"expected {expected}")
        if advice:
            parts.append(advice)
        super().__init__("; ".join(parts))

    @classmethod
    def cannot_be(
        cls,
        done: str,
        path: str | PathLike[str],
        error: Exception,
        *,
        what: str = "it",
        expected: str | None = None,
        advice: str | None = None,
    ) -> Self:
        """A file or folder in which `what` cannot be `done`, such as `read`, for the reason that `error` gives."""
        reason = printable(getattr(error, "strerror", None) or str(error))
        return cls(path, found=f"{what} cannot be {done} ({reason})", expected=expected, advice=advice)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_input_error, (type(self), self.path, self.found, self.expected, self.advice)


def _rebuild_input_error(
    kind: type[InputError], path: str, found: str, expected: str | None, advice: str | None
) -> InputError:
    return kind(path, found=found, expected=expected, advice=advice)


class DamageError(InputError):
    """A file of a run is not as it was written, so nothing of it may enter an answer; no rank is left out for it."""


class StrictError(AlltraceError):
    """Some ranks could not be read and `--strict` is set."""

    exit_code = EXIT_STRICT


def encodable(text: str) -> bool:
    """Whether a text can be stored and sent: JSON may carry halves of characters, and files end at a NUL."""
    return "\x00" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def printable(text: str) -> str:
    """`text` with every control character escaped, so that a name from outside cannot write to the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def path_text(path: str) -> str:
    """A path as text that every format can hold; bytes that are not UTF-8 are shown escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
