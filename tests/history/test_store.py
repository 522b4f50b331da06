import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from tests.history_rows import put

from alltrace.history.store import HISTORY_VERSION, open_history
from alltrace.trace.errors import InputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "h.duckdb"
    with open_history(path, write=True) as history:
        put(history, 1, hosts=[{"host": "a"}], findings=[{"kind": "sync"}])
    return path


def changed(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def made_by(path, what):
    """A file that is not a history, and what is said of it."""
    path.unlink()
    if what == "text":
        path.write_text("hello\n" * 1000)
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "folder":
        path.mkdir()
    elif what == "other":
        changed(path, "CREATE TABLE mine (a INT)")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("text", "it is not a DuckDB file; expected a history file"),
        ("empty", "it is not a DuckDB file; expected a history file"),
        ("folder", "a folder; expected a history file"),
        ("other", "a DuckDB file with other contents; expected a history file"),
        ("none", "there is no such file"),
    ],
)
def test_what_is_no_history_is_refused(file, what, said):
    made_by(file, what)
    for write in (False, True):
        if what == "none" and write:
            continue
        with pytest.raises(InputError) as error, open_history(file, write=write):
            pass
        assert said in str(error.value)
        assert str(file) in str(error.value)


def test_the_history_of_another_version_is_refused(file):
    changed(file, f"UPDATE about SET version = {HISTORY_VERSION + 1}", "ALTER TABLE runs ADD COLUMN further INT")
    with pytest.raises(
        InputError, match=f"a history of version {HISTORY_VERSION + 1}; expected version {HISTORY_VERSION}"
    ):
        open_history(file).__enter__()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW mine AS SELECT 1 AS a",
        "ALTER TABLE runs DROP COLUMN step_ns",
        "ALTER TABLE runs ALTER step_ns TYPE VARCHAR",
        "DROP TABLE hosts",
    ],
)
def test_tables_that_are_not_ours_are_refused(file, statement):
    changed(file, statement)
    with pytest.raises(InputError, match="with changed tables"), open_history(file):
        pass


def test_a_view_in_place_of_a_table_reads_no_file(file, tmp_path):
    (tmp_path / "secret").write_text("secret")
    changed(file, "DROP TABLE about", f"CREATE VIEW about AS SELECT * FROM read_text('{tmp_path}/secret')")
    with pytest.raises(InputError, match=r"other contents|disabled by configuration"), open_history(file):
        pass


def test_nothing_outside_is_within_reach(file):
    with pytest.raises(InputError, match="disabled by configuration"), open_history(file) as history:
        history.ask("SELECT * FROM read_text('/etc/hostname')")


def test_a_name_is_never_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_history(Path("md:h.duckdb"), write=True) as history:
        assert history.kept() == []
    assert (tmp_path / "md:h.duckdb").is_file()


def test_a_damaged_history_is_an_error(file):
    content = bytearray(file.read_bytes())
    content[4096 * 3 :] = bytes(b ^ 0x5A for b in content[4096 * 3 :])
    file.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"), open_history(file) as history:
        history.ask("SELECT * FROM runs")


def test_a_run_is_put_whole_or_not_at_all(file):
    with open_history(file, write=True) as history:
        with pytest.raises(duckdb.Error):
            put(history, 1, hosts=[{"host": "b", "ranks": "many"}], job="other")
        (run,) = history.ask("SELECT * FROM runs")
        assert (run["job"], [h["host"] for h in history.ask("SELECT host FROM hosts")]) == ("train", ["a"])
        put(history, 1, job="other")
        assert [r["job"] for r in history.ask("SELECT job FROM runs")] == ["other"]
        assert history.ask("SELECT * FROM hosts") == history.ask("SELECT * FROM findings") == []


def test_two_processes_do_not_write_at_once(file):
    code = "import duckdb, sys\nopened = duckdb.connect(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(file).parent
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match="another process has it open; wait"), open_history(file, write=True):
            pass
        other.communicate(b"")
