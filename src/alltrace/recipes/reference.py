"""The documentation of a recipe or report as plain text: what it answers, its options and its columns."""

import inspect
import textwrap
from collections.abc import Iterable

from alltrace.recipes.base import Question

_WIDTH = 80
_INDENT = "    "


def summary(recipe: Question) -> str:
    """The first line of a recipe's documentation."""
    return description(recipe).partition("\n")[0]


def description(recipe: Question) -> str:
    """The documentation of a recipe, without the indentation of the source."""
    return inspect.cleandoc(recipe.doc or "")


def recipe_reference(recipe: Question) -> str:
    """The documentation of a recipe with its options, as the command line spells them, and its columns."""
    defaults = {option.name: option.default for option in recipe.options}
    return reference(
        recipe.name,
        description(recipe),
        [(option.flag, option.help) for option in recipe.options],
        [
            (f"{c.name} ({c.unit})" if c.unit and f"({c.unit})" not in c.name else c.name, c.doc)
            for c in recipe.answer_columns(defaults)
        ],
    )


def reference(name: str, about: str, options: Iterable[tuple[str, str]], columns: Iterable[tuple[str, str]]) -> str:
    """A page of text, 80 characters wide."""
    first, _, rest = about.partition("\n")
    parts = [f"{name} -- {first}"]
    parts += [textwrap.fill(" ".join(p.split()), _WIDTH) for p in rest.split("\n\n") if p.strip()]
    for title, entries in (("Options", options), ("Columns", columns)):
        lines = [
            textwrap.fill(
                f"{term}: {' '.join(meaning.split())}", _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT * 2
            )
            for term, meaning in entries
        ]
        if lines:
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts) + "\n"
