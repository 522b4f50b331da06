"""Reports and answers on an object store: a local server that speaks S3."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec

import pytest

from alltrace.synth import write_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("moto") is None or find_spec("s3fs") is None, reason="no moto server or no s3fs here"),
]


def ask(url, method="GET"):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, method=method), timeout=5) as answer:
        return answer.read()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The address of a server with the empty bucket `reports`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("store") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                ask(f"{url}/reports", "PUT")
                break
            except urllib.error.URLError:
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def alltrace(store, tmp_path):
    """Runs the command with access to the store; gives its exit code and what it wrote."""
    environment = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("AWS_")
    }
    environment.update(
        {
            "AWS_ENDPOINT_URL": store,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "ALLTRACE_CACHE_DIR": str(tmp_path / "cache"),
        }
    )

    def run(*arguments):
        command = [sys.executable, "-m", "alltrace.cli.main", *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_reports_go_up_once_come_back_as_a_run_and_its_answers_are_written_there(alltrace, store, tmp_path):
    write_run("tiny", tmp_path / "all reports", ideal=True)
    count = sum(p.is_file() for p in (tmp_path / "all reports").rglob("*"))
    code, out, err = alltrace("capture", "upload", "all reports", "s3://reports/77")
    assert (code, out.split(",")[0]) == (0, f"{count} files"), err
    code, out, _ = alltrace("capture", "upload", "all reports", "s3://reports/77")
    assert code == 0
    assert f"{count} were already there" in out

    here, there = (json.loads(alltrace("info", at, "--format", "json")[1]) for at in ("all reports", "s3://reports/77"))
    assert len(here["rows"]) == len(there["rows"]) > 1
    drop = {"reports"}
    assert [{k: v for k, v in r.items() if k not in drop} for r in there["rows"]] == [
        {k: v for k, v in r.items() if k not in drop} for r in here["rows"]
    ]

    code, _, err = alltrace("recipe", "all", "all reports", "-o", "s3://reports/answers")
    assert code == 0, err
    listed = ask(f"{store}/reports?list-type=2&prefix=answers/").decode()
    assert listed.count("<Key>answers/") == listed.count("<Key>") > 5
    assert ".parquet</Key>" in listed


def test_a_bucket_that_is_not_there_is_said(alltrace, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.txt").write_text("a")
    code, _, err = alltrace("capture", "upload", "x", "s3://no-such-bucket/77")
    assert code == 3
    assert "a.txt" in err
    assert "Traceback" not in err
    code, _, err = alltrace("info", "s3://no-such-bucket/77")
    assert code == 3
    assert "s3://no-such-bucket/77" in err
    assert "Traceback" not in err
