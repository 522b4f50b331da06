"""The floors of the house: what each part of the package may import of the others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "alltrace"
FILES = sorted(SOURCE.rglob("*.py"))
MAY_IMPORT = {
    "core": set(),
    "trace": {"core"},
    "engine": {"trace"},
    "readers": {"core", "trace"},
    "run": {"trace", "engine", "readers"},
    "align": {"core", "trace", "engine", "run"},
    "replay": {"core", "run", "trace"},
    "recipes": {"trace", "engine", "run", "align", "replay"},
    "charts": {"trace", "recipes"},
    "export": {"core", "trace", "engine", "readers", "run", "align"},
    "tiles": {"core", "trace", "engine", "run", "align", "recipes"},
    "capture": {"trace"},
    "instrument": {"capture"},
    "synth": {"trace"},
    "api": {"trace", "run", "align", "recipes", "charts"},
    "": {"api"},
}
MOST_LINES = 700
RUNS_CODE = {"code", "cffi", "cloudpickle", "ctypes", "dill", "imp", "joblib", "marshal", "pickle", "runpy", "shelve"}
MAY_RUN_CODE = {
    "capture/doctor.py": "ctypes",  # the C library's adjtimex
    "capture/instrument.py": "ctypes",  # the CUDA runtime that the program has loaded
    "capture/supervise.py": "ctypes",  # the C library's prctl
    "recipes/execution/part_store.py": "pickle",  # reads what the same process wrote to a temporary folder of its own
}
EVERY_FILE = pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))


def part(module):
    """The part of the package that a module is of; the package itself is ''."""
    names = module.split(".")
    return names[1] if len(names) > 1 and names[1] != "__init__" else ""


def imported(file):
    """The modules of ours that a file imports anywhere, also for types only."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "alltrace")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: line {node.lineno} imports relatively"
            if node.module == "alltrace":
                yield from (f"alltrace.{a.name}" for a in node.names)
            elif node.module and node.module.startswith("alltrace."):
                yield node.module


@EVERY_FILE
def test_each_floor_imports_only_those_below(file):
    own = part(".".join(["alltrace", *file.relative_to(SOURCE).with_suffix("").parts]))
    others = {part(m) for m in imported(file) if m not in ("alltrace.__version__", "alltrace")} - {own}
    if own in ("cli", "report", "ui"):  # the faces stand on all, but not on each other
        assert not others & ({"cli", "report", "ui"} - {own, "report", "ui"})
        return
    assert own in MAY_IMPORT, f"{own} is new: say here what it may import"
    assert others <= MAY_IMPORT[own]


@EVERY_FILE
def test_no_file_is_too_long_to_read(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@EVERY_FILE
def test_only_the_command_line_prints(file):
    if part(".".join(["alltrace", *file.relative_to(SOURCE).parts])) == "cli":
        return
    calls = (n.func for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Call))
    assert "print" not in {f.id for f in calls if isinstance(f, ast.Name)}


def modules_imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_nothing_is_executed_that_did_not_come_with_the_package():
    """No reader, run or cache can bring code: nothing loads objects or machine code from files, or makes memory executable."""
    found = {}
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        name = str(file.relative_to(SOURCE))
        for module in RUNS_CODE & set(modules_imported(tree)):
            assert name not in found
            found[name] = module
        for node in ast.walk(tree):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            assert called not in ("eval", "exec", "compile", "__import__"), f"{name}: line {node.lineno}"
            assert getattr(node, "attr", None) != "PROT_EXEC", f"{name}: line {node.lineno}"
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), f"{name}: line {node.lineno}"
    assert found == MAY_RUN_CODE


def test_the_rules_see_what_they_should(tmp_path):
    assert len(FILES) > 100
    lines = ("from alltrace.cli import main", "import alltrace.run.store", "from alltrace import api")
    (tmp_path / "a.py").write_text("def f():\n" + "".join(f"    {line}\n" for line in lines))
    assert [part(m) for m in imported(tmp_path / "a.py")] == ["cli", "run", "api"]
