"""Mutation tests: changes one place of the source at a time and runs the tests that should notice. `python -m tests.mutation`.

A change that makes a test fail is *killed*; one that all tests pass has *survived*: either nothing checks the place, or the changed
program does the same. Python is changed by rule: comparisons, additions, `and`, `min`, conditions, small numbers. Compiled modules
have their own list of changes in `CORE`; each is compiled before the tests run. Everything happens in a temporary copy of the
tree; the checkout is only read.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/alltrace"
TARGETS = {
    "align/banded_alignment.py": ("tests/align/test_log_join.py",),
    "align/clock_fit.py": ("tests/align/test_clock_fit.py",),
    "align/evidence.py": ("tests/align/test_evidence.py",),
    "replay/graph.py": ("tests/replay/test_graph.py",),
    "replay/join.py": ("tests/replay/test_join.py",),
    "replay/peers.py": ("tests/replay/test_peers.py",),
    "replay/slowdown.py": ("tests/replay/test_slowdown.py",),
    "replay/work.py": ("tests/replay/test_work.py",),
    "recipes/analysis/flops.py": ("tests/recipes/analysis/test_flops.py",),
    "recipes/analysis/lateness.py": ("tests/recipes/analysis/test_lateness.py", "tests/recipes/questions/test_stragglers.py"),
    "recipes/analysis/pop_efficiency.py": ("tests/recipes/analysis/test_pop_efficiency.py",),
    "recipes/questions/breakdown.py": ("tests/recipes/questions/test_breakdown.py",),
    "recipes/questions/collectives.py": ("tests/recipes/questions/test_collectives.py",),
    "recipes/questions/gaps.py": ("tests/recipes/questions/test_gaps.py",),
    "recipes/questions/overlap.py": ("tests/recipes/questions/test_overlap.py",),
    "recipes/logs/training.py": ("tests/recipes/logs/test_training.py",),
}
"""Modules whose places are changed, and the tests that should notice."""


class Mutant(NamedTuple):
    """A change of one place.

    Attributes:
        file: The file, below `src/alltrace`.
        line: Its line, from 1.
        start: Where in the file's text the change begins, in characters.
        old: The text there.
        new: What stands there instead.
        tests: The tests to run.
    """

    file: str
    line: int
    start: int
    old: str
    new: str
    tests: tuple[str, ...]


class CoreEdit(NamedTuple):
    """A change of a compiled module: the one place where `old` stands becomes `new`."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_GRAPHS, _INTERVALS, _TEXT = ("tests/core/test_graphs.py",), ("tests/trace/test_intervals.py",), ("tests/core/test_text.py",)
CORE = (
    CoreEdit("core/graphs.pyx", "                if reached > latest:", "                if reached >= latest:", _GRAPHS),
    CoreEdit("core/graphs.pyx", "for arc in range(low + 1, high):", "for arc in range(low + 1, high - 1):", _GRAPHS),
    CoreEdit("core/graphs.pyx", "allowed < latest[sources[arc]]", "allowed > latest[sources[arc]]", _GRAPHS),
    CoreEdit("core/intervals.pyx", "start <= out_ends[count - 1]:", "start < out_ends[count - 1]:", _INTERVALS),
    CoreEdit("core/intervals.pyx", "            if start < end:", "            if start <= end:", _INTERVALS),
    CoreEdit("core/intervals.pyx", "            if start > m_starts[at]:", "            if start >= m_starts[at]:", _INTERVALS),
    CoreEdit("core/text.pyx", "if out.size - at < size:", "if out.size - at <= size:", _TEXT),
    CoreEdit("core/text.pyx", "    while u >= E4:", "    while u > E4:", _TEXT),
    CoreEdit("core/text.pyx", "    if u >= 10:\n        memcpy(to - 2", "    if u > 10:\n        memcpy(to - 2", _TEXT),
)

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*")}
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


def mutants(file: str, source: str, tests: tuple[str, ...]) -> list[Mutant]:
    """All changes of a Python file that the rules allow, in order of their places; annotations and docstrings have none."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []

    def place(number: int, column: int) -> int:
        row = source[lines[number - 1] : lines[number]]
        return lines[number - 1] + len(row.encode()[:column].decode())

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        start, end = place(left.end_lineno or 0, left.end_col_offset or 0), place(right.lineno, right.col_offset)
        at = source[start:end].find(old)
        if at >= 0:
            found.append(Mutant(file, source.count("\n", 0, start + at) + 1, start + at, old, new, tests))

    def whole(node: ast.expr, old: str, new: str) -> None:
        start = place(node.end_lineno or 0, node.end_col_offset or 0) - len(old)
        if source[start : start + len(old)] == old:
            found.append(Mutant(file, node.lineno, start, old, new, tests))

    for node in _code(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            between(node.left, node.comparators[0], *_COMPARISONS[type(node.ops[0])])
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            between(node.left, node.right, *_OPERATORS[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            between(node.values[0], node.values[1], old, new)
        elif isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 100:
            whole(node, str(node.value), str(node.value + 1))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in _NAMES:
                whole(node.func, name, _NAMES[name])
    return sorted(found, key=lambda m: m.start)


def _code(tree: ast.AST) -> list[ast.AST]:
    """The nodes inside of functions, without annotations and defaults."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    nodes: dict[int, ast.AST] = {}
    for function in functions:
        for statement in function.body:
            nodes.update((id(n), n) for n in ast.walk(statement))
    return list(nodes.values())


