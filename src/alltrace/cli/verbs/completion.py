"""`alltrace completion`: a script by which a shell completes verbs, recipes, options and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE

if TYPE_CHECKING:
    import argparse

SHELLS = ("bash", "zsh", "fish")
EXAMPLE = "alltrace completion bash > ~/.local/share/bash-completion/completions/alltrace"


def configure(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from alltrace.cli.completion import script

    print(script(args.shell), end="")  # noqa: T201
    return EXIT_DONE
