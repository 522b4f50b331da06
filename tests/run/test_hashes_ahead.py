from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alltrace.run import hashes_ahead
from alltrace.run.contents import content_hash, file_stamps
from alltrace.run.manifest import read_manifest
from alltrace.synth import write_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there is hashed ahead")

REFUSING = (
    "import os, sys; from pathlib import Path; from alltrace.run import contents, hashes_ahead\n"
    "def refused(path, **how): raise SystemExit(f'{path} was hashed here')\n"
    "hashes_ahead.start(['stats', *sys.argv[2:]], sys.argv[1])\n"
    "hashed, contents.content_hash = contents.content_hash, refused\n"
)


def large(path: Path, size: int = 17 << 20) -> Path:
    """A file that says it is an export, with a hole in it."""
    with path.open("wb") as file:
        file.write(b"SQLite format 3\x00")
        file.truncate(size)
        file.seek(size - 1)
        file.write(b"x")
    return path


def in_process(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_process_hashes_files_and_what_lies_in_folders(tmp_path):
    (tmp_path / "more").mkdir()
    reports = [large(tmp_path / "a.sqlite"), large(tmp_path / "more" / "b\n'é.sqlite", 18 << 20)]
    code = REFUSING + (
        "for path in sys.argv[2], next(os.scandir(sys.argv[3])).path: print(*hashes_ahead.content_hash(Path(path)))\n"
        "hashes_ahead.end(); hashes_ahead.end()\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: print('none left')\n"
    )
    said = in_process(code, tmp_path / "hashes.json", reports[0], tmp_path / "more")
    assert said.splitlines() == [*(" ".join(map(str, content_hash(r))) for r in reports), "none left"]
    assert said.startswith(f"{17 << 20} ")


def test_a_file_that_changed_meanwhile_is_hashed_anew(tmp_path):
    report = large(tmp_path / "a.sqlite")
    code = REFUSING + (
        "path = Path(sys.argv[2]); hashes_ahead.content_hash(path); contents.content_hash = hashed\n"
        "with path.open('ab') as file: file.write(b'more')\n"
        "print(*hashes_ahead.content_hash(path)); hashes_ahead.end()\n"
    )
    assert in_process(code, tmp_path / "hashes.json", report).split() == [str(n) for n in content_hash(report)]
    assert report.stat().st_size == (17 << 20) + 4


def test_a_file_that_is_cut_short_while_it_is_hashed_is_hashed_anew(tmp_path):
    """What is mapped is gone then, and so is the process that looks at it."""
    report = large(tmp_path / "a.sqlite")
    code = (
        "import os, sys; from pathlib import Path; from alltrace.run import contents, hashes_ahead\n"
        "mapped = contents._mapped\n"
        "def cut(source):\n"
        "    for piece in mapped(source):\n"
        "        os.truncate(sys.argv[2], 8192)\n"
        "        yield piece\n"
        "contents._mapped = cut\n"
        "hashes_ahead.start(['stats', sys.argv[2]], sys.argv[1])\n"
        "print(*hashes_ahead.content_hash(Path(sys.argv[2]))); hashes_ahead.end()\n"
    )
    assert in_process(code, tmp_path / "hashes.json", report).split() == [str(n) for n in content_hash(report)]
    assert report.stat().st_size == 8192


def test_what_is_remembered_is_left_to_whoever_remembers(tmp_path):
    report = large(tmp_path / "a.sqlite")
    remembered = {str(report): [[list(s) for s in file_stamps(report)], "known"]}
    code = REFUSING + "print(hashes_ahead._process.hash_of(sys.argv[2]) is None); hashes_ahead.end()\n"
    for said, expected in (remembered, "True"), ({str(report): "no stamps"}, "False"), ([], "False"):
        (tmp_path / "hashes.json").write_text(json.dumps(said))
        assert in_process(code, tmp_path / "hashes.json", report).strip() == expected


def test_it_can_be_that_nobody_is_told_of_its_end(tmp_path):
    code = (
        "import signal, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"{REFUSING}"
        "print(*hashes_ahead.content_hash(Path(sys.argv[2]))); time.sleep(float(sys.argv[3])); hashes_ahead.end()\n"
    )
    report = large(tmp_path / "a.sqlite")
    for wait_s in 0, 0.5:  # while it may still run, and after its end
        assert in_process(code, tmp_path / "hashes.json", report, wait_s).split() == [str(n) for n in content_hash(report)]


@pytest.mark.parametrize("before", ["import threading", "import numpy"])
def test_nothing_is_started_where_threads_may_run(tmp_path, before):
    code = f"{before}\n{REFUSING}print(hashes_ahead._process)\n"
    assert in_process(code, tmp_path / "hashes.json", large(tmp_path / "a.sqlite")).strip() == "None"


def test_nothing_is_started_for_small_files_runs_and_options(tmp_path):
    small, run = large(tmp_path / "a.sqlite", 1 << 20), tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    code = REFUSING + "print(hashes_ahead._process)\n"
    said = in_process(code, tmp_path / "hashes.json", small, run, "--folder", "no such file", "x" * 9999)
    assert said.strip() == "None"


def test_what_cannot_be_read_is_told_by_whoever_asks(tmp_path):
    (tmp_path / "none").mkdir()
    report = large(tmp_path / "a.sqlite")
    code = REFUSING + (
        "contents.content_hash = hashed; os.unlink(sys.argv[3])\n"
        "from alltrace.trace.errors import InputError\n"
        "try: hashes_ahead.content_hash(Path(sys.argv[3]))\n"
        "except InputError as error: print(error)\n"
    )
    assert "it cannot be read" in in_process(code, tmp_path / "hashes.json", tmp_path / "none", report)


def test_the_process_begins_when_it_is_told_to_or_asked(tmp_path):
    report = large(tmp_path / "a.sqlite")
    code = REFUSING + (
        "import select\n"
        "def found(s): return bool(select.select([hashes_ahead._process._pipe], [], [], s)[0])\n"
        "early = found(0.3)\n"
        "if sys.argv[3] == 'told': hashes_ahead.go(); hashes_ahead.go(); print(early, found(30))\n"
        "else: print(early, hashes_ahead.content_hash(Path(sys.argv[2]))[0] == 17 << 20)\n"
        "hashes_ahead.end(); hashes_ahead.go()\n"
    )
    for way in "told", "asked":
        assert in_process(code, tmp_path / "hashes.json", report, way).strip() == "False True"


@pytest.mark.parametrize("first", ["", "hashes_ahead.go(); "])
def test_the_process_ends_with_the_one_that_started_it(tmp_path, first):
    report = large(tmp_path / "a.sqlite", 1 << 38)  # a hole that takes minutes to read
    code = f"{REFUSING}print(hashes_ahead._process._number, flush=True); {first}import time; time.sleep(0.3); os._exit(0)\n"
    number = int(in_process(code, tmp_path / "hashes.json", report))
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":  # dead, and nobody asks for it
            return
        time.sleep(0.05)
    pytest.fail("it lives on")


def test_commands_ask_it(tmp_path):
    write_run("tiny", tmp_path / "reports", ranks=2, hosts=1)
    code = (
        "import sys; from alltrace.run import contents\n"
        "def refused(path): raise SystemExit(f'{path} was hashed here')\n"
        "contents.content_hash = refused\n"
        "import os; fork = os.fork\n"
        "def forked():\n"
        "    number = fork()\n"
        "    if not number: import importlib; importlib.reload(contents)\n"
        "    return number\n"
        "os.fork = forked\n"
        "from alltrace.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: sys.exit(code)\n"
    )
    in_process(code, "import", tmp_path / "reports", "-o", tmp_path / "run", "--jobs", 1)
    records = read_manifest(tmp_path / "run").reports
    assert [r.content_hash for r in records] == [content_hash(Path(r.path))[1] for r in records]
    assert len(records) == 2
    question = ("stats", "nvtx_sum", tmp_path / "reports", "--format", "csv", "--jobs", 1, "--cache-dir", tmp_path / "cache")
    said = in_process(code, *question)
    assert said.startswith("Time (%),")
    assert in_process(code, *question) == said
    assert hashes_ahead._process is None
