"""The cache: keyed by content, made once by two at once, limited in size, complete or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import fsspec
import pytest

from alltrace.run import cache, importer
from alltrace.run.cache import fetch, fetch_all
from alltrace.run.json_files import read_json
from alltrace.run.manifest import MANIFEST, read_manifest
from alltrace.run.resolve import resolve
from alltrace.run.store import Run
from alltrace.trace.errors import InputError, StrictError, UsageError


@pytest.fixture
def copy(reports, tmp_path):
    return shutil.copytree(reports, tmp_path / "in")


@pytest.fixture
def imports(monkeypatch):
    """How often reports were imported."""
    made = []
    real = importer.import_reports

    def counting(inputs, run, **options):
        made.append(run)
        return real(inputs, run, **options)

    monkeypatch.setattr(importer, "import_reports", counting)
    return made


def test_a_run_is_itself(tiny_run, tmp_path):
    assert resolve([str(tiny_run)], cache_dir=tmp_path / "cache") == tiny_run
    assert not (tmp_path / "cache").exists()


def test_made_once_and_found_again(copy, tmp_path, imports):
    first = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == first
    moved = shutil.move(copy, tmp_path / "moved")
    assert resolve([str(moved)], cache_dir=tmp_path / "cache", jobs=1) == first
    assert resolve([str(moved / "tiny_rank1.sqlite"), str(moved)], cache_dir=tmp_path / "cache", jobs=1) == first
    assert len(imports) == 1


def test_content_that_changed_in_place_is_another_run(copy, tmp_path):
    """Same name, same size, same times."""
    report = copy / "tiny_rank0.sqlite"
    first = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    before = report.stat()
    data = report.read_bytes()
    report.write_bytes(data.replace(b"node001", b"node007"))
    os.utime(report, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    assert first != second
    assert Run(second).hosts[0] == "node007"


def test_a_report_that_was_written_after_its_export_is_warned_of_also_where_the_run_is_known(copy, tmp_path):
    def warnings():
        run = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
        return [w for r in read_manifest(run).reports for w in map(str, r.warnings) if "older" in w]

    assert warnings() == []
    (copy / "tiny_rank1.nsys-rep").write_bytes(b"")
    os.utime(copy / "tiny_rank1.nsys-rep", (1, 1))
    assert warnings() == []
    os.utime(copy / "tiny_rank1.nsys-rep")
    assert warnings() == ["The export is older than the report tiny_rank1.nsys-rep next to it."]


def test_hashes_are_remembered_only_once_they_are_settled(copy, tmp_path, monkeypatch):
    hashes = tmp_path / "hashes.json"
    fresh = cache._Hashes(hashes)
    report = copy / "tiny_rank0.sqlite"
    digest = fresh.of([report])
    os.utime(copy / "tiny_rank0.sqlite", (0, 0))  # an old time on a file that is young all the same
    assert cache._Hashes(hashes).of([report]) == digest
    fresh.save()
    assert not hashes.exists()
    later = time.time_ns() + 10**10
    monkeypatch.setattr(cache.time, "time_ns", lambda: later)
    settled = cache._Hashes(hashes)
    settled.of([report])
    settled.save()
    assert [v[1] for v in read_json(hashes).values()] == [digest[report]]
    hashes.write_text("[1, 2]")
    assert cache._Hashes(hashes).of([report]) == digest


def test_which_reports_lie_together_is_part_of_the_key(reports, tmp_path):
    keys = set()
    for first, second in (("a", "a"), ("a", "b")):
        places = [tmp_path / f"{first}{second}" / folder / f"x.{n}.sqlite" for n, folder in ((1, first), (2, second))]
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(reports / "tiny_rank0.sqlite", place)
        keys.add(cache._key(cache._Hashes(tmp_path / "hashes.json"), places, None, {}, ())[0])
    assert len(keys) == 2


def test_a_run_cut_short_is_gone_on_with(copy, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(importer, "_finish", stop)
    with pytest.raises(KeyboardInterrupt):
        resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    monkeypatch.undo()
    (left,) = (p for p in (tmp_path / "cache" / "runs").iterdir() if p.is_dir())
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == left
    assert Run(left).manifest.complete


def test_strict_is_strict_about_what_is_in_the_cache(copy, tmp_path):
    (copy / "tiny_rank2.sqlite").write_bytes(b"")
    run = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    with pytest.raises(StrictError, match="tiny_rank2"):
        resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1, strict=True)
    assert Run(run).manifest.complete


def test_a_report_that_can_be_read_by_now_is_read(copy, tmp_path, imports, monkeypatch):
    """As a .nsys-rep can once an nsys is installed; the run that others may read stays as it is."""
    real = importer.open_report

    def unable(path, **more):
        if path.name == "tiny_rank1.sqlite":
            raise InputError(path, found="there is no nsys")
        return real(path, **more)

    monkeypatch.setattr(importer, "open_report", unable)
    monkeypatch.setattr(cache, "open_report", unable)
    first = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == first
    assert len(imports) == 1
    monkeypatch.setattr(importer, "open_report", real)
    monkeypatch.setattr(cache, "open_report", real)
    second = resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)
    assert (len(Run(first).ranks), len(Run(second).ranks)) == (1, 2)
    assert second != first
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == second


RESOLVE = """
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from alltrace.run.resolve import resolve
print(resolve([sys.argv[1]], cache_dir=Path(sys.argv[2]), jobs=1))
"""


def test_two_at_once_make_one_run(copy, tmp_path):
    command = [sys.executable, "-c", RESOLVE, str(copy), str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [p.communicate(timeout=60) for p in both]
    assert [p.returncode for p in both] == [0, 0], told
    assert told[0] == told[1]
    assert len([p for p in (tmp_path / "cache" / "runs").iterdir() if p.is_dir()]) == 1


def test_what_was_used_longest_ago_goes_first(reports, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    runs = []
    for n in range(3):
        place = tmp_path / f"in{n}"
        place.mkdir()
        shutil.copy(reports / "tiny_rank0.sqlite", place / f"r{n}.sqlite")
        runs.append(resolve([str(place)], cache_dir=folder, jobs=1))
        os.utime(runs[-1] / MANIFEST, (1000 + n, 1000 + n))
    resolve([str(tmp_path / "in0")], cache_dir=folder, jobs=1)  # used again
    size = sum(p.stat().st_size for p in runs[0].rglob("*") if p.is_file())
    monkeypatch.setenv("ALLTRACE_CACHE_BYTES", str(int(size * 2.5)))
    (folder / "fetched" / "old").mkdir(parents=True)
    (folder / "fetched" / "old" / "x").write_bytes(b"x" * size)
    os.utime(folder / "fetched" / "old", (1, 1))
    cache._shrink(folder, keep="")
    assert [r.exists() for r in runs] == [True, False, True]
    assert not (folder / "fetched" / "old").exists()
    monkeypatch.setenv("ALLTRACE_CACHE_BYTES", "0")
    cache._shrink(folder, keep=runs[2].name.partition(".")[0])
    assert [r.exists() for r in runs] == [False, False, True]


def test_a_run_that_is_being_made_is_not_removed(copy, tmp_path):
    folder = tmp_path / "cache"
    run = resolve([str(copy)], cache_dir=folder, jobs=1)
    with cache.locked(cache._lock(folder / "runs", run.name)):
        assert not cache._remove_unless_locked(run)
    assert read_manifest(run).complete
    assert cache._remove_unless_locked(run)
    assert not run.exists()


@pytest.mark.parametrize("place", ["cache", "cache/runs"])
def test_a_cache_that_cannot_be_written_is_a_sentence(copy, tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("a file")
    with pytest.raises(
        InputError, match=r"cache: the cache cannot be written \(.*\); give another folder with --cache-dir"
    ):
        resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)


def test_no_input_at_all(tmp_path):
    with pytest.raises(UsageError, match="no run was given"):
        resolve([], cache_dir=tmp_path)


def test_reports_by_url(reports, tmp_path, imports):
    folder = tmp_path / "cache"
    memory = fsspec.filesystem("memory")
    memory.put(str(reports / "tiny_rank0.sqlite"), "/job/tiny_rank0.sqlite")
    memory.put(str(reports / "tiny_rank1.sqlite"), "/job/tiny_rank1.sqlite")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for n in range(2):
            archive.write(reports / f"tiny_rank{n}.sqlite", f"tiny_rank{n}.sqlite")
    plain = resolve([str(reports)], cache_dir=folder, jobs=1)
    assert resolve([reports.as_uri()], cache_dir=folder, jobs=1) == plain
    assert resolve(["memory://job"], cache_dir=folder, jobs=1) == plain
    urls = ["memory://job/tiny_rank0.sqlite", f"zip://tiny_rank1.sqlite::file://{tmp_path}/all.zip"]
    assert len(imports) == 1
    assert [r.rank for r in Run(resolve(urls, cache_dir=folder, jobs=1)).ranks] == [0, 1]
    place = fetch("memory://job", folder)
    memory.pipe("/job/tiny_rank1.sqlite", b"x" * (reports / "tiny_rank1.sqlite").stat().st_size)
    assert fetch("memory://job", folder) != place
    assert not list((folder / "fetched").glob("*/.*"))
    memory.rm("/job", recursive=True)


def test_reports_of_one_remote_folder_lie_in_one_folder(tmp_path):
    """Reports of one process are told by their folder: as capture ranges that are copied here, or named by their
    addresses."""
    memory = fsspec.filesystem("memory")
    names = ("a/rep.1.sqlite", "a/rep.2.sqlite", "b/rep.1.sqlite", "b/other.sqlite")
    for name in names:
        memory.pipe(f"/ranges/{name}", name.encode())
    urls = [f"memory://ranges/{name}" for name in names]
    places = fetch_all([*urls, "memory://ranges/b"], tmp_path)
    assert [p.read_text() for p in places[:4]] == list(names)
    assert [p.name for p in places] == ["rep.1.sqlite", "rep.2.sqlite", "rep.1.sqlite", "other.sqlite", "b"]
    assert places[0].parent == places[1].parent != places[2].parent == places[3].parent
    assert fetch_all(urls, tmp_path) == places[:4]
    assert len({places[0].stat().st_ino, fetch(urls[0], tmp_path).stat().st_ino}) == 1  # the bytes are there once
    memory.pipe("/ranges/a/rep.2.sqlite", b"written again")
    again = fetch_all(urls[:2], tmp_path)
    assert [p.read_text() for p in again] == [names[0], "written again"]
    assert places[1].read_text() == names[1]  # what another command reads stays
    memory.rm("/ranges", recursive=True)


def test_capture_ranges_by_address_are_one_rank(reports, tmp_path):
    names = [tmp_path / f"rep.{number}.sqlite" for number in (1, 2)]
    for name in names:
        shutil.copy(reports / "tiny_rank0.sqlite", name)
    here = Run(resolve([str(p) for p in names], cache_dir=tmp_path / "cache", jobs=1))
    there = Run(resolve([p.as_uri() for p in names], cache_dir=tmp_path / "other", jobs=1))
    assert [r.rank for r in here.ranks] == [r.rank for r in there.ranks] == [0]
    assert here.ranks[0].rows == there.ranks[0].rows


def test_a_report_by_a_signed_address(reports, tmp_path):
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(reports))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = fetch(
            f"http://127.0.0.1:{server.server_port}/tiny_rank0.sqlite?X-Amz-Signature={'a' * 300}&x=*", tmp_path
        )
        server.shutdown()
    assert place.name == "tiny_rank0.sqlite"
    assert place.read_bytes() == (reports / "tiny_rank0.sqlite").read_bytes()


@pytest.mark.parametrize(
    "url", ["memory://nowhere", "nosuch://x", "zip://x::file:///nowhere.zip", "file:///nowhere/x.sqlite"]
)
def test_a_url_that_cannot_be_fetched_is_a_sentence(tmp_path, url):
    with pytest.raises(
        InputError, match=rf"{re.escape(url)}: it cannot be fetched \(.*\); check the URL, or copy"
    ) as caught:
        resolve([url], cache_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_script_without_a_main_guard_is_not_run_again(copy, tmp_path):
    lines = [
        "import alltrace, pathlib, sys",
        "print('once')",
        "run = alltrace.open(sys.argv[1], cache_dir=pathlib.Path(sys.argv[2]))",
        "print(len(run.ranks))",
    ]
    (tmp_path / "script.py").write_text("\n".join(lines))
    command = [sys.executable, str(tmp_path / "script.py"), str(copy), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("once\n2\n", "")


def test_a_whole_run_is_never_rewritten(copy, tmp_path, monkeypatch):
    (copy / "tiny_rank2.sqlite").write_bytes(b"")
    runs = [resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1)]
    before = (runs[0] / MANIFEST).read_bytes()
    monkeypatch.setattr(cache, "_opens", lambda report: len(runs) == 1)
    runs.append(resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1))
    assert [r.name.partition(".")[2] for r in runs] == ["", "1"]
    assert (runs[0] / MANIFEST).read_bytes() == before
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == runs[0]
    (runs[0] / MANIFEST).write_text(json.dumps({"format_version": 1}))
    assert resolve([str(copy)], cache_dir=tmp_path / "cache", jobs=1) == runs[0]
    assert (runs[0] / MANIFEST).read_bytes() == before
