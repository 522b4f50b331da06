"""Words, arrays and comments of a shell script; everything from outside is quoted."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDTH = 100


class Expression(str):
    """Text that is shell already, such as `"$reports"`; everything else is quoted."""

    __slots__ = ()


def word(text: str) -> str:
    """`text` as one word of a shell."""
    return str(text) if isinstance(text, Expression) else shlex.quote(text)


def meant(texts: Iterable[str]) -> list[str]:
    """A directive for shellcheck if single quotes contain an intended dollar or trailing backslash."""
    given = [t for t in texts if not isinstance(t, Expression)]
    codes = [c for c, pattern in (("SC2016", r"[$`]"), ("SC1003", r"\\('|$)")) if any(re.search(pattern, t) for t in given)]
    return [f"# shellcheck disable={','.join(codes)}  # it is meant as it stands"] if codes else []


def array(name: str, texts: Sequence[str]) -> list[str]:
    """`name=(...)`, an option and its value on one line if they fit."""
    lines: list[str] = []
    for text in map(_element, texts):
        before = lines[-1] if lines else "--"
        is_value = before.startswith("-") and " " not in before and "=" not in before
        fits = "\n" not in before + text and (is_value or len(before) + len(text) < _WIDTH)
        if fits and before != "--" and not text.startswith("-"):
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return [*meant(texts), f"{name}=(", *(f"  {line}" for line in lines), ")"]


def _element(text: str) -> str:
    """`text` as a word of an array; one with a comma quoted, which else looks as if it were to part two."""
    found = word(text)
    return f"'{found}'" if found == text and "," in found else found


def comment(text: str) -> list[str]:
    """`text` as comment lines, cut at no width."""
    return [f"# {line}".rstrip() for line in text.split("\n")]


def one_line(text: str) -> str:
    """`text` for a comment: without what would end it."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def continued(texts: Iterable[str]) -> list[str]:
    """A command of several lines, joined by backslashes.

    Args:
        texts: Its pieces, quoted already; a piece goes on the line of the previous one if it fits.
    """
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 1 < _WIDTH:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return " \\\n  ".join(lines).split("\n")
