"""From paths, patterns and URLs to reports."""

from __future__ import annotations

import gzip
import json
import os
import shutil

import pytest

from alltrace.readers.registry import open_report
from alltrace.run.discover import find_reports, is_url, outdated
from alltrace.trace.errors import InputError, UsageError


def make(folder, *names):
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("_pqtdir"):
            place.mkdir()
        else:
            place.write_bytes(b"")
    return folder


def names_of(folder, *inputs):
    return [str(p.relative_to(folder)) for p in find_reports([str(folder / i) for i in inputs or ("",)])]


def test_a_folder_stands_for_the_reports_below_it_in_natural_order(tmp_path):
    make(
        tmp_path,
        "r10.sqlite",
        "r2.sqlite",
        "b/r1.nsys-rep",
        "notes.txt",
        ".hidden.sqlite",
        ".cache/x.sqlite",
        "b/c_pqtdir",
        "x².sqlite",
    )
    assert names_of(tmp_path) == ["b/c_pqtdir", "b/r1.nsys-rep", "r2.sqlite", "r10.sqlite", "x².sqlite"]


def test_a_run_below_is_passed_over_but_not_a_folder_with_a_manifest_of_others(tmp_path):
    make(tmp_path, "a.sqlite", "run/manifest.json", "run/ranks/x.sqlite", "app/manifest.json", "app/b.sqlite")
    assert names_of(tmp_path) == ["a.sqlite", "app/b.sqlite"]
    with pytest.raises(UsageError, match="run is a run directory already"):
        names_of(tmp_path, "a.sqlite", "run")


def test_a_report_and_its_export_are_one(reports, tmp_path):
    make(tmp_path, "a.nsys-rep", "b.nsys-rep", "b.sqlite", "c.nsys-rep", "c_pqtdir", "D.NSYS-REP")
    shutil.copy(reports / "tiny_rank0.sqlite", tmp_path / "a.sqlite")
    shutil.copy(reports / "tiny_rank0.sqlite", tmp_path / "D.SQLITE")
    # the export of b was killed, so the report itself is taken
    assert names_of(tmp_path) == ["D.SQLITE", "a.sqlite", "b.nsys-rep", "c_pqtdir"]


def test_an_export_that_is_older_than_its_report_is_known(tmp_path):
    make(tmp_path, "a.nsys-rep", "a.sqlite", "b.nsys-rep", "b.sqlite", "c.qdrep", "c_pqtdir", "d.sqlite", "e.nsys-rep")
    for name, at in (
        ("a.sqlite", 1),
        ("a.nsys-rep", 2),
        ("b.nsys-rep", 1),
        ("b.sqlite", 1),
        ("c_pqtdir", 1),
        ("c.qdrep", 2),
    ):
        os.utime(tmp_path / name, (at, at))
    names = ("a.sqlite", "b.sqlite", "c_pqtdir", "d.sqlite", "e.nsys-rep", "gone.sqlite")
    found = outdated([*(tmp_path / n for n in names), tmp_path / "none" / "x.sqlite"])
    assert found == {tmp_path / "a.sqlite": "a.nsys-rep", tmp_path / "c_pqtdir": "c.qdrep"}


def test_a_report_that_is_named_twice_is_one(tmp_path, monkeypatch):
    make(tmp_path, "a.sqlite", "b.sqlite")
    monkeypatch.chdir(tmp_path)
    assert len(find_reports(["a.sqlite", "./a.sqlite", str(tmp_path / "a.sqlite"), ".", "*.sqlite"])) == 2
    assert len(find_reports(["a.sqlite", f"../{tmp_path.name}/a.sqlite"])) == 1


def test_a_report_and_its_export_are_one_however_they_are_spelled(reports, tmp_path, monkeypatch):
    make(tmp_path, "a.nsys-rep")
    shutil.copy(reports / "tiny_rank0.sqlite", tmp_path / "a.sqlite")
    monkeypatch.chdir(tmp_path)
    for spelled in (".", str(tmp_path), f"../{tmp_path.name}"):
        assert [p.name for p in find_reports(["a.nsys-rep", f"{spelled}/a.sqlite"])] == ["a.sqlite"]


def test_patterns(tmp_path):
    make(tmp_path, "x1/a.sqlite", "x2/a.sqlite", "y/a.sqlite", "[z].sqlite")
    assert names_of(tmp_path, "x*") == ["x1/a.sqlite", "x2/a.sqlite"]
    assert names_of(tmp_path, "**/*.sqlite") == ["[z].sqlite", "x1/a.sqlite", "x2/a.sqlite", "y/a.sqlite"]
    assert names_of(tmp_path, "[z].sqlite") == ["[z].sqlite"]  # what exists is not a pattern
    with pytest.raises(InputError, match="nothing matches this pattern"):
        names_of(tmp_path, "q*")


@pytest.mark.parametrize("given", ["nowhere", "x" * 300, "a\0b", "a/" * 3000])
def test_what_does_not_exist(given):
    with pytest.raises(InputError, match="there is no such file or folder; expected an Nsight Systems report"):
        find_reports([given])


def test_links_to_folders_are_not_followed_in_circles(tmp_path):
    make(tmp_path, "a.sqlite")
    (tmp_path / "again").symlink_to(tmp_path)
    assert names_of(tmp_path) == ["a.sqlite"]
    assert names_of(tmp_path, "again") == ["again/a.sqlite"]


def test_urls(tmp_path, monkeypatch):
    yes = ["s3://b/x", "memory://x", "zip://a.sqlite::file:///x.zip", "simplecache::s3://b/x", "gs+x://y"]
    assert [is_url(t) for t in yes] == [True] * len(yes)
    assert [is_url(t) for t in ["x.sqlite", "a/b://c", "://", "C:\\x", "", "é://x"]] == [False] * 6
    with pytest.raises(InputError, match="it is a URL that cannot be opened here"):
        find_reports(["s3://b/x"])
    make(tmp_path, "fetched.sqlite")
    assert find_reports(["s3://b/x"], lambda urls: [tmp_path / "fetched.sqlite" for _ in urls]) == [
        tmp_path / "fetched.sqlite"
    ]
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "odd:/x.sqlite")
    assert not is_url("odd://x.sqlite")  # it is there, so it is a path
    assert [os.fspath(p) for p in find_reports(["odd://x.sqlite"])] == ["odd:/x.sqlite"]


def test_a_file_that_holds_nothing_is_a_report_among_those_that_are_named_so(tmp_path):
    names = ("rank0.json.gz", "rank1.json.gz", "rank2.json.gz", "notes.txt", "empty.json", "sub/rank3.json.gz")
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).touch()
    trace = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}).encode()
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(trace))
    (tmp_path / "rank2.json.gz").write_bytes(bytes(5000))
    reports = [p.name for p in find_reports([str(tmp_path)])]
    assert reports == ["rank0.json.gz", "rank1.json.gz", "rank2.json.gz"]
    for name, found in (("rank1.json.gz", "it is empty"), ("rank2.json.gz", "it begins with zeros")):
        with pytest.raises(InputError, match=found):
            open_report(tmp_path / name)
