"""Replays against results that others published for real jobs."""

from __future__ import annotations

import pytest

from benchmarks.accuracy_whatif import compare

pytestmark = pytest.mark.corpus


@pytest.mark.parametrize("name", ["AR", "SE"])
def test_slowdowns_are_those_that_were_published(corpus, name):
    figures, _ = compare(corpus / "what-if", name)
    assert len(figures) > 60
    assert {f.name for f in figures if f.error > 1e-5} == set()
