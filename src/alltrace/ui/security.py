"""Access to the server: only with its token, under the server's own name, and not from other sites' pages.

The token is compared in constant time. A browser sends it once, in the URL, and then has it as a cookie that scripts cannot
read and other sites cannot send. The Host header is checked, so that an attacker's name that resolves to this address (DNS
rebinding) is refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

from alltrace.ui import refused

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # the library of charts fills an empty one by script

POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {_EMPTY_STYLE}; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy: nothing but the server's own files, no script or style inside a page, no evaluated text."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def new_token() -> str:
    """A token that cannot be guessed: 256 random bits."""
    return secrets.token_urlsafe(32)


class Guard:
    """Lets through only requests with the token and a Host of the server; puts the protecting headers on every answer.

    `host`: the address that the server listens on.
    """

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        self._app = app
        self._token = token
        self._host = host
        self._cookie = f"alltrace-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        request = Request(scope)
        if not host_allowed(request.headers.get("host", ""), self._host):
            unknown = JSONResponse({"error": "this server does not answer to that name"}, 421)
            await unknown(scope, receive, protected)
            return
        given = request.query_params.get("token", "")
        if given and self._is_token(given):
            if scope["path"] == "/":
                response = RedirectResponse("/", 303)
                response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
                await response(scope, receive, protected)
                return
        elif not self._is_token(request.cookies.get(self._cookie, "")) and not self._is_token(_bearer(request)):
            await _without_token(request)(scope, receive, protected)
            return
        await self._app(scope, receive, protected)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def _without_token(request: Request) -> Response:
    """The refusal: a page if a browser requests one, else JSON."""
    if request.url.path == "/" and "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(refused.PAGE, 403, {"content-security-policy": refused.POLICY})
    return JSONResponse({"error": "the token is missing or wrong; open the address that the command printed"}, 403)


def _bearer(request: Request) -> str:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    return value if kind.lower() in ("token", "bearer") else ""


def host_allowed(header: str, listening: str) -> bool:
    """Whether a Host header names this server.

    `listening`: the address that the server listens on; of one that means all addresses (`0.0.0.0`, `::`) every
    address of a machine is allowed, but no name besides this machine's own.
    """
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    if name in _LOOPBACK or name == listening.lower():
        return True
    if listening in _LOOPBACK:
        return False
    if name in (socket.gethostname().lower(), socket.getfqdn().lower()):
        return True
    if listening not in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
