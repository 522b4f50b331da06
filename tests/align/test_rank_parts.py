from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.making import flip

from alltrace.align import store
from alltrace.align.rank_parts import read_part
from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.run.verify import verify
from alltrace.synth import write_run

KILLED = """
import os, sys
from pathlib import Path
import alltrace.align.rank_parts, alltrace.align.run_matching, alltrace.align.store, alltrace.align.steps
import alltrace.recipes.questions.diagnose as diagnose, alltrace.tiles.build as build
import alltrace.recipes.execution.kept_findings as kept
from alltrace.recipes.execution.ask import ask
from alltrace.run.store import Run

module, name, calls = sys.argv[2], sys.argv[3], int(sys.argv[4])
owner = eval(module)
real = getattr(owner, name)

def last(*args, **more):
    global calls
    calls -= 1
    if calls < 0:
        os._exit(9)
    return real(*args, **more)

setattr(owner, name, last)
run = Run(Path(sys.argv[1]))
alltrace.align.store.aligned(run, jobs=1)
build.pyramid(run, jobs=1)
ask(run, "diagnose", jobs=1)
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_run("straggler", folder, ranks=4, hosts=2, steps=6, layers=4, ideal=True)
    return folder


@pytest.fixture(scope="module")
def imported(reports):
    import_reports([str(reports)], reports / "run", jobs=1)
    return reports / "run"


@pytest.fixture
def run(imported, tmp_path):
    shutil.copytree(imported, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def read(monkeypatch):
    """The ranks whose tables are read."""
    ranks = []
    real = store._collected

    def look(sent, folder, number, advance):
        ranks.append(number)
        return real(sent, folder, number, advance)

    monkeypatch.setattr(store, "_collected", look)
    return ranks


def everything(run):
    """The bytes of all that was made of a run."""
    folders = ("align", "operations", "tiles", "findings")
    return {
        p.relative_to(run).as_posix(): p.read_bytes()
        for f in folders
        for p in sorted((run / f).rglob("[!.]*"))
        if p.is_file()
    }


def make_all(run):
    from alltrace.recipes.execution.ask import ask
    from alltrace.tiles.build import pyramid

    opened = Run(run)
    aligned(opened, jobs=1)
    pyramid(opened, jobs=1)
    ask(opened, "diagnose", jobs=1)
    return everything(run)


@pytest.fixture(scope="module")
def whole(imported, tmp_path_factory):
    """What is made of the run where nothing interrupts it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(imported, folder)
    return make_all(folder)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("place", "name", "calls"),
    [
        ("alltrace.align.rank_parts", "write_quickly", 2),
        ("alltrace.align.rank_parts", "write_json", 3),
        ("alltrace.align.run_matching", "solve", 0),
        ("alltrace.align.steps", "find_steps", 0),
        ("alltrace.align.store", "write_json", 1),
        ("alltrace.align.store", "write_manifest", 0),
        ("build", "write_rank", 2),
        ("build", "write_json", 0),
        ("diagnose", "_contribution", 2),
        ("kept", "write_table", 0),
    ],
)
def test_a_process_that_is_killed_in_a_stage_leaves_what_the_next_one_finishes_with_the_same_bytes(
    run, whole, place, name, calls
):
    done = subprocess.run([sys.executable, "-c", KILLED, str(run), place, name, str(calls)], check=False)
    assert done.returncode == 9
    assert make_all(run) == whole
    assert verify(run) == []
    assert not list(run.glob(".align.*.tmp"))


def test_an_alignment_that_was_interrupted_goes_on_where_it_was(run, whole, read, monkeypatch):
    real = store.run_tasks

    def two(function, items, **more):
        for done, outcome in enumerate(real(function, items, **more)):
            if done == 2:
                raise KeyboardInterrupt
            yield outcome

    with monkeypatch.context() as patch:
        patch.setattr(store, "run_tasks", two)
        with pytest.raises(KeyboardInterrupt):
            aligned(Run(run), jobs=1)
    assert read == [0, 1, 2]
    assert not (run / "align").exists()
    read.clear()
    progress = []
    aligned(Run(run), jobs=1, progress=progress.append)
    assert read == [3]
    assert sum(progress) == 4
    assert {n: c for n, c in everything(run).items() if n.startswith("align/")} == {
        n: c for n, c in whole.items() if n.startswith("align/")
    }


def test_a_new_rank_is_read_and_the_others_are_not(reports, tmp_path, read):
    names = sorted(p for p in reports.glob("*.sqlite"))
    import_reports([str(p) for p in names[:3]], tmp_path / "run", jobs=1)
    aligned(Run(tmp_path / "run"), jobs=1)
    import_reports([str(p) for p in names], tmp_path / "run", jobs=1)
    aligned(Run(tmp_path / "run"), jobs=1)
    assert read == [0, 1, 2, 3]
    for lacking in (3, 2, 1, 0):  # one of them is the first to begin, so the others' zero is another without it
        import_reports([str(p) for n, p in enumerate(names) if n != lacking], tmp_path / "run", jobs=1)
        alignment = aligned(Run(tmp_path / "run"), jobs=1)
    assert read == [0, 1, 2, 3, 3, 2, 1]
    assert np.unique(alignment.members.column("rank")).tolist() == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / "run" / "operations").iterdir()) == ["rank=1", "rank=2", "rank=3"]


def test_a_damaged_part_is_made_again(run, whole, read):
    aligned(Run(run), jobs=1)
    shutil.rmtree(run / "align")
    flip(run / "operations" / "rank=2" / "collectives.parquet")
    flip(run / "operations" / "rank=3" / "part.json")
    assert {d.file for d in verify(run)} == {"operations/rank=2/collectives.parquet", "operations/rank=3/part.json"}
    read.clear()
    aligned(Run(run), jobs=1)
    assert read == [2, 3]
    assert all(whole[name] == content for name, content in everything(run).items())


def test_parts_of_a_run_that_cannot_be_written_go_when_it_is_aligned(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != run and may(path, mode))
    aligned(Run(run), jobs=1)
    assert not (run / "operations").exists()
    assert not list((tmp_path / "cache" / "align").glob(".operations*"))


def test_steps_come_back_as_they_were_written(run):
    from alltrace.align.steps import rank_steps

    aligned(Run(run), jobs=1)
    part = read_part(run / "operations", 1)
    expected = rank_steps(Run(run).rank(1))
    assert vars(expected).keys() == vars(part.steps).keys()
    for name, value in vars(expected).items():
        found = getattr(part.steps, name)
        assert np.array_equal(found, value)
        assert getattr(found, "dtype", None) == getattr(value, "dtype", None)
