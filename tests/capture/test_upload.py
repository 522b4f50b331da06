from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from alltrace.capture import upload as module
from alltrace.capture.upload import upload
from alltrace.trace.errors import InputError, UsageError

WHOLE = b"NVIDIA Tegra Profiler Report 2023 body [END]"


@pytest.fixture
def reports(tmp_path):
    folder = tmp_path / "all reports"
    (folder / "traces").mkdir(parents=True)
    (folder / "a.nsys-rep").write_bytes(WHOLE)
    (folder / "cut.nsys-rep").write_bytes(WHOLE[:-3])
    (folder / "traces" / "b #1.json").write_bytes(b"{}")
    (folder / ".hidden").write_bytes(b"x")
    return folder


def test_every_file_arrives_once_and_what_is_cut_is_said(reports, tmp_path):
    said = []
    target = tmp_path / "bucket" / "77"
    found = upload(reports, f"file://{target}", said.append)
    assert (found.copied, found.present, found.size) == (3, 0, len(WHOLE) * 2 - 3 + 2)
    assert [(p.name, fault) for p, fault in found.faults] == [
        ("cut.nsys-rep", f"it is cut off after {len(WHOLE) - 3} bytes; it is copied as it is")
    ]
    assert sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()) == [
        "a.nsys-rep",
        "cut.nsys-rep",
        "traces/b #1.json",
    ]
    assert said[0] == f"a.nsys-rep, {len(WHOLE)} bytes"
    (target / "a.nsys-rep").write_bytes(b"older")
    again = upload(reports, f"file://{target}/", said.append)
    assert (again.copied, again.present) == (1, 2)
    assert (target / "a.nsys-rep").read_bytes() == WHOLE


def test_what_does_not_arrive_whole_is_tried_again_and_then_said(reports, monkeypatch):
    system = fsspec.filesystem("memory")
    tries = []

    def put_file(local, target, **_):
        tries.append(target)
        if target.endswith("a.nsys-rep") and tries.count(target) < 3:
            raise ConnectionError("gone")
        content = b"" if "traces" in target else Path(local).read_bytes()
        system.pipe_file(target, content)

    monkeypatch.setattr(type(system), "put_file", lambda self, *a, **k: put_file(*a, **k))
    found = upload(reports, "memory://bucket/x", lambda _: None)
    system.rm("/bucket", recursive=True)
    assert tries.count("/bucket/x/a.nsys-rep") == 3
    assert found.copied == 2
    (fault,) = [f for p, f in found.faults if p.name == "b #1.json"]
    assert fault == "/bucket/x/traces/b #1.json has 0 bytes after copying, and the file has 2"


def test_what_cannot_be_uploaded(reports, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no such folder"):
        upload(tmp_path / "no", "file:///x", print)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no files in it"):
        upload(tmp_path / "empty", "file:///x", print)
    with pytest.raises(UsageError, match="is no URL"):
        upload(reports, "bucket/x", print)
    with pytest.raises(UsageError, match="cannot be written to"):
        upload(reports, "nonsense://bucket/x", print)

    def missing(url):
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(UsageError, match="nothing here opens s3:// URLs; pip install s3fs"):
        upload(reports, "s3://bucket/x", print)
    assert module._EXTRAS["gs"] == "gcsfs"


def test_the_command_says_what_came_of_it(capture, reports, tmp_path):
    done = capture("upload", reports, f"file://{tmp_path}/bucket")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == f"3 files, {len(WHOLE) * 2 - 1} bytes copied to file://{tmp_path}/bucket"
    assert "cut.nsys-rep: it is cut off" in done.stderr
    (reports / "cut.nsys-rep").unlink()
    done = capture("upload", reports, f"file://{tmp_path}/bucket")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith(", 2 were there already")
