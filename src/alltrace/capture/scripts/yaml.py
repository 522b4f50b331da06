"""Documents of YAML from plain data.

What is not surely a plain word is written as JSON writes text, which YAML 1.1 and 1.2 read alike.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from alltrace.capture.scripts.shell import comment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAIN = re.compile(r"/?[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset("y n yes no on off true false null none nan inf".split())
_BLOCK_LINE = re.compile(r"[\x20-\x7e\u00a1-\u167f\u1681-\u1fff\u2030-\u205e\u2070-\u2fff\u3001-\ud7ff]*")


def documents(about: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> str:
    """Several documents, with comments in front."""
    head = "".join(f"{c}\n" for line in about for c in comment(line))
    return head + "---\n".join("\n".join(_lines(m, 0)) + "\n" for m in manifests)


def _lines(value: Any, depth: int) -> list[str]:
    """A mapping or a list that is not empty, as lines."""
    indent = "  " * depth
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _entry(f"{indent}{_scalar(str(key))}:", item, depth)
        return lines
    for item in value:
        if isinstance(item, (dict, list)) and item:
            inner = _lines(item, depth + 1)
            lines += [f"{indent}- {inner[0][len(indent) + 2 :]}", *inner[1:]]
        else:
            lines += _entry(f"{indent}-", item, depth)
    return lines


def _entry(head: str, item: Any, depth: int) -> list[str]:
    if isinstance(item, (dict, list)) and item:
        return [head, *_lines(item, depth + 1)]
    if isinstance(item, str) and "\n" in item:
        inner = item.removesuffix("\n").split("\n")
        if all(map(_BLOCK_LINE.fullmatch, inner)) and inner[0].strip() and inner[0][0] != " " and inner[-1].strip():
            block = "  " * (depth + 1)
            style = "|" if item.endswith("\n") else "|-"
            return [f"{head} {style}", *(f"{block}{line}" if line else "" for line in inner)]
    return [f"{head} {_scalar(item)}"]


def _scalar(item: Any) -> str:
    if isinstance(item, str) and _PLAIN.fullmatch(item) and item.lower() not in _WORDS:
        return item
    if isinstance(item, str):
        return _quoted(item)
    return json.dumps(item)


def _quoted(text: str) -> str:
    """`text` in double quotes: all but printable ASCII escaped; beyond 16 bit in YAML's form, not as JSON's surrogate pair."""
    pieces = (json.dumps(c)[1:-1] if ord(c) < 1 << 16 else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(pieces)}"'
