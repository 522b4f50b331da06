"""In a real browser, beside servers that others run on the same host: what the page's token is bound to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.browser import served
from tests.ui.conftest import TOKEN

pytestmark = pytest.mark.slow

WRITES = """async ([base, how]) => {
  const body = JSON.stringify({text: "owned", start: 0, end: 0, ranks: []});
  const given = {method: "POST", body, credentials: "include", ...how};
  try { return (await fetch(`${base}api/note-add`, given)).status } catch (error) { return String(error) }
}"""

READS = """async (base) => {
  const outcomes = [];
  for (const how of [{}, {credentials: "include"}, {mode: "no-cors", credentials: "include"}]) {
    outcomes.push(await fetch(`${base}api/run`, how).then((r) => r.text(), () => ""));
  }
  outcomes.push(await new Promise((done) => {
    const source = new EventSource(`${base}api/state`, {withCredentials: true});
    source.onmessage = () => done("message");
    source.onopen = () => done("open");
    source.onerror = () => { source.close(); done("") };
  }));
  outcomes.push(await new Promise((done) => {
    const socket = new WebSocket(`${base.replace("http", "ws")}api/state`);
    socket.onopen = () => done("open"); socket.onerror = () => done("");
  }));
  outcomes.push(await new Promise((done) => {
    const script = document.createElement("script");
    script.src = `${base}api/run`; script.onload = () => done("loaded"); script.onerror = () => done("");
    document.head.append(script);
  }));
  return outcomes;
}"""


class Other(BaseHTTPRequestHandler):
    """A server of another user on another port, which keeps what browsers send it."""

    def do_GET(self):
        self.server.received.append((self.path, dict(self.headers)))
        body = f"<!doctype html><title>other</title>{self.server.content}".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def other():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    server.received, server.content = [], ""
    server.address = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(browser, tmp_path):
    """A run's page that was opened with the token, and its address."""
    make_run(tmp_path / "run", {0: rank_rows()})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{base}?token={TOKEN}#recipes?name=kernels")
    page.wait_for_selector("body[data-shown=recipes]")
    page.base, page.run = base, tmp_path / "run"
    yield page
    context.close()
    stop()


def test_the_token_leaves_the_address_bar_and_stays_in_the_tab(opened):
    assert opened.url.startswith(f"{opened.base}#recipes")
    assert opened.context.cookies() == []
    assert opened.evaluate("() => sessionStorage.getItem('alltrace-token')") == TOKEN
    opened.reload()
    opened.wait_for_selector("body[data-shown=recipes]")
    assert opened.url.startswith(f"{opened.base}#recipes")
    opened.goto("about:blank")
    opened.go_back()
    opened.wait_for_selector("body[data-shown=recipes]")


def test_the_printed_address_opens_again_and_a_new_tab_asks_the_others(opened):
    again = opened.context.new_page()
    again.goto(f"{opened.base}?token={TOKEN}")
    again.wait_for_selector("body[data-shown=overview]")
    link = opened.context.new_page()
    link.goto(f"{opened.base}#sql")
    link.wait_for_selector("body[data-shown=sql]")
    assert TOKEN not in link.url


def test_a_token_of_an_earlier_start_is_asked_for_again(opened):
    opened.evaluate("() => sessionStorage.setItem('alltrace-token', 'of-yesterday')")
    opened.reload()
    opened.wait_for_selector("text=The token is missing or wrong")
    assert opened.evaluate("() => sessionStorage.getItem('alltrace-token')") is None


def test_a_server_on_another_port_learns_nothing_and_its_page_writes_nothing(opened, other):
    page = opened.context.new_page()
    page.goto(other.address)
    for name in ("127.0.0.1", "localhost"):
        page.goto(f"http://{name}:{other.server_port}/")
        assert page.evaluate(READS, opened.base) == [""] * 6
        for how in (
            {},
            {"mode": "no-cors"},
            {"headers": {"content-type": "text/plain"}},
            {"headers": {"content-type": "application/json"}},
        ):
            assert page.evaluate(WRITES, [opened.base, how]) in (0, "TypeError: Failed to fetch")
    assert page.evaluate("() => sessionStorage.length") == 0
    heard = """() => new Promise((done) => {
      const tabs = new BroadcastChannel("alltrace-token");
      tabs.onmessage = ({ data }) => done(data); tabs.postMessage(""); setTimeout(() => done(null), 500);
    })"""
    assert page.evaluate(heard) is None
    field = '<input name=\'{"text":"owned","start":0,"end":0,"ranks":[],"x":"\' value=\'"}\'>'
    form = f'<form method="post" enctype="text/plain" action="{opened.base}api/note-add">{field}</form>'
    page.set_content(f'<iframe src="{opened.base}?token={TOKEN}"></iframe>{form}')
    page.wait_for_timeout(300)
    assert not any("sessionStorage" in f.content() or f.query_selector("#head") for f in page.frames[1:])
    page.evaluate("() => document.forms[0].submit()")
    page.wait_for_timeout(300)
    assert TOKEN not in str(other.received)
    assert not (opened.run / "notes.json").exists()
    opened.goto(f"{opened.base}#overview")
    opened.wait_for_selector("body[data-shown=overview]")


def test_no_address_with_the_token_is_sent_on(opened, other, browser):
    page = browser.new_context().new_page()
    page.goto(f"{opened.base}?token={TOKEN}")
    page.wait_for_selector("body[data-shown]")
    page.evaluate(
        "(a) => { const link = document.createElement('a'); link.href = a; document.body.append(link); link.click() }",
        other.address,
    )
    page.wait_for_url(other.address)
    refused = page.context.new_page()
    refused.goto(f"{opened.base}?token=wrong{TOKEN}")
    refused.evaluate("(a) => { location.href = a }", other.address)
    refused.wait_for_url(other.address)
    assert other.received
    assert TOKEN not in str(other.received)
    assert opened.base.rstrip("/") not in str(other.received)
    page.context.close()


def test_a_link_from_a_page_of_another_origin_opens_the_run(opened, other):
    other.content = f'<a href="{opened.base}?token={TOKEN}#sql">open</a>'
    page = opened.context.new_page()
    page.goto(other.address)
    page.click("a")
    page.wait_for_selector("body[data-shown=sql]")


def test_a_name_that_leads_to_the_server_is_not_its_name(browser, opened):
    port = urlsplit(opened.base).port
    page = browser.new_context().new_page()
    for name in ("localhost", "rebound.localhost"):  # browsers resolve both to loopback
        found = page.goto(f"http://{name}:{port}/?token={TOKEN}")
        assert (found.status, "answer to that name" in found.text()) == (421, True)
    page.context.close()
