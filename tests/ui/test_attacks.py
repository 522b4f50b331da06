"""Attacks on the page that the command serves: by scripts, by another user's process, and by what a trace holds in
every view.

`test_origin.py` has what other pages of a browser try. After each attack the server has to answer the next request
within a second.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.browser import served
from tests.ui.conftest import HOSTILE, TOKEN

pytestmark = pytest.mark.slow
SECRET = "what-nobody-else-may-read"
NOBODY = 65534
SOON_S = 1.0


class Served:
    """A page that the command serves, and what a client can ask of it."""

    def __init__(self, address, process, run):
        parts = urlsplit(address)
        self.process, self.run, self.port, self.token = process, run, parts.port, parts.query.removeprefix("token=")

    def ask(self, path, body=None, **headers):
        """The status and text of an answer, with the token."""
        own = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return self.send(
            "GET" if body is None else "POST",
            path,
            body,
            **(own | {n.replace("_", "-"): v for n, v in headers.items()}),
        )

    def send(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, text, {n: v for n, v in headers.items() if v is not None})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def goes_on(self):
        """Fail unless the next request is answered within a second."""
        begun = time.monotonic()
        status, text = self.ask("/api/state")
        assert (status, self.process.poll()) == (200, None), text
        assert time.monotonic() - begun < SOON_S


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A run with names that are markup, in a folder with a file that is a secret."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    rows = rank_rows()
    rows["kernels"][0] |= {"name": HOSTILE, "short_name": HOSTILE}
    rows["ranges"][0] |= {"name": HOSTILE}
    make_run(tmp_path / "run", {0: rows, 1: rank_rows(5)}, notes=(HOSTILE,))
    (tmp_path / "secret.csv").write_text(f"a\n{SECRET}\n")
    return tmp_path


@pytest.fixture
def page(place):
    """The page, by the command, once it is ready."""
    (place / "temporary").mkdir()
    command = [sys.executable, "-m", "alltrace.cli.main", "ui", str(place / "run"), "--no-browser"]
    environment = {**os.environ, "TMPDIR": str(place / "temporary")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            found = Served(process.stdout.readline().strip(), process, place / "run")
            until = time.monotonic() + 60
            while not json.loads(found.ask("/api/state")[1])["ready"]:
                assert time.monotonic() < until
                time.sleep(0.1)
            yield found
        finally:
            process.terminate()


@pytest.fixture
def listening():
    """A server that nobody should turn to, with the requests that it got."""

    class Listens(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Listens)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


REQUESTS = {
    "no token": {"Authorization": None},
    "another token": {"Authorization": "Bearer wrong"},
    "the token as a cookie": {"Authorization": None, "Cookie": "alltrace=TOKEN; token=TOKEN"},
    "the token in the address": {"Authorization": None, "path": "?token=TOKEN"},
    "a foreign name (DNS rebinding)": {"Host": "evil.example"},
    "a foreign name with the port": {"Host": "evil.example:PORT"},
    "the name of another address": {"Host": "127.0.0.2:PORT"},
    "another origin": {"Origin": "http://127.0.0.1:1"},
    "an opaque origin": {"Origin": "null"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port of the host": {"Sec-Fetch-Site": "same-site"},
    "a websocket": {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA==",
        "Origin": "http://evil.example",
    },
    "an EventSource": {"Accept": "text/event-stream", "Origin": "http://evil.example"},
}  # fmt: skip


def test_requests_that_are_not_the_pages_are_refused(page):
    paths = [f"/api/{name}" for name in ("run", "state", "findings", "notes", "recipes", "by-rank", "matrix")]
    for what, headers in REQUESTS.items():
        mine = {n: v and v.replace("TOKEN", page.token).replace("PORT", str(page.port)) for n, v in headers.items()}
        suffix = mine.pop("path", "")
        for path in paths:
            status, text = page.ask(path + suffix, **mine)
            assert status in (403, 421), (what, path, text)
            assert "kernels" not in text
        status, text = page.ask("/api/note-add", {"text": "owned", "start": 0, "end": 0, "ranks": []}, **mine)
        assert status in (403, 421), (what, text)
        page.goes_on()
    assert not (page.run / "notes.json").exists()


def test_no_path_leads_out_of_the_page(page):
    for path in (
        "/static/../api.py",
        "/../manifest.json",
        "//etc/passwd",
        "/api/%2e%2e/%2e%2e/etc/passwd",
        "/static/%00",
        "/" + "a" * 60_000,
    ):
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"):
            status, text = page.send(method, path, Authorization=f"Bearer {page.token}")
            assert 400 <= status < 500, (method, path[:40])
            assert "root:" not in text
        page.goes_on()


@pytest.mark.nightly  # a process for each query; the fence is tested by itself too
def test_no_query_reads_or_writes_a_file_or_asks_another_server_or_stops_this_one(page, place, listening):
    file, url = place / "secret.csv", f"http://127.0.0.1:{listening.server_port}/x"
    queries = [
        *(f"select * from read_{kind}('{where}')" for kind in ("text", "csv", "blob", "json") for where in (
            file, f"{page.run}/../secret.csv", f"{page.run}/./../secret.csv", f"{page.run}/ranks/../../secret.csv",
            f"{url}.csv"
        )),
        f"select * from '{file}'", f"select * from '{url}.parquet'", f"select * from read_parquet('{url}')",
        "select * from glob('/etc/*')",
        f"copy kernels to '{place}/out.csv'", f"copy kernels from '{file}'", f"attach '{place}/out.db'",
        "install httpfs", "load httpfs", "pragma database_list", "call pragma_version()",
        "set enable_external_access=true", "select getenv('HOME')",
        f"explain analyze copy (select 1) to '{place}/out.csv'", "select * from read_text('/proc/self/environ')",
        f"export database '{place}/out'", "create table t as select 1", "select 1; select 2",
        "select list_sum(range(2000000000))", "select repeat('x', 3000000000)",
        "select count(*) from range(100000000000) a where regexp_matches(a.range::varchar, '(1+1+)+2')",
    ]  # fmt: skip
    for query in queries:
        for path in ("sql", "laid") if "read_text" in query or "list_sum" in query else ("sql",):
            status, text = page.ask(f"/api/{path}", {"query": query})
            assert status == 400, (query, text)
            assert SECRET not in text
            page.goes_on()
    assert listening.asked == []
    assert sorted(p.name for p in place.iterdir()) == ["run", "secret.csv", "temporary"]


def test_the_server_goes_on_while_a_query_takes_all_its_time_and_memory(page):
    begun = threading.Thread(target=page.ask, args=("/api/sql", {"query": "select list_sum(range(2000000000))"}))
    begun.start()
    asked = 0
    while begun.is_alive():
        page.goes_on()
        asked += 1
        time.sleep(0.1)
    assert asked
    page.goes_on()


def test_neither_notes_nor_patterns_nor_options_break_it(page, place):
    hostile = ["\ud800", "\x00", HOSTILE, "a" * 20_000, 5, None]
    for text in hostile:
        status, said = page.ask("/api/note-add", {"text": text, "start": 0, "end": 1, "ranks": [0]})
        assert status == (200 if text == HOSTILE else 400), said
        page.goes_on()
    for ranks in ([-1], [99], [1 << 70], ["0"]):
        assert page.ask("/api/note-add", {"text": "x", "start": 0, "end": 1, "ranks": ranks})[0] == 400
    assert [n["text"] for n in json.loads(page.ask("/api/notes")[1])["notes"]] == [HOSTILE]
    for name, options in (
        ("whatif", {"kernel": r"(\w+)+!"}), ("whatif", {"kernel": "(a|a)*$b"}),
        ("kernel-sequences", {"regex": "(a+)+$"}), ("collectives", {"nccl_tests": str(place / "secret.csv")}),
        ("efficiency", {"reference": str(place)}),
    ):  # fmt: skip
        status, said = page.ask("/api/recipe", {"name": name, "options": options})
        assert status in (200, 400, 422), said
        assert SECRET not in said
        page.goes_on()


@pytest.mark.parametrize("link", ["ranks/rank=0/kernels.parquet", "names.parquet", "notes.json", "manifest.json"])
def test_a_link_inside_the_run_shows_nothing_of_what_it_leads_to(page, place, link):
    target = place / "secret.csv"
    (page.run / link).unlink(missing_ok=True)
    (page.run / link).symlink_to(target)
    asked = [
        ("events", {"tables": ["kernels"], "start": 0, "end": 10**9, "ranks": [0]}),
        ("sql", {"query": "select * from kernels"}), ("recipe", {"name": "kernels"}), ("search", {"pattern": "a"}),
        ("note-add", {"text": "x", "start": 0, "end": 0, "ranks": []}), ("run", None), ("notes", None),
    ]  # fmt: skip
    for path, body in asked:
        _, text = page.ask(f"/api/{path}", body)
        assert SECRET not in text
        page.goes_on()
    assert target.read_text() == f"a\n{SECRET}\n"


def test_long_bodies_and_connections_that_say_nothing_keep_nobody_out(page):
    status, _ = page.ask("/api/sql", b'{"query": "' + b"x" * (8 << 20) + b'"}')
    assert status == 400
    page.goes_on()
    held = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(200)]
    for number, connection in enumerate(held):
        connection.sendall(b"POST /api/sql HTTP/1.1\r\nContent-Length: 999999\r\n" if number % 2 else b"GET ")
    page.goes_on()
    for connection in held:
        connection.close()
    page.goes_on()


LOOKS = """
import http.client, json, os, sys
import encodings.idna
pid, port, places = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
seen = [open(f"/proc/{pid}/cmdline", "rb").read().decode()]
def tried(read):
    try: seen.append(str(read()))
    except OSError as error: seen.append("refused" if isinstance(error, PermissionError) else str(getattr(error, "code", error)))
