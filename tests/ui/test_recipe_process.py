import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows

from alltrace.tiles.cancel import CancelledError, Token
from alltrace.trace.errors import UsageError
from alltrace.ui.recipe_process import Question, answer, comparison
from alltrace.ui.session import Session


def test_a_large_run_is_asked_in_a_process_of_its_own_with_the_same_answer(tmp_path, monkeypatch):
    make_run(tmp_path / "run", {0: rank_rows(), 1: rank_rows(5)})
    session = Session(tmp_path / "run", tmp_path / "scratch", 1)
    here = answer(session, Question("breakdown", {"span": "run"}, (1,), jobs=1))
    monkeypatch.setattr("alltrace.ui.recipe_process.LARGE_ROWS", 0)
    there = answer(session, Question("breakdown", {"span": "run"}, (1,), jobs=1))
    assert there.table.equals(here.table)
    assert there.table["compute_ns"].to_pylist() == [50_000]
    assert there.chart == here.chart
    with pytest.raises(UsageError, match="unknown option of breakdown 'x'"):
        answer(session, Question("breakdown", {"x": 1}))


@pytest.mark.parametrize("large", [False, True])
def test_how_far_a_question_is_comes_from_its_process(tmp_path, monkeypatch, large):
    make_run(tmp_path / "run", {r: rank_rows(r) for r in range(3)})
    session = Session(tmp_path / "run", tmp_path / "scratch", 1)
    monkeypatch.setattr("alltrace.ui.recipe_process.LARGE_ROWS", 0 if large else 1 << 60)
    done = []
    answer(session, Question("breakdown", jobs=1), progress=done.append)
    assert sum(done) == 3


@pytest.mark.slow
def test_large_runs_are_compared_in_a_process_of_their_own_with_the_same_answer(tmp_path, monkeypatch):
    more = rank_rows()
    more["kernels"] = [*more["kernels"], {**more["kernels"][0], "start": 100_000, "end": 160_000}]
    del more["copies"]
    for name, rows in (("a", rank_rows()), ("b", more)):
        make_run(tmp_path / name, {0: rows})
    first, second = (Session(tmp_path / n, tmp_path / "scratch", 1) for n in "ab")
    here = comparison(first, second, Question("diff", {"what": "kernel,copy"}, jobs=1))
    monkeypatch.setattr("alltrace.ui.recipe_process.LARGE_ROWS", 0)
    there = comparison(first, second, Question("diff", {"what": "kernel,copy"}, jobs=1))
    assert there.table.equals(here.table)
    found = {
        (r["what"], r["verdict"], r["count_a"], r["count_b"], r["total_change_ns"]) for r in here.table.to_pylist()
    }
    assert ("kernel", "slower", 1, 2, 60_000) in found
    assert ("copy", "only_a", 1, 0, -10_000) in found


def test_a_question_that_nobody_waits_for_is_ended_with_all_that_it_wrote(tmp_path, monkeypatch):
    make_run(tmp_path / "run", {0: rank_rows()})
    session = Session(tmp_path / "run", tmp_path / "scratch", 1)
    monkeypatch.setattr("alltrace.ui.recipe_process.LARGE_ROWS", 0)
    monkeypatch.setattr("alltrace.ui.recipe_process._ask", _write_and_go_on)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    token = Token()

    def leave():
        while not list((tmp_path / "tmp").glob("alltrace-ui-*/alltrace-parts-*/part")):
            time.sleep(0.02)
        token.cancel()

    threading.Thread(target=leave, daemon=True).start()
    with pytest.raises(CancelledError):
        answer(session, Question("breakdown"), token)
    assert list((tmp_path / "tmp").iterdir()) == []


def _write_and_go_on(*_):
    Path(tempfile.mkdtemp(prefix="alltrace-parts-"), "part").write_bytes(bytes(1000))
    time.sleep(600)


def test_findings_that_are_kept_with_the_run_need_no_process(tmp_path, monkeypatch):
    make_run(tmp_path / "run", {0: rank_rows(), 1: rank_rows(5)})
    session = Session(tmp_path / "run", tmp_path / "scratch", 1)
    session.prepare()
    first = answer(session, Question("diagnose", jobs=1))
    monkeypatch.setattr("alltrace.ui.recipe_process._answered_apart", lambda *_: pytest.fail("asked again"))
    again = Session(tmp_path / "run", tmp_path / "scratch", 1)
    again.prepare()
    found = answer(again, Question("diagnose", jobs=1))
    assert found.table.equals(first.table)
    assert found.notes == first.notes
