"""Two of the endings, and that the manual lists all; `python -m tests.capture.endings` runs them all."""

import sys

import pytest
from tests.capture.endings import BEGIN, END, ENDINGS, LAUNCHERS, ROOT, lacking, play

BLOCKED = next(e for e in ENDINGS if "barrier" in e.name)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="profilers are wrapped on Linux")
@pytest.mark.parametrize("launcher", BLOCKED.launchers)
def test_a_rank_that_fails_while_the_others_are_in_a_barrier(bare_environment, nsys, tmp_path, launcher):
    why = lacking(launcher)
    if why is not None:
        pytest.skip(why)
    pytest.importorskip("nvtx")
    (tmp_path / "job").mkdir()
    got = play(BLOCKED, launcher, tmp_path / "job", nsys)
    assert got.home == BLOCKED.home, got.said
    assert got.left == ()
    assert got.seconds < 30
    assert got.code != 0


def test_the_manual_tells_of_every_ending_what_must_come_home():
    text = (ROOT / "docs" / "capture.md").read_text()
    lines = text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    rows = {tuple(cells[:2]): cells[2:] for line in lines if (cells := [c.strip() for c in line.strip("|").split("|")])}
    assert list(rows) == [(e.name, LAUNCHERS[la]) for e in ENDINGS for la in e.launchers]
    for ending in ENDINGS:
        for launcher in ending.launchers:
            home, seconds, left = map(int, rows[ending.name, LAUNCHERS[launcher]])
            assert home >= (0 if launcher in ending.lost else ending.home)
            assert seconds < 30
            assert left == 0
