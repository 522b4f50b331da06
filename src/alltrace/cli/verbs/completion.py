"""`alltrace completion`: a script by which a shell completes verbs, recipes, options and their values."""

from __future__ import annotations

import argparse
from typing import Any

from alltrace.cli.command import Parser
from alltrace.cli.registry import CAPTURE_VERBS, VERBS, Verb
from alltrace.trace.errors import EXIT_DONE

SHELLS = ("bash", "zsh", "fish")
EXAMPLE = "alltrace completion bash > ~/.local/share/bash-completion/completions/alltrace"
# registers the function where the script is sourced, as in ~/.zshrc, and not by a file in `fpath`
_ZSH = """(( ${+_comps} )) || { autoload -U compinit && compinit }
eval "$(cat <<'END_OF_COMPLETION'
%s
END_OF_COMPLETION
)"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}")


def run(args: argparse.Namespace) -> int:
    print(script(args.shell), end="")  # noqa: T201
    return EXIT_DONE


def script(shell: str) -> str:
    import shtab

    text = shtab.complete(_whole(), shell=shell)
    return _ZSH % text if shell == "zsh" else f"{text}\n"


class _Completed(Parser):
    """A parser whose arguments are completed by choices or files; with `has_verbs`, verbs replace positional ones."""

    def __init__(self, **options: Any) -> None:
        self.arguments: dict[str, argparse.Action] = {}
        self.has_verbs = self.is_made = False
        super().__init__(**{"example": "", **options})  # which adds groups of its own
        self.is_made = True

    def add_argument(self, *flags: Any, **options: Any) -> argparse.Action:
        import shtab

        if self.has_verbs and not flags[0].startswith("-"):
            return argparse.Action([], flags[0])
        action = super().add_argument(*flags, **options)
        self.arguments[action.dest] = action
        if action.nargs != 0 and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        return action

    def add_argument_group(self, *names: Any, **options: Any) -> Any:
        return self if self.is_made else super().add_argument_group(*names, **options)

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        return self

    def add_subparsers(self, **options: Any) -> Any:
        return super().add_subparsers(**{**options, "parser_class": _Completed})


def _whole() -> _Completed:
    from alltrace.cli.recipe_verb import add_recipe_arguments
    from alltrace.recipes.reference import summary
    from alltrace.recipes.registry import REPORTS, find, names

    root = _Completed(prog="alltrace")
    root.add_argument("-V", "--version", action="version", version="", help="show the version and exit")
    parsers = _add_verbs(root, VERBS)
    _add_verbs(parsers["capture"], CAPTURE_VERBS)
    below = parsers["recipe"].add_subparsers()
    for name in names():
        add_recipe_arguments(below.add_parser(name, help=summary(find(name))), find(name), folders=True)
    below.add_parser("all", help="every recipe that the run has data for")
    report = parsers["stats"].arguments["name"]
    report.choices = tuple(REPORTS)
    del report.complete  # type: ignore[attr-defined]
    return root


def _add_verbs(parser: _Completed, verbs: tuple[Verb, ...]) -> dict[str, _Completed]:
    """The parsers of verbs below one; those of `capture` and `recipe` get theirs in turn."""
    below = parser.add_subparsers()
    parsers: dict[str, _Completed] = {}
    for verb in verbs:
        parsers[verb.name] = added = below.add_parser(verb.name, help=verb.help)
        added.has_verbs = verb.name in ("capture", "recipe")
        verb.command().configure(added)
    return parsers
