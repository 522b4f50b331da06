"""The causes: switches of one setting each."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest

from alltrace.recipes.terms import KIND_MEANINGS
from benchmarks.ladder.causes import CAUSES
from benchmarks.ladder.measuring import ROOT

EVERY = pytest.mark.parametrize("cause", CAUSES, ids=lambda c: c.name)


def test_each_has_a_name_of_its_own():
    assert len({c.name for c in CAUSES}) == len(CAUSES)


@EVERY
def test_one_setting_differs_and_a_finding_is_expected(cause):
    slow, fast = asdict(cause.slow), asdict(cause.fast)
    (changed,) = (name for name in slow if slow[name] != fast[name])
    assert cause.switch == f"{changed}: {slow[changed]} to {fast[changed]}"
    assert cause.kinds
    assert set(cause.kinds) <= set(KIND_MEANINGS)


def test_no_two_causes_are_the_same_switch():
    assert len({(c.slow, c.fast) for c in CAUSES}) == len(CAUSES)


def test_the_page_describes_each_cause_with_its_kinds():
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    table = page.partition("| cause | slow side | fast side | should be first |\n")[2].partition("\n\n")[0]
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]
    assert [(name, tuple(kinds)) for (name,), *_, kinds in rows] == [(c.name, c.kinds) for c in CAUSES]
