from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.capture.scripts.yaml import documents

yaml = pytest.importorskip("yaml")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "yes",
        "null",
        "1e3",
        "0x1",
        "1:2",
        "a: b",
        "# x",
        "- a",
        "a\n",
        "\na",
        " a\nb",
        "a\n\n",
        "a\n  b\n",
        "\ta\n",
        "|",
        "~",
        "a\n\nb",
        "\x85",
        "\u2028\n",
    ]
)
TREE = st.recursive(
    TEXT | st.booleans() | st.integers(-(10**9), 10**9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, TREE, min_size=1, max_size=4))
def test_what_is_written_is_read_back(tree):
    assert list(yaml.safe_load_all(documents(["a head", "of\nlines"], [tree]))) == [tree]


def test_scripts_stay_readable_and_documents_are_parted():
    text = documents(["head"], [{"a": "x: 1\n  y\n"}, {"b": [{"c": 1, "d": []}, "e f"]}])
    assert text == '# head\na: |\n  x: 1\n    y\n---\nb:\n  - c: 1\n    d: []\n  - "e f"\n'
