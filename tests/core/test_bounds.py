"""Indices of the compiled core are checked: nowhere is the check switched off."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from tests.together import together

from alltrace.core import intervals

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for p in (ROOT / "src" / "alltrace" / "core").rglob("*") if p.suffix in (".pyx", ".pxd", ".pxi"))


def test_the_build_checks_bounds():
    found = [
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DIRECTIVES"
    ]
    assert [directives["boundscheck"] for directives in found] == [True]


@together("path", SOURCES)
def test_no_source_switches_the_check_off(path):
    for line in path.read_text().splitlines():
        assert not re.search(r"\bboundscheck\b", line), line


def test_an_index_out_of_bounds_is_an_error():
    times, none = np.arange(3, dtype=np.int64), np.empty(0, np.int64)
    with pytest.raises(IndexError):
        intervals.merge_sorted(times, times + 1, none, none)
