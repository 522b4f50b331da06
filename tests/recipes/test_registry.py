from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import alltrace.recipes
from alltrace.recipes import registry
from alltrace.recipes.base import Recipe
from alltrace.recipes.questions.overlap import RECIPE
from alltrace.recipes.sql_recipe import SqlRecipe
from alltrace.trace.errors import AlltraceError, UsageError


def test_every_name_finds_the_recipe_of_that_name():
    assert registry.names() == sorted(registry.RECIPES)
    assert [registry.find(n).name for n in registry.names()] == registry.names()


def test_a_recipe_of_another_package_is_found(monkeypatch):
    added(monkeypatch, "theirs", "alltrace.recipes.questions.overlap:RECIPE")
    assert "theirs" in registry.names()
    assert registry.find("theirs") is RECIPE
    added(monkeypatch, "theirs", "alltrace.recipes.questions.overlap:Overlap")
    assert isinstance(registry.find("theirs"), type(RECIPE))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no.such.module:RECIPE", "no.such.module:RECIPE cannot be loaded"),
        ("alltrace.recipes.questions.overlap:NONE", "cannot be loaded"),
        ("alltrace.recipes.registry:RECIPES", "expected a Recipe"),
        ("alltrace.recipes.base:Recipe", "cannot be loaded"),
    ],
)
def test_a_broken_recipe_of_another_package_is_named(monkeypatch, value, says):
    added(monkeypatch, "theirs", value)
    with pytest.raises(AlltraceError, match=says):
        registry.find("theirs")


def test_an_unknown_name_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="unknown recipe 'gap'; did you mean gaps"):
        registry.find("gap")


def added(monkeypatch, name, value):
    points = [EntryPoint(name, value, registry.ENTRY_POINTS)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)


def test_recipes_load_without_pandas_which_pyarrow_would_load(tmp_path):
    """A command keeps pandas out once it has loaded its recipe; what a recipe makes when it is loaded is before that."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('loaded')")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from alltrace.recipes import registry
assert len([registry.find(name) for name in registry.names()]) == len(registry.RECIPES)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_what_recipes_declare_has_a_type():
    """Type checkers of users infer other types than the base class has where a subclass states none."""
    bases = (Recipe, SqlRecipe)
    declared = {name for kind in bases for name in inspect.get_annotations(kind)}
    plain = {"name", "title", "aligned", "on_one_clock", "host_samples"}  # a text or a truth value is what it is
    untyped = [
        f"{path.name}:{node.lineno}: {target.id}"
        for path in sorted(Path(alltrace.recipes.__file__).parent.rglob("*.py"))
        for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant | ast.JoinedStr)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in declared - plain
    ]
    assert untyped == []
