"""The changes that mutation tests make, which tests judge them, and what becomes of them."""

import json
import os
import subprocess

import pytest
from coverage import CoverageData

from tests.mutation import contexts, places
from tests.mutation.__main__ import main
from tests.mutation.contexts import Contexts, chosen_tests, mirrors
from tests.mutation.judging import Tree
from tests.mutation.places import PACKAGE, ROOT, Place, all_places, changed_lines, core_places

SOURCE = '''
LIMIT = 5


def f(é: int = 3) -> int:
    """Text with 1 < 2."""
    x: tuple[1] = not é
    if é < 10 and (é + 2) * 3 >= min(é, 7):
        return "ä", é - 1
    list(zip(é, é, strict=True))
    return max(é // 2, 0) if x is True else é in zeros(é & 1)
'''


def test_each_rule_changes_its_places():
    allowed = places.places("x.py", SOURCE)
    assert [(p.line, p.old, p.new) for p in allowed] == [
        (7, "not ", ""), (8, "<", "<="), (8, "10", "11"), (8, "and", "or"), (8, "+", "-"), (8, "2", "3"), (8, "*", "+"),
        (8, "3", "4"), (8, ">=", ">"), (8, "min", "max"), (8, "7", "8"), (9, "-", "+"), (9, "1", "2"),
        (11, "max", "min"), (11, "//", "*"), (11, "2", "3"), (11, "0", "1"), (11, "is", "is not"),
        (11, "True", "False"), (11, "in", "not in"), (11, "zeros", "ones"), (11, "&", "|"), (11, "1", "2"),
    ]  # fmt: skip
    texts = [p.applied(SOURCE) for p in allowed]
    assert len(set(texts)) == len(allowed)
    assert "é - 2) * 3" in texts[4]
    assert '"ä", é + 1' in texts[11]
    for text in texts:
        compile(text, "x.py", "exec")


def test_places_are_where_they_say():
    drawn = [*all_places(("replay/", "recipes/questions/")), *core_places()]
    assert {p.file.partition("/")[0] for p in drawn} == {"replay", "recipes", "core"}
    for place in drawn:
        source = (ROOT / PACKAGE / place.file).read_text(encoding="utf-8")
        assert source[place.start : place.start + len(place.old)] == place.old
        assert source.count("\n", 0, place.start) == place.line - 1


def test_a_change_of_the_list_that_the_source_does_not_have_is_refused(monkeypatch):
    monkeypatch.setattr(places, "CORE", (("core/graphs.pyx", "no such line", ""),))
    with pytest.raises(ValueError, match=r"changes 'no such line', which core/graphs.pyx has 0 times"):
        core_places()