for name in ("environ", "mem", "maps"): tried(lambda: open(f"/proc/{pid}/{name}", "rb").read(100))
tried(lambda: [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")])
for place in places:
    for at, folders, files in os.walk(place):
        for name in files: tried(lambda: open(os.path.join(at, name), "rb").read())
for path in ("/", "/api/run", "/api/notes", "/static/main.js"):
    asked = http.client.HTTPConnection("127.0.0.1", int(port))
    asked.request("GET", path)
    seen.append(asked.getresponse().status)
print(json.dumps(seen))
"""  # noqa: E501


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_process_of_another_user_learns_neither_the_token_nor_the_run(page, place, tmp_path_factory):
    outer = tmp_path_factory.getbasetemp().parent.parent
    for folder in (place, *place.parents):  # or else the folders of tests would keep the other user out
        if folder == outer:
            break
        folder.chmod(0o755)
    command = [
        sys.executable,
        "-c",
        LOOKS,
        str(page.process.pid),
        str(page.port),
        str(place / "temporary"),
        str(place / "cache"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen[1] == seen[2] == "refused"
    assert seen[-4:] == [403] * 4
    assert page.token not in done.stdout
    assert "rank_rows" not in done.stdout
    with socket.socket() as other:  # nor can it take the port beside it
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", page.port))
    page.goes_on()


VIEWS = {
    "overview": "", "timeline": "?ranks=0-1&open=0-1&event=0/kernels/0&search=onerror", "events": "?ranks=0",
    "recipes": "?name=kernels", "compare": "", "sql": "", "roofline": "", "matrix": "", "history": "",
}  # fmt: skip


def test_a_name_that_is_markup_is_text_in_every_view(browser, place):
    found = re.search(r"const VIEWS = \[(.*?)^\];", main_module(), re.DOTALL | re.MULTILINE)
    assert set(VIEWS) == set(re.findall(r'\["(\w+)"', found[1]))
    make_run(place / "other", {0: {**rank_rows(), "ranges": [{"start": 0, "end": 9, "name": HOSTILE}]}})
    base, stop = served([place / "run", place / "other"], place / "scratch")
    try:
        page = browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("body[data-shown=overview]")
        for view, values in VIEWS.items():
            page.goto(f"{base}#{view}{values}")
            page.wait_for_selector(f"body[data-shown={view}]")
            if view == "sql":
                page.fill("textarea", "select name, short_name from kernels")
                page.click("main button.primary")
                page.wait_for_selector("tbody tr")
            page.wait_for_timeout(700)
            assert page.locator("img, script:not([src]), iframe").count() == 0, view
            assert page.title() == "run - alltrace", view
            begun = time.monotonic()
            assert page.evaluate("() => fetch('/').then((answer) => answer.status)") in (200, 403)
            assert time.monotonic() - begun < SOON_S
        assert not [url for url in asked if url.endswith("/x") or not url.startswith(base)]
        page.close()
    finally:
        stop()


def main_module():
    import alltrace.ui

    return (Path(alltrace.ui.__file__).parent / "static" / "main.js").read_text(encoding="utf-8")
