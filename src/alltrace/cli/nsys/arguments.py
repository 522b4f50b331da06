"""Options as nsys reads them: `--name=value`, `--name value`, `-nVALUE`, starts of long names, lists with commas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from alltrace.trace.errors import EXIT_BREACH, UsageError

EXIT_REFUSED = EXIT_BREACH
"""What nsys ends with if it cannot use a command line: 1. Its recipes end with 2, as alltrace does."""

_TRUTHS = {"true": True, "false": False}


class RefusedError(UsageError):
    """A command line that is refused, with the exit code of nsys."""

    exit_code = EXIT_REFUSED


class Switch(NamedTuple):
    name: str  # its long name
    short: str  # its letter, or an empty text
    # `flag`, without a value; `truth`, true or false, and true without either; `value`; `list`, values separated by
    # commas, may be repeated; `optional`, a value that may be left out
    kind: Literal["flag", "truth", "value", "list", "optional"]
    help: str  # one sentence
    metavar: str = ""  # the name of its value in the help


class Parsed(NamedTuple):
    # the last value of each option that takes one, by long name; an optional value that was left out is empty
    values: dict[str, str]
    lists: dict[str, list[str]]  # the values of each list, in order
    truths: dict[str, bool]  # the flags and truth values in the command line
    rest: list[str]  # what is not an option


def parse(command: str, switches: Sequence[Switch], arguments: Sequence[str]) -> Parsed:
    """Read `arguments` as nsys does."""
    # `command`: The command, such as `nsys stats`. `switches`: Its options. `arguments`: What follows it. Raises
    # `RefusedError`: an option is unknown or ambiguous, or lacks its value or has one too many.
    parsed = Parsed({}, {}, {}, [])
    waiting = iter(enumerate(arguments))
    for place, word in waiting:
        if word == "--":
            parsed.rest.extend(arguments[place + 1 :])
            break
        if word == "-" or not word.startswith("-"):
            parsed.rest.append(word)
            continue
        switch, value = _switch(command, switches, word)
        following = arguments[place + 1] if place + 1 < len(arguments) else None
        _take(command, parsed, switch, value, following, waiting)
    return parsed


def _switch(command: str, switches: Sequence[Switch], word: str) -> tuple[Switch, str | None]:
    """The option that a word names, and the value within the word."""
    if not word.startswith("--"):
        matches = [s for s in switches if s.short and s.short == word[1]]
        if not matches:
            raise RefusedError(
                f"unknown option {word[:2]!r} of {command}; `alltrace {command} --help` lists the options"
            )
        return matches[0], word[2:] or None
    name, equals, value = word[2:].partition("=")
    exact = [s for s in switches if s.name == name]
    matches = exact or [s for s in switches if name and s.name.startswith(name)]
    if not matches:
        raise RefusedError(f"unknown option '--{name}' of {command}; `alltrace {command} --help` lists the options")
    if len(matches) > 1:
        raise RefusedError(
            f"option '--{name}' of {command} is ambiguous; expected one of --{', --'.join(s.name for s in matches)}"
        )
    return matches[0], value if equals else None


def _take(
    command: str,
    parsed: Parsed,
    switch: Switch,
    value: str | None,
    following: str | None,
    waiting: Iterator[tuple[int, str]],
) -> None:
    """Add an option to the parsed options; takes the next word if that is its value."""
    if switch.kind == "flag":
        if value is not None:
            raise RefusedError(f"option '--{switch.name}' of {command} takes no value, but was given {value!r}")
        parsed.truths[switch.name] = True
        return
    if switch.kind == "truth":
        if value is None and following in _TRUTHS:
            value = next(waiting)[1]
        if value is not None and value not in _TRUTHS:
            raise RefusedError(f"option '--{switch.name}' of {command} is {value!r}; expected true or false")
        parsed.truths[switch.name] = _TRUTHS[value or "true"]
        return
    if switch.kind == "optional":
        if value is None and following is not None and not following.startswith("-"):
            value = next(waiting)[1]
        parsed.values[switch.name] = value or ""
        return
    if value is None:
        if following is None:
            raise RefusedError(f"option '--{switch.name}' of {command} needs a value: {switch.metavar or 'VALUE'}")
        value = next(waiting)[1]
    if switch.kind == "list":
        parsed.lists.setdefault(switch.name, []).extend(v for v in value.split(",") if v)
    else:
        parsed.values[switch.name] = value


def help_text(command: str, usage: str, about: str, switches: Sequence[Switch]) -> str:
    shown = [
        (f"-{s.short}, " if s.short else "") + f"--{s.name}{f' {s.metavar}' if s.metavar else ''}" for s in switches
    ]
    width = max(map(len, shown))
    lines = [f"  {name:<{width}}  {s.help}" for name, s in zip(shown, switches, strict=True)]
    return "\n".join([f"usage: alltrace {command} {usage}", "", about, "", "options:", *lines, ""])