def core_mutants() -> list[Mutant]:
    """The changes in `CORE`.

    Raises:
        ValueError: A place is not there, or not once: the list is to follow the source.
    """
    found = []
    for edit in CORE:
        source = (ROOT / PACKAGE / edit.file).read_text(encoding="utf-8")
        if source.count(edit.old) != 1:
            raise ValueError(
                f"CORE in tests/mutation.py changes {edit.old!r}, which {edit.file} has {source.count(edit.old)} times"
            )
        start = source.index(edit.old)
        found.append(Mutant(edit.file, source.count("\n", 0, start) + 1, start, edit.old, edit.new, edit.tests))
    return found


def changed(source: str, mutant: Mutant) -> str:
    """The text with the change in it."""
    return source[: mutant.start] + mutant.new + source[mutant.start + len(mutant.old) :]


class Tree:
    """A copy of the checkout in a folder, in which changes are made and taken back.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.c")
        for name in ("src", "tests", "tools", "docs", "examples"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for name in ("pyproject.toml", "setup.py"):
            shutil.copy2(ROOT / name, folder)

    def judged(self, mutant: Mutant, limit_s: float) -> str:
        """What becomes of a change: `killed`, `survived`, or `timeout`, which counts as killed."""
        path = self.folder / PACKAGE / mutant.file
        source = path.read_text(encoding="utf-8")
        try:
            path.write_text(changed(source, mutant), encoding="utf-8")
            if path.suffix == ".pyx":
                self._compile(path)
            return self.tested(mutant.tests, limit_s)
        finally:
            path.write_text(source, encoding="utf-8")
            if path.suffix == ".pyx":
                for module in (ROOT / PACKAGE / "core").glob(f"{path.stem}.*.so"):
                    shutil.copy2(module, path.parent)

    def tested(self, tests: tuple[str, ...], limit_s: float) -> str:
        """`survived` where the tests pass, `killed` where one fails, `timeout` where they do not end."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(self.folder / "src"), str(self.folder))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n0",
            "-p",
            "no:cacheprovider",
            "-m",
            "not oracle and not corpus and not browser",
            *tests,
        ]
        try:
            ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return "timeout"
        return "killed" if ended.returncode else "survived"

    def _compile(self, module: Path) -> None:
        """Compile one module, in a folder with no other, and put the result in its place."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            core = Path(folder) / PACKAGE / "core"
            core.mkdir(parents=True)
            for source in (module, *module.parent.glob("*.pxd"), module.parent / "__init__.py"):
                shutil.copy2(source, core)
            shutil.copy2(self.folder / "setup.py", folder)
            command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "src"]
            subprocess.run(command, cwd=folder, check=True)  # a change in the list that does not compile is a mistake
            for built in core.glob("*.so"):
                shutil.copy2(built, module.parent)


def main(arguments: list[str] | None = None) -> int:
    """Judge a sample of changes and print what survived; 1 where the tests fail without any change."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=int, default=30, help="how many changes of Python, drawn at random (default: 30)")
    parser.add_argument("--core", type=int, default=len(CORE), help="how many of the changes of compiled modules (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--files", default="", help="of these files only, separated by commas, such as replay/path.py")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the tests of one change (default: 120)")
    given = parser.parse_args(arguments)
    chosen = [f for f in given.files.split(",") if f]
    draw = random.Random(given.seed)
    places: list[Mutant] = []
    for file, tests in TARGETS.items():
        if not chosen or file in chosen:
            places += mutants(file, (ROOT / PACKAGE / file).read_text(encoding="utf-8"), tests)
    sample = sorted(draw.sample(places, min(given.limit, len(places))))
    core = [m for m in core_mutants() if not chosen or m.file in chosen]
    sample += sorted(draw.sample(core, min(given.core, len(core))))
    print(f"{len(sample)} of {len(places) + len(core)} changes, seed {given.seed}", flush=True)
    counts = dict.fromkeys(("killed", "timeout", "survived"), 0)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Tree(Path(folder))
        for tests in sorted({m.tests for m in sample}):
            if tree.tested(tests, 10 * given.timeout) != "survived":
                print(f"without any change, {' '.join(tests)} fails; mend that first", file=sys.stderr)
                return 1
        for mutant in sample:
            began = time.monotonic()
            verdict = tree.judged(mutant, given.timeout)
            counts[verdict] += 1
            print(
                f"{verdict:8} {mutant.file}:{mutant.line}: {mutant.old!r} -> {mutant.new!r} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
    caught = counts["killed"] + counts["timeout"]
    print(f"killed {caught} of {len(sample)}" + (f" ({100 * caught / len(sample):.0f} %)" if sample else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
