from dataclasses import replace

import pytest
from tests.making import collective, flip, kernel, make_run

from alltrace.history import update as updating
from alltrace.history.store import open_history
from alltrace.history.update import find_runs, update
from alltrace.run.manifest import Labels, read_manifest, write_manifest
from alltrace.trace.errors import InputError

MS = 1_000_000
UTC_NS = 1_772_368_200_000_000_000


def labelled(path, number, **labels):
    """Give a run made by hand reports, a start and labels of its own."""
    manifest = read_manifest(path)
    reports = tuple(r._replace(content_hash=f"{number}-{r.content_hash}") for r in manifest.reports)
    write_manifest(path, replace(manifest, reports=reports, zero_utc_ns=UTC_NS + number, labels=Labels(**labels)))


@pytest.fixture
def runs(tmp_path):
    for number, name in enumerate(("a", "b", "deep/er/c")):
        tables = {"kernels": [kernel(0, 40 * MS), collective(40 * MS, 60 * MS)]}
        make_run(tmp_path / "runs" / name, {0: tables})
        labelled(tmp_path / "runs" / name, number, job="train", revision=f"r{number}", tags=("t",))
    (tmp_path / "runs" / ".hidden").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def read(monkeypatch):
    """The paths of runs that were opened."""
    opened, rows_of = [], updating.rows_of

    def counted(run, **options):
        opened.append(run.path.name)
        return rows_of(run, **options)

    monkeypatch.setattr(updating, "rows_of", counted)
    return opened


@pytest.fixture
def history(tmp_path):
    with open_history(tmp_path / "h.duckdb", write=True) as opened:
        yield opened


def updated(history, folder):
    return update(history, find_runs([str(folder)]))


def test_a_run_is_read_once(history, runs, read):
    first = updated(history, runs)
    assert (len(first.read), first.unchanged, first.unread, first.notes) == (3, 0, (), ())
    assert read == ["a", "b", "c"]
    again = updated(history, runs)
    assert (again.read, again.unchanged) == ((), 3)
    assert read == ["a", "b", "c"]
    (row,) = history.ask("SELECT * FROM runs WHERE path LIKE '%/a'")
    assert (row["job"], row["revision"], row["tags"], row["start_utc_ns"]) == ("train", "r0", ["t"], UTC_NS)
    assert (row["compute_percent"], row["exposed_communication_percent"]) == (
        pytest.approx(200 / 3),
        pytest.approx(100 / 3),
    )


def test_a_run_that_changed_is_read_again(history, runs, read):
    updated(history, runs)
    write_manifest(runs / "b", replace(read_manifest(runs / "b"), labels=Labels("other")))
    assert [p.rpartition("/")[2] for p in updated(history, runs).read] == ["b"]
    assert read[3:] == ["b"]
    assert [r["job"] for r in history.ask("SELECT job FROM runs ORDER BY path")] == ["train", "other", "train"]


def test_a_run_that_was_moved_is_not_read_again(history, runs, read):
    updated(history, runs)
    (runs / "a").rename(runs / "z")
    found = updated(history, runs)
    assert (found.read, found.unchanged, found.notes, len(read)) == ((), 3, (), 3)
    assert {r["path"].rpartition("/")[2] for r in history.ask("SELECT path FROM runs")} == {"b", "c", "z"}


def test_the_same_reports_count_once(history, runs):
    labelled(runs / "b", 0)
    write_manifest(runs / "b", read_manifest(runs / "a"))
    found = updated(history, runs)
    assert (len(found.read), len(history.kept())) == (2, 2)
    assert "b has the same reports as" in found.notes[0]


def test_a_damaged_run_stops_no_other(history, runs):
    flip(runs / "a" / "ranks" / "rank=0" / "kernels.parquet", byte=40)
    flip(runs / "b" / "manifest.json", byte=100)
    found = updated(history, runs)
    assert [p.rpartition("/")[2] for p in found.read] == ["c"]
    assert len(found.unread) == 2
    assert "kernels.parquet" in found.unread[0]
    assert "manifest.json" in found.unread[1]
    assert len(history.kept()) == 1


def test_what_was_read_stays_where_a_run_is_damaged_or_gone(history, runs):
    updated(history, runs)
    flip(runs / "b" / "manifest.json", byte=100)
    (runs / "a").rename(runs.parent / "elsewhere")
    found = updated(history, runs)
    assert found.unread[0].endswith("; it counts as last read")
    assert "1 run is gone and counted as last read: " in found.notes[0]
    assert found.notes[0].endswith("/runs/a")
    assert len(history.kept()) == 3


def test_an_import_that_has_not_ended_is_left_out(history, runs):
    write_manifest(runs / "a", replace(read_manifest(runs / "a"), complete=False))
    assert "its import has not finished; run the same import again" in updated(history, runs).unread[0]


def test_a_folder_without_runs_is_told(runs):
    for place, said in (
        ("none", "there is no such folder"),
        (".hidden", "no run in it"),
        ("a/manifest.json", "a file"),
    ):
        with pytest.raises(InputError, match=said):
            find_runs([str(runs / place)])
