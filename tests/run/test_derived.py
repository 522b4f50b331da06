from __future__ import annotations

import errno
import os
import subprocess
import sys
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from alltrace import __version__
from alltrace.run.derived import code_version, derived, digest, draft_of, locked, place_of, remove_drafts, source_hash
from alltrace.trace.errors import DamageError, InputError


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    return SimpleNamespace(path=tmp_path / "run")


def read(place, signature):
    try:
        words = place.read_text().split()
    except FileNotFoundError as error:
        raise DamageError(place, found="no file") from error
    return words[1] if words[0] == signature else None


class Making:
    """Writes a value, and counts how often."""

    def __init__(self, value):
        self.value, self.times = value, 0

    def __call__(self, place, signature):
        self.times += 1
        with draft_of(place) as draft:
            draft.write_text(f"{signature} {self.value}")
        return self.value


def ask(run, make, inputs, **about):
    return derived(run, "parts/sums.txt", inputs, read, make, what="the sums", **about)


def test_a_value_is_made_once_for_its_inputs(run):
    first, second = Making("a"), Making("b")
    assert [ask(run, first, [1, {"x": 2}]), ask(run, second, [1, {"x": 2}])] == ["a", "a"]
    assert (first.times, second.times) == (1, 0)
    assert ask(run, second, [1, {"x": 3}]) == "b"
    assert (run.path / "parts" / "sums.txt").read_text() == f"{digest([1, {'x': 3}])} b"


def test_a_damaged_value_is_made_again(run):
    ask(run, Making("a"), 1)
    (run.path / "parts" / "sums.txt").write_text("")
    assert ask(run, Making("b"), 1) == "b"


def test_a_run_that_cannot_be_written_has_its_values_in_the_cache(run, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    make = Making("a")
    assert [ask(run, make, n) for n in (1, 2, 1)] == ["a", "a", "a"]
    assert make.times == 2
    cached = tmp_path / "cache" / "parts"
    assert {p.name for p in cached.iterdir() if p.suffix == ".txt"} == {f"{digest(n)}.txt" for n in (1, 2)}
    assert list(run.path.iterdir()) == []


def test_another_folder_holds_the_value_alone(run, tmp_path):
    ask(run, Making("a"), 1, folder=tmp_path / "elsewhere" / "sums")
    assert (tmp_path / "elsewhere" / "sums").is_file()
    assert not (run.path / "parts").exists()


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_sentence_or_nothing(run):
    with pytest.raises(InputError, match=r"the sums cannot be written \(No space left on device\)"):
        ask(run, full, 1)
    place_of(run, "parts/sums.txt", 1).keep(full)
    assert ask(run, Making("a"), 1) == "a"


def test_a_draft_is_renamed_whole_or_removed(tmp_path):
    place = tmp_path / "value"
    with draft_of(place) as draft:
        draft.mkdir()
        (draft / "part").touch()
        assert not place.exists()
    assert [p.name for p in place.iterdir()] == ["part"]
    with pytest.raises(OSError, match="No space"), draft_of(tmp_path / "other") as draft:
        full(draft.write_text("half"))
    assert [p.name for p in tmp_path.iterdir()] == ["value"]


def test_drafts_of_killed_processes_are_removed_and_no_others(tmp_path):
    place = tmp_path / "value"
    script = (
        "import os, signal, sys; from pathlib import Path; from alltrace.run.derived import draft_of\n"
        "with draft_of(Path(sys.argv[1])) as draft:\n"
        "    draft.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(place)], check=False).returncode < 0
    assert len(list(tmp_path.iterdir())) == 1
    foreign, named = tmp_path / f".value.elsewhere-{2**22 + 1}.tmp", tmp_path / ".value.tmp"
    foreign.touch()
    named.touch()
    with draft_of(place) as draft:
        draft.touch()
        remove_drafts(place)
        assert sorted(tmp_path.iterdir()) == sorted([draft, foreign, named])


def test_who_makes_a_value_alone_removes_the_drafts_of_all_hosts(run):
    folder = run.path / "parts"
    folder.mkdir()
    drafts = [folder / ".sums.txt.elsewhere-7.tmp", folder / f".sums.txt.{os.uname().nodename}-{os.getpid()}.tmp"]
    for draft in drafts:
        draft.mkdir()
    other = folder / ".means.txt.elsewhere-7.tmp"
    other.touch()
    assert ask(run, Making("a"), 1) == "a"
    assert {p.name for p in folder.iterdir()} == {"sums.txt", ".sums.txt.lock", other.name}


def test_the_draft_of_a_process_that_had_the_same_number_is_not_continued(tmp_path):
    with draft_of(tmp_path / "value") as draft:
        (draft / "old").mkdir(parents=True)
        with draft_of(tmp_path / "value") as same:
            assert same == draft
            assert not draft.exists()
            draft.touch()
        draft.touch()


def held(lock, wait):
    with locked(lock, wait=wait) as holds:
        return holds


def test_a_lock_keeps_another_process_out_until_it_ends(tmp_path):
    lock = tmp_path / "lock"
    with get_context("spawn").Pool(1) as pool:
        with locked(lock) as holds:
            assert holds
            assert not pool.apply(held, (lock, False))
            waiting = pool.apply_async(held, (lock, True))
            waiting.wait(0.2)
            assert not waiting.ready()
        assert waiting.get(30)


def test_a_file_system_without_locks_holds_none(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: full())
    assert not held(tmp_path / "lock", wait=True)
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


# The version of the code changes with the sources that determine results, and with nothing else.


@pytest.fixture
def package(tmp_path):
    for name, text in (("core/a.pyx", "one"), ("recipes/deep/b.py", "two"), ("cli/c.py", "three")):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["core/a.pyx", "recipes/deep/b.py", "run/new.py"])
def test_a_source_changes_the_hash(package, name):
    before = source_hash(package)
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("other")
    assert source_hash(package) != before


@pytest.mark.parametrize("name", ["cli/c.py", "core/a.so", "recipes/deep/b.pyc"])
def test_other_files_do_not(package, name):
    before = source_hash(package)
    (package / name).write_text("other")
    assert source_hash(package) == before


def test_the_version_comes_first():
    version, _, digest = code_version().partition("+")
    assert version == __version__
    assert len(digest) == 32
