from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import database as module
from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError

FILL = ("INSERT INTO StringIds VALUES (?, ?)", [(i, f"name {i}") for i in range(3000)])


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "a b.sqlite",
        "it's.sqlite",
        'a"b',
        "50%?mode=rwc#x&immutable=0",
        "line\nbreak",
        "ünï",
        "-",
        "file:x",
        "a%20b",
        ":memory:",
    ],
)
def test_names_of_all_kinds(tmp_path, make, both, name):
    made = make(tmp_path / "plain", [FILL])
    folder = tmp_path / "folder"
    folder.mkdir()
    path = made.rename(folder / name)
    assert both(path)["StringIds"].num_rows == 3000
    assert _names(folder) == [name]


def test_a_name_that_is_not_utf8(tmp_path, make, both):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.sqlite"))
    make(tmp_path / "plain", [FILL]).rename(path)
    assert both(path)["StringIds"].num_rows == 3000


def test_a_path_that_begins_with_two_slashes_or_is_relative(tmp_path, make, both, monkeypatch):
    path = make(tmp_path / "a.sqlite", [FILL])
    monkeypatch.chdir(tmp_path)
    assert both(Path("a.sqlite"))["StringIds"].num_rows == both(f"/{path}")["StringIds"].num_rows == 3000


def _unfinished_log(tmp_path, make):
    """A database whose last changes are only in its write-ahead log, as a killed writer leaves it."""
    live = make(tmp_path / "live", [FILL], ["journal_mode=WAL"])
    path = tmp_path / "left" / "a.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(live)) as database:
        database.execute("PRAGMA wal_autocheckpoint=0")
        database.execute("UPDATE StringIds SET value = 'changed' WHERE id < 10")
        database.execute("INSERT INTO StringIds VALUES (5000, 'new')")
        database.commit()
        shutil.copy(live, path)
        shutil.copy(f"{live}-wal", f"{path}-wal")
    return path


def test_changes_in_a_write_ahead_log_are_read_from_a_copy(tmp_path, make, both, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = _unfinished_log(tmp_path, make)
    before = {name: (path.parent / name).read_bytes() for name in _names(path.parent)}
    values = both(path)["StringIds"]["value"].to_pylist()
    assert values[:11] == ["changed"] * 10 + ["name 10"]
    assert values[3000:] == ["new"]
    assert {name: (path.parent / name).read_bytes() for name in _names(path.parent)} == before
    assert _names(scratch) == []


def test_a_log_that_cannot_be_copied(tmp_path, make, monkeypatch):
    path = _unfinished_log(tmp_path, make)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(InputError, match=r"has changes in a -wal file that cannot be merged in a copy \(No space left"):
        open_sqlite(path)
    assert _names(scratch) == []


def test_an_interrupted_copy_is_removed(tmp_path, make, monkeypatch):
    path = _unfinished_log(tmp_path, make)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def interrupted(_, target):
        Path(target).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_sqlite(path)
    assert _names(scratch) == []


@pytest.mark.parametrize("empty_log", [False, True])
def test_write_ahead_mode_leaves_no_files(tmp_path, make, both, empty_log):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = make(folder / "a.sqlite", [FILL], ["journal_mode=WAL"])
    assert path.read_bytes()[18] == 2
    if empty_log:
        (folder / "a.sqlite-wal").touch()
    before = _names(folder)
    assert both(path)["StringIds"].num_rows == 3000
    assert _names(folder) == before


def test_a_log_beside_the_target_of_a_link_is_found(tmp_path, make, both):
    path = _unfinished_log(tmp_path, make)
    (tmp_path / "link").symlink_to(path)
    assert both(tmp_path / "link")["StringIds"].num_rows == 3001


def test_a_journal_that_is_over_is_left_alone(tmp_path, make, both):
    path = make(tmp_path / "a.sqlite", [FILL], ["journal_mode=PERSIST"])
    journal = Path(f"{path}-journal").read_bytes()
    assert journal
    assert both(path)["StringIds"].num_rows == 3000
    assert Path(f"{path}-journal").read_bytes() == journal
    with closing(open_sqlite(path, "fast")) as source, pytest.raises(InputError, match="a journal is next to the file"):
        list(source.batches("StringIds", {"id": pa.int64()}))


def test_a_transaction_cut_off_is_an_error(tmp_path, make):
    live = make(tmp_path / "live", [FILL])
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(live, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 5")
        database.execute("BEGIN")
        database.execute("UPDATE StringIds SET value = value || ' changed'")
        shutil.copy(live, path)
        shutil.copy(f"{live}-journal", f"{path}-journal")
        database.execute("ROLLBACK")
    before = path.read_bytes()
    with pytest.raises(InputError, match="has an unfinished transaction"):
        open_sqlite(path)
    assert path.read_bytes() == before
    assert Path(f"{path}-journal").stat().st_size > 512


def test_memory_that_sqlite_does_not_get_is_an_error_of_the_file(tmp_path, make):
    path = make(tmp_path / "a", [])
    access = module.Access(path, path, immutable=True, journal=False)
    with (
        pytest.raises(InputError, match=r"table 't': SQLite cannot read it \(out of memory\)"),
        module.connection(access, "table 't'"),
    ):
        raise MemoryError


def test_a_locked_file_is_an_error(tmp_path, make, monkeypatch):
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 0.05)
    path = make(tmp_path / "a.sqlite", [FILL])
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="is locked by a program that is writing it; wait until"):
            open_sqlite(path)


def test_a_view_that_never_ends_is_given_up(tmp_path, make, monkeypatch):
    monkeypatch.setattr(module, "_STALL_S", 0.2)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0"
    path = make(tmp_path / "a.sqlite", [f"CREATE VIEW v AS {endless}"])
    with closing(open_sqlite(path)) as source, pytest.raises(InputError, match="table 'v': did not respond for"):
        source.count_about("v")


def test_a_folder_that_cannot_be_written(tmp_path, make, both):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = make(folder / "a.sqlite", [FILL])
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert both(path)["StringIds"].num_rows == 3000
    finally:
        folder.chmod(0o755)
