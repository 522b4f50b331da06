"""Tables are written into their place of a page, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.accuracy_page import write_table
from benchmarks.truth import TABLES

PAGE = "# Title\n\n<!-- table: a -->\nold\n<!-- end of table -->\n\ntext\n\n<!-- table: b -->\n<!-- end of table -->\n"


def test_only_the_named_table_is_replaced_and_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    for _ in range(2):
        write_table(page, "a", ["| x |", "|---|"])
        assert page.read_text() == PAGE.replace("\nold\n", "\n\n| x |\n|---|\n\n", 1)
    write_table(page, "b", ["y"])
    assert page.read_text().count("<!-- end of table -->") == 2
    assert page.read_text().index("y") > page.read_text().index("text")


@pytest.mark.parametrize("text", ["", "<!-- table: b -->\n<!-- end of table -->\n", "<!-- table: a -->\n"])
def test_a_page_without_the_place_stays_as_it_is(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(SystemExit, match="expected the line <!-- table: a -->"):
        write_table(page, "a", ["x"])
    assert page.read_text() == text


def test_a_page_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"none\.md: No such file or directory"):
        write_table(tmp_path / "none.md", "a", ["x"])


def test_the_page_has_a_place_for_each_table_that_is_written():
    root = Path(__file__).resolve().parents[2]
    sources = "".join(p.read_text(encoding="utf-8") for p in (root / "benchmarks").rglob("*.py"))
    written = set(re.findall(r'write_table\(\w[\w.]*, "([^"]+)"', sources))
    assert len(written) > 1
    written.update(TABLES.values())
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- table: (.+) -->", page)) == written