def test_lines_that_changed_since_a_commit(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True
        )

    module = tmp_path / PACKAGE / "a" / "b.py"
    module.parent.mkdir(parents=True)
    module.write_text("one\ntwo\nthree\nfour\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    module.write_text("one\nTWO\nthree\nfour\nfive\nsix\n")
    assert changed_lines("HEAD", tmp_path) == {("a/b.py", 2), ("a/b.py", 5), ("a/b.py", 6)}
    module.write_text("one\nfour\n")
    assert changed_lines("HEAD", tmp_path) == set()


def test_files_that_mirror_a_module(tmp_path):
    texts = {
        f"{PACKAGE}/a/own.py": "",
        f"{PACKAGE}/a/read.py": "",
        f"{PACKAGE}/a/inner.py": "",
        f"{PACKAGE}/a/user.py": "from alltrace.a.inner import f",
        f"{PACKAGE}/a/unknown.py": "",
        "tests/a/test_own.py": "",
        "tests/a/test_own_more.py": "",
        "tests/a/test_other.py": "from alltrace.a import (\n    read,\n)",
        "tests/a/test_user.py": "from alltrace.a.readers import x",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert mirrors("a/own.py", tmp_path) == ["tests/a/test_own.py", "tests/a/test_own_more.py"]
    assert mirrors("a/read.py", tmp_path) == ["tests/a/test_other.py"]
    assert mirrors("a/inner.py", tmp_path) == ["tests/a/test_user.py"]
    assert mirrors("a/unknown.py", tmp_path) == [f"tests/a/test_{n}.py" for n in ("other", "own", "own_more", "user")]


def test_every_module_with_places_has_files_that_mirror_it():
    files = {p.relative_to(ROOT / PACKAGE).as_posix() for p in (ROOT / PACKAGE / "recipes").rglob("*.py")}
    assert [f for f in files if not mirrors(f)] == []


def test_tests_that_execute_a_line_judge_it_near_and_quick_ones_first(tmp_path, monkeypatch):
    module, near = "a/b.py", "tests/a/test_b.py"
    (tmp_path / PACKAGE / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / near).write_text("")
    os.utime(tmp_path / near, (0, 0))
    (tmp_path / PACKAGE / module).write_text("new\none\nx = (1,\n  2)\nlast\n")
    record = tmp_path / "record"
    (record / "source" / "a").mkdir(parents=True)
    (record / "source" / module).write_text("one\nx = (1,\n  2)\nlast\n")
    seconds = {f"{near}::slow": 9.0, f"{near}::quick": 1.0, "tests/c/test_d.py::t": 2.0, "tests/c/test_d.py::u": 3.0}
    (record / "durations.json").write_text(json.dumps(seconds))
    data = CoverageData(str(record / "coverage"))
    for context, lines in (("tests/c/test_d.py::t|run", [2]), ("tests/c/test_d.py::u|setup", [1]), ("", [4])):
        data.set_context(context)
        data.add_lines({f"{PACKAGE}/{module}": lines})
    data.write()
    monkeypatch.setattr(contexts, "ROOT", tmp_path)
    monkeypatch.setattr(mirrors, "__defaults__", (tmp_path,))
    kept = Contexts(record)
    assert kept.of_line(module, 4) == {"tests/c/test_d.py::t"}  # of a statement, the first line is executed
    assert kept.of_line(module, 2) == {
        "tests/c/test_d.py::t",
        "tests/c/test_d.py::u",
    }  # a fixture of one is that of its file
    assert kept.of_line(module, 5) == kept.of_line("a/new.py", 1) == set()
    assert chosen_tests(module, 4, kept, 60.0) == [f"{near}::quick", f"{near}::slow", "tests/c/test_d.py::t"]
    assert chosen_tests(module, 4, kept, 5.0) == [f"{near}::quick"]
    assert chosen_tests(module, 4, None, 5.0) == [near]
    os.utime(tmp_path / near)  # it was written after the record: all its tests
    assert chosen_tests(module, 4, kept, 60.0) == [near, "tests/c/test_d.py::t"]


@pytest.mark.slow
def test_one_run_of_tests_says_which_of_them_execute_a_line(tmp_path):
    module = "trace/intervals.py"
    contexts.record(tmp_path / "record", ("tests/trace/test_intervals.py",))
    kept = Contexts(tmp_path / "record")
    assert set(kept.seconds) == set(kept.of_file("tests/trace/test_intervals.py"))
    source = (ROOT / PACKAGE / module).read_text(encoding="utf-8").splitlines()
    tests = [kept.of_line(module, number) for number in range(1, len(source) + 1)]
    assert set().union(*tests) <= set(kept.seconds)
    assert any(0 < len(its) < len(kept.seconds) for its in tests)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.slow
def test_a_change_is_taken_back_and_the_checkout_is_not_touched(tree):
    here, copy = (folder / PACKAGE / "replay" / "slowdown.py" for folder in (ROOT, tree.folder))
    before = here.read_text(encoding="utf-8")
    loaded = f"assert slowdown.__file__.startswith({str(tree.folder)!r})"
    text = (
        f"def test_it():\n    from alltrace.replay import slowdown\n    {loaded}\n\n\ndef test_bad():\n    assert"
        " False\n"
    )
    (tree.folder / "tests" / "test_one.py").write_text(text)
    line = Place("replay/slowdown.py", 1, before.index("from __future__"), "from __future__", "from __future_")
    good, bad = ["tests/test_one.py::test_it"], ["tests/test_one.py::test_bad"]
    assert tree.judged(line, good, 60) == "killed"
    assert here.read_text(encoding="utf-8") == copy.read_text(encoding="utf-8") == before
    assert tree.judged(line._replace(new=line.old), good, 60) == "survived"
    assert tree.judged(line._replace(new=line.old), bad, 60) == "unsure"
    assert tree.judged(line, [], 60) == tree.judged(line, ["tests/test_gone.py::test_it"], 60) == "untested"


def test_tests_that_do_not_end_are_ended(tree):
    (tree.folder / "tests" / "test_endless.py").write_text("def test_it():\n    while True:\n        pass\n")
    assert tree.tested(["tests/test_endless.py"], 3) == "timeout"


def test_a_commit_that_is_not_there_is_said(capsys):
    assert main(["--since", "0" * 40]) == 3
    assert (
        "what has changed since 0000000000000000000000000000000000000000 is not known: fatal: bad object"
        in capsys.readouterr().err
    )
