from pathlib import Path

import fsspec
import pytest
from tests.capture.put_server import putting

from alltrace.capture import stores
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
    found = upload([reports], f"file://{target}", said.append)
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
    again = upload([reports], f"file://{target}/", said.append)
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
    found = upload([reports], "memory://bucket/x", lambda _: None)
    system.rm("/bucket", recursive=True)
    assert tries.count("/bucket/x/a.nsys-rep") == 3
    assert found.copied == 2
    (fault,) = [f for p, f in found.faults if p.name == "b #1.json"]
    assert fault == "/bucket/x/traces/b #1.json has 0 bytes after copying, and the file has 2"


def test_what_cannot_be_uploaded(reports, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no such file or folder"):
        upload([tmp_path / "no"], "file:///x", print)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no files in it"):
        upload([tmp_path / "empty"], "file:///x", print)
    with pytest.raises(UsageError, match="is not a URL"):
        upload([reports], "bucket/x", print)
    with pytest.raises(UsageError, match="cannot be written to"):
        upload([reports], "nonsense://bucket/x", print)

    def missing(url):
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(UsageError, match="nothing here opens s3:// URLs; pip install s3fs"):
        upload([reports], "s3://bucket/x", print)
    assert stores._EXTRAS["gs"] == "gcsfs"


def test_the_command_says_what_came_of_it(capture, reports, tmp_path):
    done = capture("upload", reports, f"file://{tmp_path}/bucket")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == f"3 files, {len(WHOLE) * 2 - 1} bytes copied to {tmp_path}/bucket"
    assert "cut.nsys-rep: it is cut off" in done.stderr
    (reports / "cut.nsys-rep").unlink()
    done = capture("upload", reports, f"file://{tmp_path}/bucket")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith(", 2 were already there")


def test_a_copy_into_a_folder_goes_on_where_it_was_cut_short(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_BLOCK", 1000)
    body = bytes(range(256)) * 40
    (tmp_path / "a.nsys-rep").write_bytes(body)
    store = stores.store_at(f"file://{tmp_path}/shared")
    (tmp_path / "shared").mkdir()
    part = tmp_path / "shared" / ".a.nsys-rep.part"
    for left in (body[:4321], body[:2000] + b"other" * 300, body + b"more"):
        part.write_bytes(left)
        assert store.put(tmp_path / "a.nsys-rep", "a.nsys-rep") == len(body)
        assert (tmp_path / "shared" / "a.nsys-rep").read_bytes() == body
        assert not part.exists()


def test_files_go_to_a_server_by_put_and_what_it_has_a_part_of_is_sent_from_there(reports, capture):
    with putting() as server:
        done = capture("upload", reports, f"http://me:secret@127.0.0.1:{server.port}/p%20q/?token=s3cret")
        assert done.returncode == 3  # one is cut
        assert server.files == {
            "/p%20q/a.nsys-rep": WHOLE,
            "/p%20q/cut.nsys-rep": WHOLE[:-3],
            "/p%20q/traces/b%20%231.json": b"{}",
        }
        assert server.queries == {"token=s3cret"}
        assert server.authorized == {"Basic bWU6c2VjcmV0"}
        assert f"copied to http://127.0.0.1:{server.port}/p%20q\n" in done.stdout
        assert "s3cret" not in done.stdout + done.stderr
        server.asked.clear()
        assert ", 3 were already there" in capture("upload", reports, f"http://127.0.0.1:{server.port}/p%20q").stdout
        assert {method for method, _ in server.asked} == {"HEAD"}
        server.files["/p%20q/a.nsys-rep"] = WHOLE[:20]
        server.received.clear()
        capture("upload", reports, f"http://127.0.0.1:{server.port}/p%20q")
        assert server.received == [len(WHOLE) - 20]
        assert server.files["/p%20q/a.nsys-rep"] == WHOLE


@pytest.mark.parametrize("ranges", ["refused", "ignored"])
def test_a_server_that_takes_no_parts_gets_all_of_it(reports, ranges):
    with putting(ranges=ranges) as server:
        server.files["/a.nsys-rep"] = WHOLE[:20]
        found = upload([reports / "a.nsys-rep"], f"http://127.0.0.1:{server.port}", lambda _: None)
        assert (found.copied, found.faults) == (1, ())
        assert server.files["/a.nsys-rep"] == WHOLE


def test_a_server_that_fails_is_said_in_a_sentence_and_the_report_stays(reports, capture):
    report = reports / "a.nsys-rep"
    with putting(fails=507) as server:
        done = capture("upload", report, f"http://127.0.0.1:{server.port}/x")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"alltrace capture: {report}: it cannot be copied to http://127.0.0.1:{server.port}/x/a.nsys-rep (HTTPError"
    )
    assert "507" in line
    assert report.read_bytes() == WHOLE
    gone = capture("upload", report, f"http://127.0.0.1:{server.port}/x")
    assert (gone.returncode, len(gone.stderr.splitlines())) == (3, 1)
    assert "Connection refused" in gone.stderr


def test_only_what_was_scrubbed_leaves(tmp_path, capture):
    from alltrace.synth import write_run

    write_run("healthy", tmp_path / "reports", ranks=2, steps=2, ideal=True)
    (tmp_path / "reports" / "r.pt.trace.json.gz").write_bytes(b"x")
    (tmp_path / "reports" / "j_on_n0.gpu-log.csv").write_text("timestamp")
    with putting() as server:
        done = capture("upload", "--scrub", "reports", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 3
    assert "r.pt.trace.json.gz: it is not a report of nsys, so it cannot be scrubbed; it is not copied" in done.stderr
    sent = sorted(server.files)
    assert "/j_on_n0.gpu-log.csv" in sent
    assert sum(name.endswith(".sqlite") for name in sent) == 2
    assert not any(name.endswith(".gz") for name in sent)
    for name, body in server.files.items():
        if name.endswith(".sqlite"):
            assert body != (tmp_path / "reports" / name[1:]).read_bytes()


def test_a_part_of_another_file_is_not_continued_and_a_password_stays(reports):
    with putting() as server:
        server.files["/a.nsys-rep"] = b"another capture of old"
        found = upload([reports / "a.nsys-rep"], f"http://127.0.0.1:{server.port}", lambda _: None)
        assert (found.copied, found.faults) == (1, ())
        assert server.files["/a.nsys-rep"] == WHOLE
    with putting() as server, putting() as other:
        server.elsewhere = f"http://127.0.0.1:{other.port}/"
        upload([reports / "a.nsys-rep"], f"http://me:secret@127.0.0.1:{server.port}", lambda _: None)
        assert other.asked == []
    assert stores.public_url("https://me:secret@host:8/a?token=x") == "https://host:8/a"
