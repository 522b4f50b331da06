"""What a shell can complete on alltrace's command line, and the completion scripts for bash, zsh and fish."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from alltrace.cli.command import Parser
from alltrace.cli.recipe_verb import add_recipe_arguments
from alltrace.cli.registry import CAPTURE_VERBS, VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class OptionWords(NamedTuple):
    """An option of a command.

    Attributes:
        flags: Its spellings.
        takes_value: Whether a value follows.
        choices: The values that it takes; empty for any, or none.
        help: What it does.
    """

    flags: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    help: str


_HELP = OptionWords(("-h", "--help"), False, (), "show this help, with an example")


class CommandWords(NamedTuple):
    """What can follow a command.

    Attributes:
        path: The words that lead there, such as `capture exec`; empty for `alltrace` itself.
        words: Words that can follow, with what each does: verbs, names of recipes, values of an argument.
        options: Its options.
    """

    path: tuple[str, ...]
    words: dict[str, str]
    options: tuple[OptionWords, ...]


class _Recorder(Parser):
    """A parser that remembers what is declared, in groups and below verbs too."""

    def __init__(self, **options: Any) -> None:
        self.declared: list[argparse.Action] = []
        self.below: argparse.Action | None = None
        self._made = False  # argparse adds its own groups
        super().__init__(**{"example": "", **options})
        self._made = True

    def add_argument(self, *flags: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*flags, **options)
        self.declared.append(action)
        return action

    def add_argument_group(self, *names: Any, **options: Any) -> Any:
        return self if self._made else super().add_argument_group(*names, **options)

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        return self

    def add_subparsers(self, **options: Any) -> Any:
        self.below = super().add_subparsers(**{**options, "parser_class": _Recorder})
        return self.below


def commands() -> list[CommandWords]:
    """All commands, as their parsers declare them."""
    from alltrace.recipes.registry import REPORTS, find, names

    version = OptionWords(("-V", "--version"), False, (), "show the version and exit")
    recipes = names()
    found = [CommandWords((), {v.name: v.help for v in VERBS}, (version, _HELP))]
    named = {"recipe": dict.fromkeys((*recipes, "all"), ""), "stats": dict.fromkeys(REPORTS, "")}
    named["capture"] = {v.name: v.help for v in CAPTURE_VERBS}
    for path, verb in (*(((v.name,), v) for v in VERBS), *((("capture", v.name), v) for v in CAPTURE_VERBS)):
        parser = _Recorder()
        verb.command().configure(parser)
        found += _of_parser(path, parser, named.get("/".join(path), {}))
    for name in recipes:
        parser = _Recorder()
        add_recipe_arguments(parser, find(name), folders=True)
        found += _of_parser(("recipe", name), parser, {})
    return found


def _of_parser(path: tuple[str, ...], parser: _Recorder, words: Mapping[str, str]) -> Iterator[CommandWords]:
    """A command and those below it."""
    options, following = [], dict(words)
    for action in parser.declared:
        choices = tuple(map(str, action.choices or ()))
        if action.option_strings:
            said = "" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%")
            options.append(OptionWords(tuple(action.option_strings), action.nargs != 0, choices, said))
        else:
            following |= dict.fromkeys(choices, "")
    below: dict[str, _Recorder] = dict(parser.below.choices or {}) if parser.below is not None else {}
    yield CommandWords(path, following | dict.fromkeys(below, ""), tuple(options))
    for name, own in below.items():
        yield from _of_parser((*path, name), own, {})


def script(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`."""
    found = commands()
    if shell == "fish":
        return _fish(found)
    return (_ZSH if shell == "zsh" else "") + _bash(found)


_ZSH = """autoload -U +X compinit bashcompinit
(( ${+_comps} )) || compinit
bashcompinit
"""

_BASH = """# completion of alltrace; made by `alltrace completion`
_alltrace() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" options="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path/${COMP_WORDS[i]}" in
      %(paths)s) path="$path/${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path" in
%(commands)s
  esac
  case "$path $previous" in
%(values)s
  esac
  if [[ $current == -* ]]; then words=$options; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _alltrace alltrace
"""


def _bash(found: list[CommandWords]) -> str:
    """The script for bash. A word that an option takes as it is leaves the completion to the names of files."""
    lines, values = [], []
    for command in found:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        path = _path(command)
        lines.append(f"    {shlex.quote(path)}) words={shlex.quote(' '.join(command.words))}; options={shlex.quote(flags)} ;;")
        for option in command.options:
            if option.takes_value:
                spelled = "|".join(shlex.quote(f"{path} {flag}") for flag in option.flags)
                values.append(f"    {spelled}) words={shlex.quote(' '.join(option.choices))}; options= ;;")
    paths = "|".join(_path(command) for command in found if command.path)
    return _BASH % {"paths": paths, "commands": "\n".join(lines), "values": "\n".join(values)}


_FISH = """# completion of alltrace; made by `alltrace completion`
function __alltrace_path
  set -l path ""
  for word in (commandline -opc)[2..]
    if contains -- "$path/$word" %(paths)s
      set path "$path/$word"
    end
  end
  echo $path
end
function __alltrace_at
  test (__alltrace_path) = "$argv[1]"
end
%(commands)s
"""


def _fish(found: list[CommandWords]) -> str:
    lines = []
    for command in found:
        at = f"complete -c alltrace -n {_fish_text(f'__alltrace_at {_fish_text(_path(command))}')}"
        for word, text in command.words.items():
            lines.append(f"{at} -f -a {_fish_text(word)} -d {_fish_text(text)}")
        for option in command.options:
            flags = " ".join(
                f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" if len(f) == 2 else f"-o {f[1:]}" for f in option.flags
            )
            value = f" -x -a {_fish_text(' '.join(option.choices))}" if option.choices else " -r" if option.takes_value else ""
            lines.append(f"{at} {flags}{value} -d {_fish_text(option.help)}")
    paths = " ".join(_path(command) for command in found if command.path)
    return _FISH % {"paths": paths, "commands": "\n".join(lines)}


def _fish_text(text: str) -> str:
    """Text for fish: in its single quotes, a backslash escapes a quote or a backslash."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _path(command: CommandWords) -> str:
    return "".join(f"/{word}" for word in command.path)
