from __future__ import annotations

import base64
import hashlib
import re
import socket

import pytest
from tests.together import together
from tests.ui.conftest import TOKEN

from alltrace.ui.security import POLICY, host_allowed, new_token

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
    assert client.get("/api/run", headers={"accept": "text/html"}).headers["content-type"] == "application/json"
    assert client.get("/", params={"token": TOKEN}, follow_redirects=False).status_code == 303


def test_the_token_is_shown_once_and_then_is_a_cookie_that_scripts_cannot_read(client):
    del client.headers["authorization"]
    found = client.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (303, "/")
    cookie = found.headers["set-cookie"].lower()
    assert cookie.startswith("alltrace-8000=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get("/api/run", params={"token": TOKEN}).status_code == 200


@pytest.mark.parametrize("other", ['state={"a":1}', "plain", "list[0]=1", "words=a b", 'open="', "path=1", "=", "x=\u00fc"])
def test_cookies_of_other_servers_of_the_host_do_not_hide_the_token(client, other):
    del client.headers["authorization"]
    for cookies in (
        f"{other}; alltrace-8000={TOKEN}",
        f"alltrace-8000={TOKEN}; {other}",
        f"{other};alltrace-8000={TOKEN} ;{other}",
    ):
        assert client.get("/api/runs", headers={"cookie": cookies.encode()}).status_code == 200
    assert client.get("/api/runs", headers={"cookie": f"{other}; alltrace-8001={TOKEN}".encode()}).status_code == 403


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil:8000", "[::2]"])
def test_a_name_that_is_not_the_servers_is_refused(client, name):
    found = client.get("/api/run", headers={"host": name})
    assert found.status_code == 421
    assert "ranks" not in found.text


@together(
    ("header", "listening", "allowed"),
    [
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("[::1]:8000", "127.0.0.1", True),
        ("10.0.0.7:1", "127.0.0.1", False),
        ("10.0.0.7:1", "10.0.0.7", True),
        ("10.0.0.8:1", "10.0.0.7", False),
        ("10.0.0.8:1", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        (socket.gethostname(), "0.0.0.0", True),
        ("[fe80::1]:80", "::", True),
    ],
)
def test_which_names_are_the_servers(header, listening, allowed):
    assert host_allowed(header, listening) is allowed


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
    assert rules["style-src"] == f"'self' 'sha256-{empty}'"
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
