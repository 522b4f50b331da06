"""Nothing is said twice in the documentation: two versions of a paragraph stay where a change was merged twice."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
_ALIKE = 0.6  # of the pairs of words of the shorter one


def said_twice(text: str) -> list[str]:
    """The sentences and paragraphs of a page that stand twice below one heading, alike or nearly so."""
    found = []
    for section in re.split(r"(?m)^#+ ", re.sub(r"(?ms)^```.*?^```", "", text)):
        lines = [line for line in section.split("\n")[1:] if not line.startswith(("|", "<!--", "    "))]
        sentences = [
            s for s in re.split(r"(?<=[.:])\s+", " ".join(lines)) if len(s) > 20 and not s.startswith("Example")
        ]
        found += [s for n, s in enumerate(sentences) if s in sentences[:n]]
        long = [(s, set(pairwise(s.lower().split()))) for s in sentences if len(s.split()) > 9]
        for n, (one, pairs) in enumerate(long):
            found += [one for _, other in long[:n] if len(pairs & other) > _ALIKE * min(len(pairs), len(other))]
    return found


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_no_paragraph_stands_twice(page):
    assert said_twice(page.read_text(encoding="utf-8")) == []


def test_two_versions_of_a_sentence_are_found():
    one = "The page needs no network and no server: charts, data and the script that draws them travel inside."
    other = "The page needs no network and no server: all charts, data and the script that draws them are inside."
    assert said_twice(f"# A\n{one}\n{other}\n")
    assert not said_twice(f"# A\n{one}\n# B\n{one}\n")
