"""Phrases that stumble stand nowhere in the source or the documentation, each with what to write instead.

The list is a reviewer's: what readers of messages and pages found hard to follow. A pattern is added when a review finds the next.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    *sorted(f for f in (ROOT / "src").rglob("*") if f.suffix in (".py", ".pyi", ".sh")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]

PHRASES = (
    (
        r"\b(?!there\b)\S+ (is|are|was|were) no (valid )?(regular expression|json|toml|csv|utf-8|number|list|url)\b",
        "is not a valid ...",
    ),
    (r"\bwhich is no\b|\bit is no\b", "is not a ..."),
    (r"\b(is|are) told by\b", "is detected by, is reported by"),
    (r"\b(is|are) told (even|where)\b", "is reported even if"),
    (r"\bless is not (told|reported)\b", "smaller losses are not reported"),
    (r"\btells of\b", "describes, reports"),
    (r"\b(does|do) not tell(?=[.,;:)\"])", "does not say, is unknown"),
    (r"\bnothing tells\b", "it is unknown"),
    (r"\bas the log tells\b", "as logged"),
    (r"\bwhat it cannot tell\b", "Limitations"),
    (r"\bcannot be listened on\b", "cannot listen on HOST:PORT"),
    (r"\blies in\b", "is in"),
    (r"\btakes no jobs\b", "rejected the job"),
    (r"\ba table without a picture\b", "has no chart"),
    (r"\bwas the end of\b", "killed"),
    (r"\bfor want of\b", "for lack of"),
    (r"\b(away|% away) from it\b", "the error is"),
    (r"\bcome to its end\b|\bto their end\b", "has finished"),
    (r"\bmake room\b", "free some space"),
    (r"\bask it (again|without)\b", "run it again, leave out ..."),
    (r"\bthereof\b|\bwherein\b", "of it, in which"),
    (r"\bis had\b", "exists, is available"),
    (r"\bwho meets whom\b", "which ranks communicate"),
)


def stumbles(text):
    """The lines of a text with one of the phrases, as (line, phrase found, what to write)."""
    return sorted(
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead)
        for pattern, instead in PHRASES
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE)
    )


@pytest.mark.parametrize("pattern", [p for p, _ in PHRASES])
def test_each_pattern_can_be_read(pattern):
    assert not re.search(pattern, "")


def test_a_phrase_is_found_over_the_end_of_a_line():
    assert stumbles("a\nit is told\nby the log\n") == [(2, "is told by", "is detected by, is reported by")]
    assert stumbles("it is not a list; there is no list") == []


def test_the_source_and_the_documentation_have_none_of_them():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}; write: {instead}"
        for path in FILES
        for line, phrase, instead in stumbles(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
