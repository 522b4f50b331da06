from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from alltrace.recipes import registry
from alltrace.recipes.questions.overlap import QUESTION
from alltrace.trace.errors import AlltraceError, UsageError


def test_every_name_finds_the_recipe_of_that_name():
    assert registry.names() == sorted(registry.RECIPES)
    assert [registry.find(n).name for n in registry.names()] == registry.names()


def test_a_recipe_of_another_package_is_found(monkeypatch):
    added(monkeypatch, "theirs", "alltrace.recipes.questions.overlap:QUESTION")
    assert "theirs" in registry.names()
    assert registry.find("theirs") is QUESTION
    added(monkeypatch, "theirs", "alltrace.recipes.questions.overlap")
    assert registry.find("theirs") is QUESTION


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no.such.module:RECIPE", "no.such.module:RECIPE cannot be loaded"),
        ("alltrace.recipes.questions.overlap:NONE", "cannot be loaded"),
        ("alltrace.recipes.registry:RECIPES", "expected a Question"),
        ("alltrace.recipes.base:Question", "cannot be loaded"),
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
    """A command keeps pandas out once it has loaded its recipe; what a recipe makes when it is loaded is before
    that."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('loaded')")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from alltrace.recipes import registry
assert len([registry.find(name) for name in registry.names()]) == len(registry.RECIPES)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
