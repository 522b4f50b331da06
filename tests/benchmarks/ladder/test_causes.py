"""The causes: switches of one setting each."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.ladder.causes import CAUSES

EVERY = pytest.mark.parametrize("cause", CAUSES, ids=lambda c: c.name)


def test_each_has_a_name_of_its_own():
    assert len({c.name for c in CAUSES}) == len(CAUSES)


@EVERY
def test_one_setting_differs_and_a_finding_is_expected(cause):
    slow, fast = asdict(cause.slow), asdict(cause.fast)
    (changed,) = (name for name in slow if slow[name] != fast[name])
    assert cause.switch == f"{changed}: {slow[changed]} to {fast[changed]}"
    assert cause.kinds


def test_no_two_causes_are_the_same_switch():
    assert len({(c.slow, c.fast) for c in CAUSES}) == len(CAUSES)
