"""An option: of a question, of a verb, of a job file. Parser, file, completion, form and reference are made from it."""

import argparse
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from alltrace.trace.errors import UsageError, printable

OptionValue = int | float | str | bool | None
"""The value of an option of a question as passed."""
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SECONDS = re.compile(r"(?![0.]+$)[0-9]{1,8}(\.[0-9]{1,6})?")


class Option(NamedTuple):
    """An option of a recipe; on the command line `--name`, with dashes for underscores.

    Attributes:
        name: Its name, a Python identifier; in a job file `section.key`.
        type: `int`, `float`, `str` or `bool`; a bool is a flag. `list` for words, `dict` for names with text.
        default: Its value if the option is missing.
        help: One sentence, with the unit.
        choices: The values allowed, or None for any.
        required: Whether the option is mandatory.
        least: Of an int, the smallest value allowed, or None for any.
        reads: What kind of files the value names: `run`, which the recipe opens, or `nccl-tests`, whose content it gets
            as a `pyarrow.Table`; None for no file. Servers open only what they may.
        most: Of an int, the largest value allowed, or None for any.
        expected: What a value must be, in words, for a command line too; empty for the name of the type.
        pattern: What text in a file must look like, or None for any.
        parse: Makes the value of the text on a command line, None of text that is wrong; None if the text is the value.
        metavar: What the help calls the value.
        flags: How it is spelled on the command line, if not `--name`.
        nargs: How many words a value has, as argparse counts them.
        group: The heading in the help.
        key: Its name in a job file; empty if it is not in one.
        key_help: Its help there, if it differs.
        only_with: The profilers that know it; empty for all.
        in_shell: Whether the wrapper without Python knows it.
    """

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] | None = None
    required: bool = False
    least: int | None = None
    reads: str | None = None
    most: int | None = None
    expected: str = ""
    pattern: re.Pattern[str] | None = None
    parse: Callable[[str], Any] | None = None
    metavar: str | tuple[str, ...] | None = None
    flags: tuple[str, ...] = ()
    nargs: int | str | None = None
    group: str = ""
    key: str = ""
    key_help: str = ""
    only_with: tuple[str, ...] = ()
    in_shell: bool = True

    @property
    def flag(self) -> str:
        """How it is spelled on the command line."""
        return self.flags[-1] if self.flags else f"--{self.name.replace('_', '-')}"

    def add_to(self, parser: argparse._ActionsContainer, **changes: Any) -> None:
        """Declare it as an argument; `changes` replace what argparse is told."""
        about: dict[str, Any] = {"dest": self.name, "default": self.default, "help": self.command_help}
        if self.type is bool:
            about["action"] = "store_true"
        else:
            about.update(metavar=self.metavar, choices=self.choices, nargs=self.nargs)
            about.update(
                {"action": "append"} if self.type is list else {"type": self.from_text if self.expected else self.type}
            )
        parser.add_argument(*(self.flags or (self.flag,)), **{**about, **changes})

    @property
    def command_help(self) -> str:
        """The help on a command line, for argparse, which formats it with %."""
        silent = self.type is bool or self.default is None or self.default == [] or "default: " in self.help
        text = self.help if silent else f"{self.help}; default: {self.default}".removeprefix("; ")
        return text.replace("%", "%%")

    def from_text(self, text: str) -> Any:
        """The value of a text on a command line.

        Raises:
            ArgumentTypeError: It is not what is expected.
        """
        if self.parse is not None:
            value = self.parse(text)
        elif self.type is int:
            value = int(text) if _NUMBER.fullmatch(text) else None
        else:
            value = text
        if value is None or self.bound_broken(value):
            from argparse import ArgumentTypeError

            raise ArgumentTypeError(f"it is {text!r}, expected {self.expected}")
        return value

    def bound_broken(self, value: Any) -> str:
        """What a number must be, in words, if it is not within the bounds; empty if it is."""
        if self.least is not None and value < self.least:
            return f"{self.least} or more"
        return f"{self.most} or less" if self.most is not None and value > self.most else ""

    def words(self, value: Any) -> list[str]:
        """The option with a value, as words of a command line; none for the value of an option that is not there."""
        if isinstance(value, list):
            return [f"{self.flag}={one}" for one in value]
        if value is None or value is False:
            return []
        text = (
            f"{value:g}"
            if isinstance(value, float)
            else ":".join(map(str, value))
            if isinstance(value, tuple)
            else str(value)
        )
        return [self.flag] if value is True else [self.flag, text]

    def facts(self) -> dict[str, Any]:
        """What a form for it needs, as JSON has it."""
        choices = None if self.choices is None else list(self.choices)
        plain = {"name": self.name, "type": self.type.__name__, "default": self.default, "help": self.help}
        return {**plain, "choices": choices, "required": self.required}

    def checked(self, value: Any, label: str) -> Any:
        """`value`, if the option may have it; a whole number becomes one with a fraction where that is meant.

        Args:
            value: The value.
            label: What the option is called in a message.

        Raises:
            UsageError: The value is of another type, out of bounds, not among the choices, or looks otherwise.
        """
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if self.pattern is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = f"{value}"  # a file may have a number where text is meant
        fits: bool = isinstance(value, self.type) and not (self.type is int and isinstance(value, bool))
        if not fits:
            self.refuse(value, label, self.type.__name__)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"{label} is {value!r}, with bytes that are not UTF-8; expected text") from error
        if self.choices and value not in self.choices:
            self.refuse(value, label, f"one of {', '.join(self.choices)}")
        if self.pattern is not None and not (value == "" == self.default or self.pattern.fullmatch(value)):
            self.refuse(value, label)
        if self.type is int:
            if broken := self.bound_broken(value):
                self.refuse(value, label, broken)
            if not -(1 << 63) <= value < 1 << 63:
                raise UsageError(f"{label} is {value}; expected a number that fits into 64 bits")
        return value

    def refuse(self, value: Any, label: str, expected: str = "") -> NoReturn:
        """Raise for a value that the option cannot have."""
        raise UsageError(f"{label} is {printable(repr(value))}; expected {self.expected or expected}")


def count(name: str, default: int | None, about: str, least: int = 1, **further: Any) -> Option:
    """An option that is a whole number."""
    expected = f"a whole number of {least} or more"
    return Option(name, int, default, about, least=least, expected=expected, **{"metavar": "N", **further})


def flag(name: str, about: str, **further: Any) -> Option:
    """An option that is there or not."""
    return Option(name, bool, False, about, **further)


def seconds(name: str, default: float | None, about: str, **further: Any) -> Option:
    """An option that is a number of seconds above 0."""
    about = about if default is None else f"{about}; default: {default:g}"
    expected = "a number of seconds greater than 0"
    return Option(
        name, float, default, about, expected=expected, pattern=_SECONDS, parse=_seconds, metavar="SECONDS", **further
    )


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
