"""The source, its comments and the documentation have no unclear phrases; each pattern has what to write instead.

The list comes from reviews: phrases in messages, pages and comments that readers found hard to follow.
"""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tests.together import together

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    *sorted(f for f in (ROOT / "src").rglob("*") if f.suffix in (".py", ".pyi", ".pyx", ".pxd", ".sh", ".js")),
    *sorted(f for folder in ("benchmarks", "tools") for f in (ROOT / folder).rglob("*.py")),
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
    (r"\bnothing tells\b", "it is unknown"),
    (r"\bas the log tells\b", "as logged"),
    (r"\bwhat it cannot tell\b", "Limitations"),
    (r"\bcannot be listened on\b", "cannot listen on HOST:PORT"),
    (r"\blies in\b", "is in"),
    (r"\btakes no jobs\b", "rejected the job"),
    (r"\ba table without a picture\b", "has no chart"),
    (r"\bwas the end of\b", "killed"),
    (r"\b(away|% away) from it\b", "the error is"),
    (r"\bcome to its end\b|\bto their end\b", "has finished"),
    (r"\bmake room\b", "free some space"),
    (r"\bask it (again|without)\b", "run it again, leave out ..."),
    (r"\bthereof\b|\bwherein\b", "of it, in which"),
    (r"\bis had\b", "exists, is available"),
    (r"\bwho meets whom\b", "which ranks communicate"),
    (r"\bbeside (a|an|the|this|that|these|it|its|them|their|those|other|others|each)\b", "next to, in addition to"),
    (
        r"\bstands? for\b|\bstands? (in|between|behind|beside) (the|it|its|them|a)\b",
        "means, represents, is in, follows",
    ),
    (r"\broom to work in\b", "scratch space"),
    (r"\btold apart\b|\btells? (\w+ ){1,3}apart\b", "distinguishes, identifies"),
    (r"\bwhat tells\b|\bthat tells? (whether|how|which|what|where)\b", "what shows, states, identifies"),
    (r"\b(is|are|was) told (of|the|each|whether|what|how)\b", "gets, is called with"),
    (r"\bdo(es)? not tell\b", "does not state"),
    (r"\bas (\w+ ){1,3}tells?\b", "as reported by, from"),
    (
        r"\b(after|by|from|of|in|up to|at most|below|above|every|about|only) so (many|much|long)\b",
        "this many, a number of",
    ),
    (r"\bwhole or not at all\b", "completely or not at all"),
    (r"\bheld against\b", "compared with"),
    (r"\bwhose records are lost\b", "with possibly lost records"),
    (r"\bfor want\b|\bnow and then\b", "for lack, sometimes"),
    (r"\bmade anew\b|\bfound anew\b|\bread anew\b|\bdrawn anew\b", "computed again"),
    (r"(?<!\w)(None|null|empty|NaN|-1) where (it|there|that|they|none|no|not|the|a|nothing|all|unknown)\b", "None if"),
    (r"\bas people (call|read|write|see)\b|\bwhat people call\b", "in readable form, common"),
    (r"\bthe (job|machine|compute) at hand\b", "this machine, the available compute"),
    (r"\bas nsys has it\b", "in nsys"),
    (r"\blet go of\b", "released"),
)


def stumbles(text):
    """The lines of a text with one of the phrases, as (line, phrase found, what to write)."""
    return sorted(
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead)
        for pattern, instead in PHRASES
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE)
    )


def suspects(texts):
    """Whether each text may have one of the phrases: all patterns at once, as RE2 looks for them, which knows no
    looking around."""
    patterns = "|".join(f"(?:{re.sub(r'[(][?]<?!.*?[)]', '', pattern)})" for pattern, _ in PHRASES).replace(" ", r"\s+")
    return pc.match_substring_regex(pa.array(texts), patterns, ignore_case=True).to_pylist()


@together("pattern", [p for p, _ in PHRASES])
def test_each_pattern_can_be_read(pattern):
    assert not re.search(pattern, "")


def test_a_phrase_is_found_over_the_end_of_a_line():
    assert stumbles("a\nit is told\nby the log\n") == [(2, "is told by", "is detected by, is reported by")]
    assert stumbles("it is not a list; there is no list") == []


@together(
    ("text", "phrase"),
    [
        ("# a file beside the report", "beside the"),
        ("# 0 stands for none", "stands for"),
        ("# every read stands behind a check", "stands behind a"),
        ("# the number tells the two apart", "tells the two apart"),
        ("# after so many steps", "after so many"),
        ("# written whole or not at all", "whole or not at all"),
        ("# None where there is none", "None where there"),
        ("# a number; -1 where unknown", "-1 where unknown"),
        ("# as the log tells", "as the log tells"),
    ],
)
def test_a_phrase_in_a_comment_is_found(text, phrase):
    assert [found for _, found, _ in stumbles(text)][:1] == [phrase]
    assert suspects([text, "plain words"]) == [True, False]


def test_usual_words_are_not_found():
    assert stumbles("it stands still; so many that; one is told; tell the server; where there is a report; own") == []


def test_compiled_modules_are_read_too():
    assert {"nccl_log.pyx", "fnv.pxd"} <= {path.name for path in FILES}


def test_the_source_and_the_documentation_have_none_of_them():
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}; write: {instead}"
        for path, text, suspect in zip(FILES, texts, suspects(texts), strict=True)
        if suspect
        for line, phrase, instead in stumbles(text)
    ]
    assert not found, "\n".join(found)
