"""Each command line with the real nsys and with us: what is printed, the files that are left, the exit code."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.nsys.command_lines import ANALYZE, REFUSED, STATS
from tests.nsight_run import run_nsys
from tests.nvidia.test_oracle import complete, nsys_rows

from alltrace.cli.main import main

pytestmark = [pytest.mark.oracle, pytest.mark.corpus]

REPORTS = {
    "gpu": "fuser_nvtx_nsys2025.1",
    "nccl": "h100x2_nccl_sendrecv_nsys2026.2",
    "mpi": "mpi_p2p_collectives_nsys2023.1",
}
PROGRAM = """
import time
import nvtx
for step in range(20):
    with nvtx.annotate("step", domain="training"), nvtx.annotate("inner"):
        time.sleep(0.0005)
"""
WAITING = """
UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = (SELECT id FROM StringIds WHERE value LIKE 'cudaDeviceSynchronize%')
  WHERE start BETWEEN 8423000000 AND 8509000000;
UPDATE NVTX_EVENTS SET text = 'plain' WHERE text = 'CompiledKernel::compile';
UPDATE StringIds SET value = 'plain' WHERE value = 'CompiledKernel::compile';
"""
# of what stands above a table, and why there is none, each says its own
OWN_WORDS = re.compile(r"^(ERROR|WARNING|PROCESSED|Generating)\b")
NO_ROWS = ("Report was successfully run, but no data was returned.", "The report has no rows.")
ADVICE = re.compile(r"   \d\. ")
DOING = re.compile(
    r"Processing \[(?P<file>[^]]*)\] with \[(?:/\S*/)?(?P<name>[\w-]+)(?:\.py)?\](?:\(.*?\))?(?P<place>.*?)\.\.\."
    r" ?(?P<more>.*)"
)


class Said(NamedTuple):
    """What a command left behind: its exit code, its output, and the texts of its files by name."""

    code: int
    out: str
    files: dict[str, str]


@pytest.fixture(scope="module")
def reports(corpus, nsys, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for name, source in REPORTS.items():
        shutil.copyfile(corpus / "nsys" / f"{source}.sqlite", folder / f"{name}.sqlite")
        (folder / f"{name}.sqlite").chmod(0o644)
        complete(folder / f"{name}.sqlite")
    shutil.copyfile(folder / "gpu.sqlite", folder / "threads.sqlite")
    with closing(sqlite3.connect(folder / "threads.sqlite")) as database, database:
        database.executescript(WAITING)
    (folder / "program.py").write_text(PROGRAM)
    run_nsys(
        nsys,
        ("profile", "-t", "nvtx,osrt", "-s", "none", "--cpuctxsw=none", "-o", "cpu", sys.executable, "program.py"),
        folder,
    )
    (folder / "program.py").unlink()
    return folder


@pytest.fixture(scope="module", autouse=True)
def cache(nsys, tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ALLTRACE_NSYS", str(nsys))
        yield


def place(reports: Path, folder: Path) -> Path:
    (folder / "out").mkdir(parents=True)
    for report in reports.iterdir():
        shutil.copyfile(report, folder / report.name)
    return folder


def left(folder: Path) -> dict[str, str]:
    return {
        str(f.relative_to(folder)): f.read_text()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.suffix not in (".sqlite", ".nsys-rep")
    }


def theirs(nsys: Path, line: str, folder: Path) -> Said:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [str(nsys), *shlex.split(line)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, left(folder))


def ours(line: str, folder: Path, capfd, monkeypatch) -> Said:
    monkeypatch.chdir(folder)
    capfd.readouterr()
    code = main(["nsys", *shlex.split(line)])
    return Said(code, capfd.readouterr().out, left(folder))


def blocks(text: str) -> list[str]:
    """What was printed: a line for each report, and its table; without the words that are each tool's own."""
    lines: list[str] = []
    for line in text.splitlines():
        told = line.rstrip()
        if doing := DOING.match(told):
            lines.append(f"{doing['name']} of {Path(doing['file']).stem} to {doing['place']}")
            told = doing["more"]
        if told.startswith("SKIPPED") or told in NO_ROWS:
            while lines[-1].startswith((" **", "+--+")):  # a report without rows, which only some versions give a title
                lines.pop()
            lines.append("nothing")
        elif told and not OWN_WORDS.match(told):
            lines.append(told)
    return lines


def alike(our: str, their: str) -> bool:
    """Whether both printed one and the same; a report asked by an earlier name has a title that says so."""
    mine, wanted = blocks(our), blocks(their)
    for place, line in enumerate(wanted):
        if "DEPRECATED" in line and place < len(mine) and mine[place].startswith(" **"):
            mine[place] = line
    if mine == wanted:
        return True
    # their CSV does not double quotes, and of ours a number may have fewer zeros
    rows, others = numbers("\n".join(mine)), [list(map(number, row)) for row in nsys_rows("\n".join(wanted))]
    return rows == others


def numbers(text: str) -> list[list[object]]:
    return [list(map(number, row)) for row in csv.reader(io.StringIO(text)) if row]


def number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


def tables(lines: list[str]) -> list[str]:
    """The lines of tables and titles; what a rule says of them is each tool's own."""
    return [
        line
        for line in lines
        if re.match(r" |\||\+|[\[\]{}]|\d+,|Row#,|Duration|nothing|\S+ of \S+ to", line) and not ADVICE.match(line)
    ]


def same_csv(one: str, other: str) -> bool:
    return [row for row in csv.reader(io.StringIO(one)) if row] == nsys_rows(other)


def test_the_lines_are_many_and_each_stands_once():
    lines = [*STATS, *ANALYZE, *REFUSED]
    assert len(set(lines)) == len(lines) >= 75


@pytest.mark.sampled(10)
@pytest.mark.parametrize("line", STATS)
def test_stats_says_the_same(nsys, reports, tmp_path, line, capfd, monkeypatch):
    their, our = (
        theirs(nsys, line, place(reports, tmp_path / "theirs")),
        ours(line, place(reports, tmp_path / "ours"), capfd, monkeypatch),
    )
    assert our.code == their.code == 0
    assert our.files.keys() == {name for name, text in their.files.items() if text or "bad" not in name}
    for name, text in our.files.items():
        assert text == their.files[name] or same_csv(text, their.files[name]), name
    assert alike(our.out, their.out), (our.out, their.out)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("line", ANALYZE)
def test_analyze_says_the_same(nsys, reports, tmp_path, line, capfd, monkeypatch):
    their, our = (
        theirs(nsys, line, place(reports, tmp_path / "theirs")),
        ours(line, place(reports, tmp_path / "ours"), capfd, monkeypatch),
    )
    assert our.code == their.code == 0
    assert our.files == their.files
    mine, wanted = tables(blocks(our.out)), tables(blocks(their.out))
    assert mine == [m if "DEPRECATED" in w else w for m, w in zip(mine, wanted, strict=True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_has_their_exit_code_and_our_reason(nsys, reports, tmp_path, line, capfd, monkeypatch):
    their = theirs(nsys, line, place(reports, tmp_path / "theirs"))
    monkeypatch.chdir(place(reports, tmp_path / "ours"))
    assert main(["nsys", *shlex.split(line)]) == their.code != 0
    said = capfd.readouterr()
    assert not said.out
    assert said.err.startswith("alltrace: ")
    assert said.err.count("\n") == 1
    assert not left(tmp_path / "ours")
