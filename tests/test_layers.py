"""The layers of the package: what each may import of the others, and other rules that all its files keep."""

import ast
import re
from functools import cache
from pathlib import Path

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
    "recipes": {"core", "trace", "engine", "run", "align", "replay"},
    "nvidia": {"core", "trace", "engine", "run", "align", "recipes"},
    "history": {"trace", "run", "recipes"},
    "hang": {"trace", "readers", "run", "recipes"},
    "charts": {"trace", "recipes"},
    "export": {"core", "trace", "engine", "readers", "run", "align"},
    "tiles": {"core", "trace", "engine", "run", "align", "recipes"},
    "capture": {"core", "trace"},
    "share": {"trace", "readers", "run", "capture"},
    "__main__": {"cli"},
    "instrument": {"capture"},
    "watch": {"trace", "capture"},
    "synth": {"trace"},
    "api": {"trace", "run", "align", "recipes", "charts", "hang"},
    "": {"api", "trace"},
}
USER_INTERFACES = {"cli", "mcp", "report", "ui"}  # import every layer below them, and each other but for `cli`
MOST_LINES = 700
CIRCLES = {
    # a scenario has faults and a layout, and these check and change a scenario
    frozenset({"alltrace.synth.scenario", "alltrace.synth.faults", "alltrace.synth.layouts"})
}
RUNS_CODE = {"code", "cffi", "cloudpickle", "ctypes", "dill", "imp", "joblib", "marshal", "pickle", "runpy", "shelve"}
MAY_RUN_CODE = {
    "capture/doctor.py": "ctypes",  # the C library's adjtimex
    "capture/cuda_profiler.py": "ctypes",  # the CUDA runtime that the program has loaded
    "capture/processes.py": "ctypes",  # the C library's prctl
    "recipes/execution/part_store.py": "pickle",  # reads what the same process wrote to a temporary folder of its own
}


@cache
def tree_of(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def module_of(file):
    """The dotted name of the module that a file below `SOURCE` holds."""
    names = ("alltrace", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def layer(module):
    """The layer that a module belongs to; that of the package itself is ''."""
    return [*module.split("."), ""][1]


def imported(file, modules=frozenset()):
    """The modules of ours that a file imports anywhere, also for types only; those in `modules` by their own name."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "alltrace")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: line {node.lineno} imports relatively"
            for full in (f"{node.module}.{a.name}" for a in node.names):
                if node.module == "alltrace" or full in modules:
                    yield full
                elif node.module.startswith("alltrace."):
                    yield node.module


def mutual_imports(files):
    """The pairs of modules that import each other, each in the order of the alphabet; `files` has the file of each
    module."""
    imports = {module: set(imported(file, files)) for module, file in files.items()}
    return {(a, b) for a in imports for b in imports[a] if a < b and a in imports.get(b, ())}


def circles(files):
    """The sets of modules that import each other in a circle, also late or for types only; `files` has the file of each
    module.

    The package itself is left out: what others import of it is its version.
    """
    imports = {
        module: set(imported(file, files)) & files.keys() - {module, "alltrace"} for module, file in files.items()
    }
    reached = {module: {module} for module in imports}
    for module, found in reached.items():
        ahead = [module]
        while ahead:
            new = imports[ahead.pop()] - found
            found |= new
            ahead += new
    return {frozenset(b for b in found if a in reached[b]) for a, found in reached.items()} - {
        frozenset({a}) for a in imports
    }


def listed(violations):
    return "".join(f"\n  {v}" for v in violations)


def test_each_layer_imports_only_those_below():
    violations = []
    for file in FILES:
        own = layer(module_of(file))
        others = {layer(m) for m in imported(file) if m not in ("alltrace.__version__", "alltrace")} - {own}
        if own in USER_INTERFACES:
            forbidden = others & {"cli"}
        elif own in MAY_IMPORT:
            forbidden = others - MAY_IMPORT[own]
        else:
            violations.append(f"{file}: the layer {own!r} is not in MAY_IMPORT; state there what it may import")
            continue
        violations += [f"{file}: {own or 'the package itself'} may not import {other}" for other in sorted(forbidden)]
    assert not violations, listed(violations)


def test_no_two_modules_import_each_other():
    found = mutual_imports({module_of(f): f for f in FILES})
    assert not found, "move what both need to a module of its own:" + listed(sorted(found))


def test_no_modules_import_each_other_in_a_circle():
    found = circles({module_of(f): f for f in FILES})
    new = [sorted(circle) for circle in found if not any(known <= circle for known in CIRCLES)]
    assert not new, "move what closes the circle to a module of its own:" + listed(new)
    assert len(found) == len(CIRCLES), f"CIRCLES names {len(CIRCLES)}, of which {len(found)} are left"


def test_no_file_is_too_long_to_read():
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    violations = [
        f"{file}: {lines} lines, at most {MOST_LINES}" for file, lines in lengths.items() if lines > MOST_LINES
    ]
    assert not violations, listed(violations)


def test_sections_of_docstrings_are_for_what_is_public():
    public = (
        "api.py",
        "trace/errors.py",
        "trace/columns.py",
        "trace/options.py",
        "run/rank.py",
        "run/manifest.py",
        "run/sql_views.py",
        "readers/base.py",
        "readers/kineto/identity.py",
    )
    public += tuple(f"recipes/{name}.py" for name in ("base", "part", "row_stream", "simple", "sql_recipe"))
    names = {str(file.relative_to(SOURCE)): file for file in FILES}
    section = re.compile(r"^ +(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)
    violations = [
        name for name, file in names.items() if name not in public and section.search(file.read_text(encoding="utf-8"))
    ]
    assert not violations, listed(violations)


def test_only_the_command_line_prints():
    violations = [
        f"{file}: line {node.lineno}"
        for file in FILES
        if layer(module_of(file)) != "cli"
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not violations, listed(violations)


def modules_imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_nothing_is_executed_that_did_not_come_with_the_package():
    """No reader, run or cache can bring code: nothing loads objects or machine code from files, or makes memory
    executable."""
    found = {}
    for file in FILES:
        tree = tree_of(file)
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
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("def f():\n" + "".join(f"    {line}\n" for line in lines))
    assert [layer(m) for m in imported(first)] == ["cli", "run", "api"]
    second.write_text("if TYPE_CHECKING:\n    from alltrace.align import clocks\n")
    assert list(imported(second)) == ["alltrace.align"]
    assert list(imported(second, {"alltrace.align.clocks"})) == ["alltrace.align.clocks"]
    # the first imports `run.store` at run time, the second `align.clocks` for types
    assert mutual_imports({"alltrace.align.clocks": first, "alltrace.run.store": second}) == {
        ("alltrace.align.clocks", "alltrace.run.store")
    }
    assert [layer(m) for m in ("alltrace", "alltrace.api", "alltrace.core.text")] == ["", "api", "core"]


def test_a_circle_over_three_modules_is_found(tmp_path):
    lines = {
        "a": "def f():\n    from alltrace import b\n",
        "b": "if True:\n    from alltrace.c import C\n",
        "c": "import alltrace.a\n",
        "d": "import alltrace.a\n",
    }
    for name, line in lines.items():
        (tmp_path / f"{name}.py").write_text(line)
    files = {f"alltrace.{name}": tmp_path / f"{name}.py" for name in lines}
    assert circles(files) == {frozenset({"alltrace.a", "alltrace.b", "alltrace.c"})}
