import io
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from alltrace.cli import progress
from alltrace.cli.main import main
from alltrace.synth import write_run


def drawn(folder, *, on_terminal):
    """What `info` of fresh reports writes: standard output, standard error, exit code."""
    line = [sys.executable, "-m", "alltrace.cli.main", "info", str(folder / "reports"), "--format", "csv"]
    line += ["--cache-dir", str(folder / f"cache-{on_terminal}"), "--jobs", "1"]
    if not on_terminal:
        done = subprocess.run(line, capture_output=True, check=True)
        return done.stdout, done.stderr
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=child, env=environment)
    os.close(child)
    seen, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([parent], [], [], 0.2)
        if ready:
            try:
                seen += os.read(parent, 65536)
            except OSError:  # the terminal's last writer is gone
                break
    os.close(parent)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    return output, seen


@pytest.mark.slow
def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(tmp_path):
    write_run("tiny", tmp_path / "reports", ideal=True)
    plain, silent = drawn(tmp_path, on_terminal=False)
    output, bar = drawn(tmp_path, on_terminal=True)
    assert output == plain
    assert b"importing, " in bar
    assert b"of 2 ranks" in bar
    assert b"\x1b[" in bar
    assert b"importing" not in silent
    assert b"\x1b" not in silent


def as_terminal(monkeypatch):
    """What is written to standard error, as if it were a terminal of 80 columns."""
    text = io.StringIO()
    monkeypatch.setattr(text, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return text


def test_an_import_is_whole_when_its_ranks_are_done_whatever_was_estimated(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with progress.watching() as bar:
        bar.looking()
        bar.planned(2, 100)
        bar.advance(50)
        bar.rank_done(1)
        assert "100%" not in terminal.getvalue()
        bar.advance(44)
        bar.rank_done(1)
    assert "importing, 2 of 2 ranks" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_each_stage_that_did_something_has_a_bar(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SOON_S", 0.0)
    with progress.stages(8) as advance_of:
        asking, aligning, _idle = (advance_of(s) for s in ("diagnose", "aligning clocks", "idle"))
        aligning(5)
        aligning(4)  # more than there are
        asking(3)
    shown = terminal.getvalue()
    assert "aligning clocks, ranks" in shown
    assert "8/8" in shown
    assert "diagnose, ranks" in shown
    assert "3/8" in shown
    assert "idle" not in shown


def test_no_bar_of_what_is_soon_done(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with progress.stages(8) as advance_of:
        advance_of("aligning clocks")(8)
    assert terminal.getvalue() == ""


def test_a_bar_is_there_before_the_first_rank_is_done(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SOON_S", 0.0)
    with progress.stages(1) as advance_of:
        asking, _aligning = (advance_of(stage) for stage in ("diagnose", "aligning clocks"))
        until = time.monotonic() + 10
        while "working" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        assert "working" in terminal.getvalue()
        assert "ranks" not in terminal.getvalue()  # no stage is named that may not have begun
        terminal.truncate(0)
        asking(1)
    assert "diagnose, ranks" in terminal.getvalue()
    assert "1/1" in terminal.getvalue()
    assert "working" not in terminal.getvalue().rpartition("diagnose")[2]
    assert "aligning clocks" not in terminal.getvalue()


def test_the_time_of_a_stage_ends_with_its_last_rank(monkeypatch):
    as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SOON_S", 0.0)
    bars = progress._Stages(2)
    bars.advance_of("aligning clocks")(2)
    bars.advance_of("diagnose")(1)
    ended = {bar.description: bar.stop_time is not None for bar in bars._progress.tasks}
    bars.close()
    assert ended == {"aligning clocks, ranks": True, "diagnose, ranks": False}


def test_questions_show_how_far_clocks_and_ranks_are(monkeypatch, tmp_path):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SOON_S", 0.0)
    write_run("tiny", tmp_path / "reports", ideal=True)
    for verb in ("stragglers", "export"):
        output = ["-o", str(tmp_path / f"{verb}.{'prv' if verb == 'export' else 'csv'}")]
        arguments = [*(["paraver"] if verb == "export" else []), str(tmp_path / "reports"), *output]
        assert main([verb, *arguments, "--cache-dir", str(tmp_path / verb)]) == 0
        assert "aligning clocks, ranks" in terminal.getvalue()
        assert "2/2" in terminal.getvalue()
        assert ("stragglers, ranks" in terminal.getvalue()) == (verb == "stragglers")
        terminal.truncate(0)


def test_all_recipes_show_how_far_clocks_and_ranks_are(monkeypatch, tmp_path):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SOON_S", 0.0)
    write_run("tiny", tmp_path / "reports", ideal=True)
    chosen = ["--recipes", "stragglers,breakdown", "-o", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "cache")]
    assert main(["recipe", "all", str(tmp_path / "reports"), *chosen]) == 0
    assert "aligning clocks, ranks" in terminal.getvalue()
    assert "asking, ranks" in terminal.getvalue()
