"""The changes that mutation tests make, and what becomes of them."""

from __future__ import annotations

import pytest

from tests import mutation
from tests.mutation import PACKAGE, ROOT, TARGETS, Mutant, Tree, changed, core_mutants, mutants

SOURCE = '''
LIMIT = 5


def f(é: int = 3) -> int:
    """Text with 1 < 2."""
    if é < 10 and (é + 2) * 3 >= min(é, 7):
        return "ä", é - 1
    return max(é // 2, 0)
'''


def test_each_rule_changes_its_places():
    found = mutants("x.py", SOURCE, ("t",))
    assert [(m.line, m.old, m.new) for m in found] == [
        (7, "<", "<="), (7, "10", "11"), (7, "and", "or"), (7, "+", "-"), (7, "2", "3"), (7, "*", "+"), (7, "3", "4"),
        (7, ">=", ">"), (7, "min", "max"), (7, "7", "8"), (8, "-", "+"), (8, "1", "2"),
        (9, "max", "min"), (9, "//", "*"), (9, "2", "3"), (9, "0", "1"),
    ]  # fmt: skip
    texts = [changed(SOURCE, m) for m in found]
    assert len(set(texts)) == len(found)
    assert "é - 2) * 3" in texts[3]
    assert '"ä", é + 1' in texts[10]
    for text in texts:
        compile(text, "x.py", "exec")


def test_every_place_and_every_test_is_there():
    for file, tests in TARGETS.items():
        source = (ROOT / PACKAGE / file).read_text(encoding="utf-8")
        found = mutants(file, source, tests)
        assert found, file
        for m in found:
            assert source[m.start : m.start + len(m.old)] == m.old
        assert all((ROOT / t).exists() for t in tests)
    assert len(core_mutants()) == len(mutation.CORE)


def test_a_change_of_the_list_that_the_source_does_not_have_is_refused(monkeypatch):
    monkeypatch.setattr(mutation, "CORE", (mutation.CoreEdit("core/graphs.pyx", "no such line", "", ()),))
    with pytest.raises(ValueError, match=r"changes 'no such line', which core/graphs.pyx has 0 times"):
        core_mutants()


def test_a_change_is_taken_back_and_the_checkout_is_not_touched(tmp_path):
    tree = Tree(tmp_path)
    here, copy = (folder / PACKAGE / "replay" / "slowdown.py" for folder in (ROOT, tmp_path))
    before = here.read_text(encoding="utf-8")
    test = tmp_path / "tests" / "test_one.py"
    loaded = f"assert slowdown.__file__.startswith({str(tmp_path)!r})"
    test.write_text(f"from alltrace.replay import slowdown\n\n\ndef test_it():\n    {loaded}\n")
    at = before.index("from __future__")
    line = Mutant("replay/slowdown.py", 1, at, "from __future__", "from __future_", ("tests/test_one.py",))
    assert tree.tested(line.tests, 60) == "survived"
    assert tree.judged(line, 60) == "killed"
    assert here.read_text(encoding="utf-8") == copy.read_text(encoding="utf-8") == before
    assert tree.judged(line._replace(new=line.old), 60) == "survived"
