from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.making import collective, copy, kernel, make_run

from alltrace.cli.main import main

MS = 1_000_000
HAND_MADE = {
    0: {"kernels": [kernel(0, 40 * MS), collective(30 * MS, 60 * MS)], "copies": [copy(70 * MS, 80 * MS)]},
    1: {"kernels": [kernel(0, 50 * MS), collective(35 * MS, 60 * MS)]},
}


@dataclass
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path):
    """The path of a small run of two ranks; rank 2 has no report."""
    make_run(tmp_path / "run", HAND_MADE, missing=(2,), notes=("rank 2: no report",))
    return str(tmp_path / "run")


@pytest.fixture
def alltrace(capfd, tmp_path, monkeypatch):
    """Runs a command line in an empty folder and gives what it left."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    # a spawned process takes longer to start than these runs take to read
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0}, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*arguments):
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        return Done(code, *capfd.readouterr())

    return call
