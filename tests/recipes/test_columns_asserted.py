"""Every column of every answer is asserted by value somewhere: a test reads it, or names it where it compares."""

from __future__ import annotations

import ast
from pathlib import Path
from pkgutil import resolve_name

import pytest
from tools.make_docs import log_columns

from alltrace.recipes import ncu
from alltrace.recipes.registry import RECIPES, REPORTS, find, find_report

TESTS = Path(__file__).resolve().parents[1]
# these compare whole answers with each other or with declarations, whatever is in them
GENERIC = {
    "test_columns_asserted.py",
    "test_docs.py",
    "test_every_recipe.py",
    "test_layers.py",
    "test_registry.py",
    "test_same_answer.py",
}
LOGS = ("nccl", "nccl-tests", "training", "flight-recorder", "inspector")


def answer_columns():
    """The questions that have each column."""
    recipes = {name: find(name) for name in RECIPES} | {f"stats:{name}": find_report(name) for name in REPORTS}
    columns = {name: [c for given in r.option_sets() for c in r.answer_columns(given)] for name, r in recipes.items()}
    columns |= {f"logs {kind} --view {view}": own for kind in LOGS for view, own in log_columns(kind).items()}
    columns |= {f"ncu --view {view}": resolve_name(place).columns for view, place in ncu.VIEWS.items()}
    asked = {}
    for question, own in columns.items():
        for column in own:
            asked.setdefault(column.name, set()).add(question)
    return asked


def texts(node):
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def texts_compared(tree):
    """The texts of a test module in its asserts, subscripts, loops, arguments and parameters, and in its lists of
    titles.

    Those in dictionaries outside of asserts do not count: most are rows that a test makes.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found |= texts(node)
        elif isinstance(node, ast.Subscript):
            found |= texts(node.slice)
        elif isinstance(node, ast.For | ast.comprehension):
            found |= texts(node.iter)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List):
            found |= {t for element in node.value.elts if isinstance(element, ast.Constant) for t in texts(element)}
        elif isinstance(node, ast.Call):
            found |= {t for argument in node.args if isinstance(argument, ast.Constant) for t in texts(argument)}
            if isinstance(node.func, ast.Attribute) and node.func.attr == "split":  # a list of words
                found |= {word for text in texts(node.func.value) for word in text.split()}
        elif isinstance(node, ast.FunctionDef):
            found |= {t for decorator in node.decorator_list for t in texts(decorator)}
    return found


@pytest.mark.slow
def test_every_column_of_an_answer_is_asserted_somewhere():
    compared = set()
    for file in TESTS.rglob("test_*.py"):
        if file.name not in GENERIC:
            compared |= texts_compared(ast.parse(file.read_text(encoding="utf-8")))
    asked = answer_columns()
    assert len(asked) > 500
    missing = [
        f"{column!r} of {', '.join(sorted(asked[column]))}" for column in sorted(asked) if column not in compared
    ]
    assert not missing, "no test names these columns:" + "".join(f"\n  {m}" for m in missing)


def test_only_what_is_compared_counts():
    source = """
@pytest.mark.parametrize("x", [("parameter", 1)])
def test_it(x):
    titles = ("title", "other")
    rows = [{"made": 1}]
    answer.column("argument")
    for name in ("looped",):
        assert row["subscript"] == {"expected": 1}[name]
"""
    assert texts_compared(ast.parse(source)) == {
        "x",
        "parameter",
        "title",
        "other",
        "argument",
        "looped",
        "subscript",
        "expected",
    }
