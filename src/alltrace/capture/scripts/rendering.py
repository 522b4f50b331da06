"""The templates of scripts and manifests, and the filters by which they quote what comes from outside."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_WIDTH = 100
_PLAIN = re.compile(r"/?[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset("y n yes no on off true false null none nan inf".split())
_BLOCK_LINE = re.compile(r"[\x20-\x7e\u00a1-\u167f\u1681-\u1fff\u2030-\u205e\u2070-\u2fff\u3001-\ud7ff]*")


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template; a name that has no value in it is a defect."""
    return _environment().get_template(f"{template}.jinja").render(values)


@cache
def _environment() -> Environment:
    import jinja2  # for those who write scripts, and not for the ranks that run them

    environment = jinja2.Environment(  # noqa: S701  what is written is no HTML
        loader=jinja2.PackageLoader("alltrace.capture.scripts"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    filters = (array, at, continued, exports, first_set, literal, word, yaml)
    environment.filters.update({one.__name__: one for one in filters})
    return environment


class Expression(str):
    """Text that is shell already, such as `"$reports"`; everything else is quoted."""

    __slots__ = ()


def word(text: str) -> str:
    return str(text) if isinstance(text, Expression) else shlex.quote(text)


def first_set(names: Sequence[str], default: str = "") -> str:
    """The value of the first of these variables that is set, as a word of a shell."""
    for name in reversed(names):
        default = f"${{{name}-{default}}}"
    return f'"{default}"' if names else "''"


def meant(texts: Iterable[str]) -> list[str]:
    """A directive for shellcheck if single quotes contain an intended dollar or trailing backslash."""
    literals = [t for t in texts if not isinstance(t, Expression)]
    codes = [
        c
        for c, pattern in (("SC2016", r"[$`]"), ("SC1003", r"\\('|$)"))
        if any(re.search(pattern, t) for t in literals)
    ]
    return [f"# shellcheck disable={','.join(codes)}  # it is meant as it stands"] if codes else []


def exports(variables: Mapping[str, str]) -> str:
    lines = [line for name, value in variables.items() for line in (*meant([value]), f"export {name}={word(value)}")]
    return "".join(f"{line}\n" for line in lines)


def array(texts: Sequence[str], name: str) -> str:
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
    return "\n".join([*meant(texts), f"{name}=(", *(f"  {line}" for line in lines), ")"])


def _element(text: str) -> str:
    """`text` as a word of an array; one with a comma quoted, which else looks as if it were to part two."""
    quoted = word(text)
    return f"'{quoted}'" if quoted == text and "," in quoted else quoted


def one_line(text: str) -> str:
    """`text` for a comment: without what would end it."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def continued(texts: Iterable[str]) -> str:
    """A command, its pieces quoted already, in lines that are joined by backslashes."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 1 < _WIDTH:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return " \\\n  ".join(lines)


def at(text: str, column: int) -> str:
    """Lines that begin at a column, but for the first, which follows what is there."""
    return re.sub(r"\n(?=[^\n])", "\n" + " " * column, text.rstrip("\n"))


def literal(text: str) -> str:
    """Text for a container's command or variable, where Kubernetes fills in `$(NAME)` and makes one dollar of two."""
    return re.sub(r"\$\$|\$(?=\()", lambda dollars: dollars[0] * 2, text)


def yaml(text: str, column: int = 0) -> str:
    """Text as a value of YAML; if it has lines, as a block at this column."""
    # What is not surely a plain word is written as JSON writes text, which YAML 1.1 and 1.2 read alike.
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    lines = text.removesuffix("\n").split("\n")
    readable = all(map(_BLOCK_LINE.fullmatch, lines)) and lines[0].strip() and lines[0][0] != " " and lines[-1].strip()
    if "\n" in text and readable:
        return at("\n".join(["|" if text.endswith("\n") else "|-", *lines]), column)
    # all but printable ASCII escaped; beyond 16 bit in YAML's form, not as JSON's surrogate pair
    pieces = (json.dumps(c)[1:-1] if ord(c) < 1 << 16 else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(pieces)}"'
