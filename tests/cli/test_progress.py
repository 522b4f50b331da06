from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

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


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(tmp_path):
    write_run("tiny", tmp_path / "reports")
    plain, silent = drawn(tmp_path, on_terminal=False)
    output, bar = drawn(tmp_path, on_terminal=True)
    assert output == plain
    assert b"importing, " in bar
    assert b"of 2 ranks" in bar
    assert b"\x1b[" in bar
    assert b"importing" not in silent
    assert b"\x1b" not in silent
