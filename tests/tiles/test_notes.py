import json

import pytest
from tests.making import kernel, make_run

from alltrace.run.store import Run
from alltrace.tiles.notes import FILE, Notes
from alltrace.trace.errors import AlltraceError, UsageError

NOTE = {"text": " slow here ", "start": 5, "end": 9, "ranks": [3, 1]}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    make_run(tmp_path / "run", {r: {"kernels": [kernel(0, 9)]} for r in range(4)})
    return Run(tmp_path / "run")


def test_notes_are_kept_beside_the_run_and_come_by_start(run):
    notes = Notes(run)
    assert notes.all() == []
    notes.add(NOTE)
    found = notes.add({"text": "first", "start": 0, "end": 0, "ranks": []})
    assert [(n["id"], n["text"], n["ranks"]) for n in found] == [(2, "first", []), (1, "slow here", [1, 3])]
    assert Notes(Run(run.path)).all() == found
    assert (run.path / FILE).is_file()
    assert notes.remove(2) == found[1:]
    assert [n["id"] for n in notes.add(NOTE)] == [1, 2]
    with pytest.raises(UsageError, match="unknown note 9"):
        notes.remove(9)


def test_of_a_run_that_cannot_be_written_they_are_in_the_cache(run, monkeypatch):
    monkeypatch.setattr("alltrace.tiles.notes.os.access", lambda *_: False)
    Notes(run).add(NOTE)
    assert not (run.path / FILE).exists()
    assert [n["text"] for n in Notes(Run(run.path)).all()] == ["slow here"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "  "}, "expected 1 to 2000 characters"),
        ({"text": "x" * 2001}, "expected 1 to 2000 characters"),
        ({"text": 5}, "expected 1 to 2000 characters"),
        ({"start": 10}, "the start first"),
        ({"end": 1.5}, "whole ns"),
        ({"start": True}, "whole ns"),
        ({"end": 1 << 70}, "whole ns"),
        ({"ranks": None}, "a list of 64 ranks"),
        ({"ranks": ["x"]}, "a list of 64 ranks"),
    ],
)
def test_what_is_no_note_is_refused_and_nothing_is_written(run, change, message):
    with pytest.raises(UsageError, match=message):
        Notes(run).add(NOTE | change)
    assert not (run.path / FILE).exists()


def test_too_many_and_a_damaged_file_are_said(run, monkeypatch):
    monkeypatch.setattr("alltrace.tiles.notes.MOST_NOTES", 1)
    notes = Notes(run)
    notes.add(NOTE)
    with pytest.raises(UsageError, match="has 1 notes"):
        notes.add(NOTE)
    path = run.path / FILE
    path.write_text(path.read_text().replace("slow", "fast"))
    with pytest.raises(AlltraceError, match="damaged"):
        notes.all()
    path.write_text(json.dumps({"notes": 5}))
    with pytest.raises(AlltraceError, match=r"damaged|does not contain notes"):
        notes.add(NOTE)
    assert json.loads(path.read_text()) == {"notes": 5}
