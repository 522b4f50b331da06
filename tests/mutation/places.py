"""The changes that can be made: of Python by rule, of compiled modules by a list."""

from __future__ import annotations

import ast
import re
import subprocess
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/alltrace"


class Place(NamedTuple):
    """A change of one place.

    Attributes:
        file: The file, below `src/alltrace`.
        line: Its line, from 1.
        start: Where in the file's text the change begins, in characters.
        old: The text there.
        new: What stands there instead.
    """

    file: str
    line: int
    start: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The text with the change in it."""
        return source[: self.start] + self.new + source[self.start + len(self.old) :]


CORE = (
    ("core/graphs.pyx", "                if reached > latest:", "                if reached >= latest:"),
    ("core/graphs.pyx", "for arc in range(low + 1, high):", "for arc in range(low + 1, high - 1):"),
    ("core/graphs.pyx", "allowed < latest[sources[arc]]", "allowed > latest[sources[arc]]"),
    ("core/intervals.pyx", "start <= out_ends[count - 1]:", "start < out_ends[count - 1]:"),
    ("core/intervals.pyx", "            if start < end:", "            if start <= end:"),
    ("core/intervals.pyx", "            if start > m_starts[at]:", "            if start >= m_starts[at]:"),
    ("core/text.pyx", "if out.size - at < size:", "if out.size - at <= size:"),
    ("core/text.pyx", "    while u >= E4:", "    while u > E4:"),
    ("core/text.pyx", "    if u >= 10:\n        memcpy(to - 2", "    if u > 10:\n        memcpy(to - 2"),
)
"""Changes of compiled modules: file, text that stands there once, what stands there instead."""

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_PAIRS = (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("zeros", "ones"))
_NAMES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


def places(file: str, source: str) -> list[Place]:
    """All changes of a Python file that the rules allow, in order of their places; annotations and docstrings have
    none."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    allowed: list[Place] = []

    def position(number: int, column: int) -> int:
        row = source[lines[number - 1] : lines[number]]
        return lines[number - 1] + len(row.encode()[:column].decode())

    def add(start: int, old: str, new: str) -> None:
        allowed.append(Place(file, bisect_right(lines, start), start, old, new))

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        start = position(left.end_lineno or 0, left.end_col_offset or 0)
        at = source[start : position(right.lineno, right.col_offset)].find(old)
        if at >= 0:
            add(start + at, old, new)

    def ending(node: ast.expr, old: str, new: str) -> None:
        start = position(node.end_lineno or 0, node.end_col_offset or 0) - len(old)
        if source[start : start + len(old)] == old:
            add(start, old, new)

    for node in _code(ast.parse(source)):
        if operator := _operator(node):
            between(*operator)
        elif word := _last_word(node):
            ending(*word)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            add(position(node.lineno, node.col_offset), "not ", "")
    return sorted(set(allowed), key=lambda p: p.start)


def _operator(node: ast.AST) -> tuple[ast.expr, ast.expr, str, str] | None:
    """What stands left and right of an operator, the operator, and another one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return node.left, node.comparators[0], *_COMPARISONS[type(node.ops[0])]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return node.left, node.right, *_OPERATORS[type(node.op)]
    if isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        return node.values[0], node.values[1], *words
    return None


def _last_word(node: ast.AST) -> tuple[ast.expr, str, str] | None:
    """An expression, its last word, and another one."""
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return node, str(node.value), str(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 100:
        return node, str(node.value), str(node.value + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name in _NAMES:
            return node.func, name, _NAMES[name]
    return None


def _code(tree: ast.AST) -> list[ast.AST]:
    """The nodes inside of functions, without annotations and defaults."""
    nodes: list[ast.AST] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if inside:
            nodes.append(node)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns") and not (function and name != "body") and not _is_guard(node):
                children = value if isinstance(value, list) else [value]
                waiting += ((c, inside or function) for c in children if isinstance(c, ast.AST))
    return nodes


def _is_guard(node: ast.AST) -> bool:
    """Whether it is the argument `strict` of `zip`, which asserts what is so and changes nothing."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def core_places() -> list[Place]:
    """The changes in `CORE`.

    Raises:
        ValueError: A place is not there, or not once: the list is to follow the source.
    """
    changes = []
    for file, old, new in CORE:
        source = (ROOT / PACKAGE / file).read_text(encoding="utf-8")
        if source.count(old) != 1:
            raise ValueError(
                f"CORE in tests/mutation/places.py changes {old!r}, which {file} has {source.count(old)} times"
            )
        start = source.index(old)
        changes.append(Place(file, source.count("\n", 0, start) + 1, start, old, new))
    return changes


def all_places(prefixes: tuple[str, ...] = ("",), root: Path = ROOT) -> list[Place]:
    """The changes of every Python file of the package whose name begins so, by file and place."""
    names = (p.relative_to(root / PACKAGE).as_posix() for p in (root / PACKAGE).rglob("*.py"))
    files = sorted(f for f in names if f.startswith(prefixes))
    return [p for f in files for p in places(f, (root / PACKAGE / f).read_text(encoding="utf-8"))]


def changed_lines(since: str, root: Path = ROOT) -> set[tuple[str, int]]:
    """The lines of the package, as file and number, that are not as in a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--relative", since, "--", PACKAGE]
    text = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    lines, file = set(), ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/").removeprefix(f"{PACKAGE}/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first = int(hunk[1])
            lines |= {(file, number) for number in range(first, first + int(hunk[2] or 1))}
    return lines
