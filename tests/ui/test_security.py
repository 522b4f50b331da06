import base64
import hashlib
import re
import socket
import time

import pytest
from tests.together import together
from tests.ui.conftest import TOKEN

from alltrace.ui.security import POLICY, TICKET_SECONDS, Guard, Tickets, host_allowed, new_token, static_folder

PATHS = ["/", "/static/main.js", "/library/plotly.js", "/api/run", "/api/runs", "/api/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_told_without_the_token(client, path):
    del client.headers["authorization"]
    for wrong in ({}, {"token": ""}, {"token": TOKEN[:-1]}, {"token": TOKEN + "x"}, {"token": "\u00e9"}):
        found = client.get(path, params=wrong)
        assert (found.status_code, list(found.json())) == (403, ["error"])
    assert client.get(path, headers={"cookie": "alltrace-8000=wrong"}).status_code == 403
    assert client.get(path, headers={"cookie": "\x01;;=;alltrace-8000"}).status_code == 403
    assert client.get(path, headers={"authorization": "Basic abc"}).status_code == 403


def test_a_browser_without_the_token_gets_a_page_that_says_what_to_do(client):
    del client.headers["authorization"]
    found = client.get("/", headers={"accept": "text/html,*/*"})
    assert (found.status_code, found.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "The token is missing or wrong" in found.text
    style = re.search(r"<style>(.*?)</style>", found.text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in found.headers["content-security-policy"]
    assert found.headers["x-frame-options"] == "DENY"
    reloads = client.get(
        "/", headers={"accept": "text/html", "sec-fetch-dest": "document", "sec-fetch-mode": "navigate"}
    )
    assert (reloads.status_code, reloads.text) == (200, found.text)
    assert client.get("/api/run", headers={"accept": "text/html"}).headers["content-type"] == "application/json"


def test_the_token_in_the_address_opens_the_page_alone(client):
    del client.headers["authorization"]
    found = client.get("/", params={"token": TOKEN})
    assert (found.status_code, "set-cookie" in found.headers) == (200, False)
    for path in PATHS[1:]:
        assert client.get(path, params={"token": TOKEN}).status_code == 403
        assert client.get(path, headers={"cookie": f"alltrace-8000={TOKEN}"}).status_code == 403
    assert client.post("/", params={"token": TOKEN}, json={}).status_code == 403
    assert client.get("/api/run", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_files_of_the_page_are_in_a_folder_that_only_the_page_knows(client):
    del client.headers["authorization"]
    text = client.get("/", params={"token": TOKEN}).text
    address = re.search(r'src="(/static/[0-9a-f]{32}/main.js)"', text)[1]
    assert client.get(address).status_code == 200
    assert client.get(address.replace("main.js", "api.js")).status_code == 200
    assert client.get(address.replace("/main.js", "0/main.js")).status_code == 403
    assert client.get(address.replace("main.js", "../api/run")).status_code in (403, 404)
    assert 'src="/static/main.js"' not in text


def test_a_ticket_is_for_one_request_of_one_path(client, monkeypatch):
    tickets = [client.post("/ticket", json={"path": "/api/run"}).json()["ticket"] for _ in range(3)]
    del client.headers["authorization"]
    assert client.post("/ticket", json={"path": "/api/run"}).status_code == 403
    assert client.get("/api/run", params={"ticket": tickets[0]}).status_code == 200
    assert client.get("/api/run", params={"ticket": tickets[0]}).status_code == 403
    assert client.get("/api/runs", params={"ticket": tickets[1]}).status_code == 403
    assert client.get("/api/run", params={"ticket": tickets[1]}).status_code == 403
    assert client.post("/ticket", params={"ticket": tickets[2]}, json={"path": "/ticket"}).status_code == 403
    later = time.monotonic() + TICKET_SECONDS
    monkeypatch.setattr("alltrace.ui.security.time.monotonic", lambda: later)
    assert client.get("/api/run", params={"ticket": tickets[2]}).status_code == 403
    for wrong in ({}, {"path": 1}, []):
        assert client.post("/ticket", json=wrong, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 400


def test_only_so_many_tickets_are_open():
    tickets = Tickets()
    issued = [tickets.issue("/x") for _ in range(101)]
    assert [tickets.take(t, "/x") for t in issued] == [False] + [True] * 100


@together(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": "http://127.0.0.1:8001"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 403),
        ({"content-type": "text/plain"}, 400),
        ({"content-type": "application/x-www-form-urlencoded"}, 400),
        ({"content-type": ""}, 400),
        ({"content-type": "Application/JSON; charset=utf-8"}, 200),
    ],
)
def test_requests_of_other_origins_and_forms_are_refused(reached, headers, status):
    assert reached("POST", "/api/notes", headers) == status


@together(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, 403),
        ({"origin": "http://evil.example", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 403),
    ],
)
def test_a_link_from_elsewhere_opens_the_page_and_nothing_more(reached, headers, status):
    assert reached("GET", "/", headers) == status


@pytest.fixture
def reached():
    """The status of a request with the token to a protected application that answers everything with 200."""
    from starlette.responses import Response
    from starlette.testclient import TestClient

    client = TestClient(Guard(Response(), token=TOKEN, host="127.0.0.1", port=8000), base_url="http://127.0.0.1:8000")

    def reach(method, path, headers):
        given = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
        return client.request(method, path, headers=given).status_code

    return reach


def test_a_server_without_a_page_takes_the_header_alone():
    from starlette.responses import Response
    from starlette.testclient import TestClient

    client = TestClient(
        Guard(Response(), token=TOKEN, host="127.0.0.1", port=8000, page=False), base_url="http://127.0.0.1:8000"
    )
    assert client.get("/", params={"token": TOKEN}).status_code == 403
    assert client.get(f"{static_folder(TOKEN)}main.js").status_code == 403
    client.headers["authorization"] = f"Bearer {TOKEN}"
    assert client.get("/").status_code == 200
    assert client.post("/mcp", json={}).status_code == 200
    assert client.post("/mcp", json={}, headers={"origin": "http://127.0.0.1:8001"}).status_code == 403


def test_a_websocket_is_refused(client):
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/run", headers={"host": "127.0.0.1:8000"}):
        pass


@pytest.mark.parametrize(
    "name",
    ["evil.example", "127.0.0.1.evil.example:8000", "", "localhost:8000", "[::2]:8000", "127.0.0.1", "127.0.0.1:8001"],
)
def test_a_name_that_is_not_the_servers_is_refused(client, name):
    found = client.get("/api/run", headers={"host": name})
    assert found.status_code == 421
    assert "ranks" not in found.text


@together(
    ("header", "listening", "allowed"),
    [
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1:8001", "127.0.0.1", False),
        ("localhost:8000", "127.0.0.1", False),
        ("LOCALHOST:8000", "localhost", True),
        ("[::1]:8000", "::1", True),
        ("10.0.0.7:8000", "127.0.0.1", False),
        ("10.0.0.7:8000", "10.0.0.7", True),
        ("10.0.0.8:8000", "10.0.0.7", False),
        ("10.0.0.8:8000", "0.0.0.0", True),
        ("evil.example:8000", "0.0.0.0", False),
        (f"{socket.gethostname()}:8000", "0.0.0.0", True),
        (f"{socket.gethostname()}:8001", "0.0.0.0", False),
        ("[fe80::1]:8000", "::", True),
    ],
)
def test_which_names_are_the_servers(header, listening, allowed):
    assert host_allowed(header, listening, 8000) is allowed


def test_browsers_leave_out_the_port_80():
    assert [
        host_allowed(h, "127.0.0.1", 80) for h in ("127.0.0.1", "127.0.0.1:80", "127.0.0.1:81", "evil.example")
    ] == [True, True, False, False]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_policy(client, path):
    for headers in ({}, {"authorization": ""}, {"host": "evil.example"}):
        found = client.get(path, headers=headers)
        assert found.headers["content-security-policy"] == POLICY
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["x-frame-options"] == "DENY"


def test_the_policy_allows_no_script_or_style_inside_a_page_and_nobody_elses():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    empty = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    styles = rules["style-src"].split()
    assert styles[:2] == ["'self'", f"'sha256-{empty}'"]
    assert all(style.startswith("'sha256-") for style in styles[1:]), (
        "the library's own styles by their text, and no others"
    )
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/api.py",
        "/static/..%5c..%5capp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/main.js%00.txt",
        "/../manifest.json",
        "/manifest.json",
        "/api/../manifest.json",
        "/api/ranks/rank=0/kernels.parquet",
    ],
)
def test_no_path_leads_out_of_the_page(client, path):
    found = client.get(path)
    assert found.status_code == 404
    assert "format_version" not in found.text


def test_tokens_are_long_and_never_twice_the_same():
    assert len(new_token()) >= 43
    assert len({new_token() for _ in range(50)}) == 50
