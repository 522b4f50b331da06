import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from alltrace.cli.main import main
from alltrace.history.store import open_history

pytest.importorskip("uvicorn")


def answered(address, asked, headers):
    """Whether there is an answer within 20 s; before the run is aligned there is none."""
    query = urllib.request.Request(address, json.dumps(asked).encode(), {"Content-Type": "application/json", **headers})
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(query) as found:
                return "rows" in json.load(found)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                return False
            time.sleep(0.1)
    return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_prints_the_address_and_serves_the_run_until_it_is_stopped(run, tmp_path, how):
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "alltrace.cli.main", "ui", run, "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            address = server.stdout.readline().strip()
            parts = urlsplit(address)
            assert (parts.scheme, parts.hostname, parts.path) == ("http", "127.0.0.1", "/")
            assert parts.query.startswith("token=")
            bearer = {"authorization": f"Bearer {parts.query.removeprefix('token=')}"}
            # which makes temporary files
            assert answered(f"http://{parts.netloc}/api/recipe", {"name": "kernels"}, bearer)
            with urllib.request.urlopen(
                urllib.request.Request(f"http://{parts.netloc}/api/run", headers=bearer)
            ) as found:
                facts = json.load(found)
            assert (facts["alltrace"], facts["run"]["ranks"]) == (1, 2)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"http://{parts.netloc}/api/run")
        finally:
            server.send_signal(how)
            assert server.wait(20) == (0 if how == signal.SIGINT else 128 + signal.SIGTERM)
        said = server.stderr.read().strip()
        tunnel = f"ssh -L {parts.port}:127.0.0.1:{parts.port} {socket.gethostname()}"
        assert said == f"From another machine: {tunnel}, then open the same address there. Ctrl-C stops the server."
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "expected a number from 0 to 65535"),
        (["--port", "x"], "expected a number from 0 to 65535"),
        (["--host", "no.such.host.invalid"], "is not an address of this machine"),
        (["--host", "192.0.2.1"], "cannot listen on"),
    ],
)
def test_what_cannot_be_listened_on_is_refused(alltrace, run, options, message):
    done = alltrace("ui", run, "--no-browser", *options)
    assert (done.code, message in done.err) == (2, True)


def test_what_is_no_run_is_refused(alltrace, tmp_path):
    assert alltrace("ui", str(tmp_path / "nothing"), "--no-browser").code == 3


def test_reports_of_kernels_are_read_before_anything_is_served(alltrace, run, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("alltrace.ui.serve.serve", lambda paths, _names, **more: served.append((paths, more)))
    head = '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"'
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.csv").write_text(
            f'{head}\n"","","","","ns"\n"0","gemm()","(8, 1, 1)","(4, 1, 1)","70"\n'
        )
    pages = [str(tmp_path / f / "page.csv") for f in ("one", "two")]
    assert alltrace("ui", run, "--no-browser", "--ncu", *pages).code == 0
    ((paths, more),) = served
    assert (len(paths), more["kernels"].names) == (1, pages)
    (tmp_path / "bad.ncu-rep").write_bytes(b"nothing of the kind")
    done = alltrace("ui", run, "--no-browser", "--ncu", str(tmp_path / "bad.ncu-rep"))
    assert (done.code, len(served)) == (3, 1)
    assert "bad.ncu-rep" in done.err


def test_a_history_is_opened_before_anything_is_served(alltrace, run, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("alltrace.ui.serve.serve", lambda paths, _names, **more: served.append((paths, more)))
    with open_history(tmp_path / "h.duckdb", write=True):
        pass
    assert alltrace("ui", run, "--no-browser", "--history", str(tmp_path / "h.duckdb")).code == 0
    ((_, more),) = served
    assert more["history"].name == "h.duckdb"
    done = alltrace("ui", run, "--no-browser", "--history", str(tmp_path / "none.duckdb"))
    assert (done.code, len(served)) == (3, 1)
    assert "none.duckdb" in done.err


def test_without_its_libraries_it_says_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["ui", run, "--no-browser"]) == 3
    assert "install alltrace[ui]" in capsys.readouterr().err


def test_a_browser_is_given_a_file_of_the_user_alone_and_no_token(tmp_path):
    from alltrace.ui.serve import redirect_page

    address = "http://127.0.0.1:7/?token=secret&x"
    page = redirect_page(address, tmp_path)
    assert page.stat().st_mode & 0o777 == 0o600
    assert "secret" not in page.as_uri()
    assert 'content="0;url=http://127.0.0.1:7/?token=secret&amp;x"' in page.read_text()


def test_a_run_is_called_as_it_was_typed(alltrace, run, monkeypatch):
    called = {}
    monkeypatch.setattr("alltrace.ui.serve.serve", lambda paths, names, **_: called.update(paths=paths, names=names))
    typed = f"{run}/."
    assert alltrace("ui", run, typed, "--no-browser").code == 0
    assert called["names"] == [str(run), typed]
