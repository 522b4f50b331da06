"""Access to the server: only with its token, under the server's own name, and not from other sites' pages.

The token is compared in constant time. It is bound to the origin of the page, which a cookie never is, as browsers send
cookies to every port of a host: the address that opens the page has it once, the page keeps it in the storage of its
tab and sends it as a header. The Host header is checked, so that an attacker's name that resolves to this address (DNS
rebinding) is refused.
"""

import base64
import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import time

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alltrace.trace.errors import UsageError
from alltrace.ui.request_values import RequestValues

_STYLE = """
:root { color-scheme: light dark; }
body {
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  max-width: 40rem; margin: 12vh auto; padding: 0 1.25rem;
}
h1 { font-size: 1.4rem; line-height: 1.3; }
code, input { font: 1em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
input { width: min(100%, 30rem); padding: .4rem .6rem; }
button { font: inherit; padding: .4rem 1rem; }
label { display: block; margin-bottom: .3rem; }
"""

# This tab may have the token, as after a reload, or another tab of this origin, as after a link that opens a new one. A
# token that was refused is of an earlier start. The part after # is kept, also by the form.
_SCRIPT = """
const open = (token) => location.replace(`/?token=${encodeURIComponent(token)}${location.hash}`);
const kept = sessionStorage.getItem("alltrace-token");
if (location.search) {
  sessionStorage.removeItem("alltrace-token");
} else if (kept) {
  open(kept);
} else {
  const tabs = new BroadcastChannel("alltrace-token");
  tabs.onmessage = ({ data }) => data && open(data);
  tabs.postMessage("");
}
addEventListener("DOMContentLoaded", () => { document.querySelector("form").action = `/${location.hash}`; });
"""


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


REFUSED_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_digest(_STYLE)}'; script-src 'sha256-{_digest(_SCRIPT)}'; base-uri"
    " 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The content security policy of the page: its own style and script, and a form for this server."""

REFUSED_PAGE = f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>alltrace: the token is missing</title>
    <style>{_STYLE}</style>
    <script>{_SCRIPT}</script>
  </head>
  <body>
    <main>
      <h1>The token is missing or wrong</h1>
      <p>This page shows a run to whoever has the token of this server. Open the whole address that <code>alltrace
      ui</code> printed where it was started, which ends in <code>/?token=...</code>. Each start of the server has
      another token, so an address of an earlier one is refused.</p>
      <form method="get" action="/">
        <label for="token">Or enter the part after <code>token=</code>:</label>
        <p><input id="token" name="token" type="password" autocomplete="off" required></p>
        <p><button type="submit">Open the run</button></p>
      </form>
    </main>
  </body>
</html>
"""


# the library of charts fills an empty style by script, and begins with two of its own, of maps and of its buttons
_LIBRARY_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o=' "
    "'sha256-S+l+cz1wXqs2B0FcjqqT7NvjwGmhD1UjJswXjlSkj0s='"
)

POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {_LIBRARY_STYLES}; img-src 'self' data: blob:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy: nothing but the server's own files, no script or style inside a page, no evaluated
text."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

TICKET_SECONDS = 30.0
_MOST_TICKETS = 100
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  compared with, not bound to


def new_token() -> str:
    """A token that cannot be guessed: 256 random bits."""
    return secrets.token_urlsafe(32)


def static_folder(token: str) -> str:
    """The folder of the page's own files: scripts load without headers, so its name is secret."""
    return f"/static/{hmac.new(token.encode(), b'static', hashlib.sha256).hexdigest()[:32]}/"


class Tickets:
    """Secrets for single requests that cannot have headers, such as of a script, a download or an `EventSource`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, float]] = {}

    def issue(self, path: str) -> str:
        """A ticket for one request of `path`, within `TICKET_SECONDS`."""
        ticket, now = secrets.token_urlsafe(16), time.monotonic()
        with self._lock:
            self._open = {t: entry for t, entry in self._open.items() if entry[1] > now}
            while len(self._open) >= _MOST_TICKETS:
                del self._open[next(iter(self._open))]
            self._open[ticket] = (path, now + TICKET_SECONDS)
        return ticket

    def take(self, ticket: str, path: str) -> bool:
        """Whether a ticket is one for `path`; from now on it is none."""
        with self._lock:
            issued_for, until = self._open.pop(ticket, ("", 0.0))
        return issued_for == path and time.monotonic() < until


# A request has the token in its header `Authorization`. `/?token=` opens the page alone. `host`: the address that the
# server listens on. `page`: whether the server has a page: an address that opens it, its files, and tickets (`POST
# /ticket`).
class Guard:
    """Lets through only requests with the token and a Host of the server; puts protecting headers on every answer."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int, page: bool = True) -> None:
        self._app = app
        self._token = token
        self._host = host
        self._port = port
        self._page = page
        self._static = static_folder(token)
        self._tickets = Tickets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        response = self._foreign(request)
        if response is None and not self._may_pass(request):
            response = _without_token(request)
        if response is None and self._page and scope["path"] == "/ticket" and request.method == "POST":
            response = await self._ticket(request)
        if response is not None:
            await response(scope, receive, protected)
            return
        if self._page and scope["path"].startswith(self._static):
            scope = {**scope, "path": f"/static/{scope['path'].removeprefix(self._static)}"}
        await self._app(scope, receive, protected)

    def _foreign(self, request: Request) -> Response | None:
        """The refusal of a request under another name, of another site's page, or of a form."""
        headers = request.headers
        host = headers.get("host", "").lower()
        if not host_allowed(host, self._host, self._port):
            return JSONResponse(
                {"error": "this server does not answer to that name; open the address that was printed"}, 421
            )
        to_page = self._page and request.url.path == "/" and request.method == "GET"
        opens_page = (
            to_page
            and headers.get("sec-fetch-mode", "") == "navigate"
            and headers.get("sec-fetch-dest", "") == "document"
        )
        same_site = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if headers.get("origin", f"http://{host}").lower() != f"http://{host}" or not (same_site or opens_page):
            return JSONResponse(
                {"error": "the request is from a page of another origin, which may not read this server"}, 403
            )
        if (
            request.method == "POST"
            and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json"
        ):
            return JSONResponse({"error": "the request is not JSON; expected the content type application/json"}, 400)
        return None

    def _may_pass(self, request: Request) -> bool:
        path, query = request.url.path, request.query_params
        if self._is_token(_bearer(request)):
            return True
        if not self._page or request.method not in ("GET", "HEAD"):
            return False
        if path == "/":
            return self._is_token(query.get("token", ""))
        return path.startswith(self._static) or ("ticket" in query and self._tickets.take(query["ticket"], path))

    async def _ticket(self, request: Request) -> Response:
        try:
            return JSONResponse({"ticket": self._tickets.issue((await RequestValues.of(request)).text("path", 1000))})
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 400)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


def _without_token(request: Request) -> Response:
    """The refusal: a page if a browser requests one, else JSON."""
    if request.url.path != "/" or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": "the token is missing or wrong; open the address that the command printed"}, 403)
    # the tab may have the token, as after each reload
    reopens = not request.url.query and request.headers.get("sec-fetch-dest", "") == "document"
    return HTMLResponse(REFUSED_PAGE, 200 if reopens else 403, {"content-security-policy": REFUSED_POLICY})


def _bearer(request: Request) -> str:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    return value if kind.lower() in ("token", "bearer") else ""


def host_allowed(header: str, listening: str, port: int) -> bool:
    """Whether a Host header is the server's printed address."""
    # `listening`: the address that the server listens on; of one that means all addresses (`0.0.0.0`, `::`) every
    # address of a machine is allowed, but no name besides this machine's own.
    name, _, number = header.strip().lower().rpartition(":")
    if port == 80 and not header.endswith(":80"):  # browsers leave it out
        name, number = header.strip().lower(), "80"
    if number != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if listening not in _ALL_ADDRESSES:
        return name == listening.lower()
    if name in (socket.gethostname().lower(), socket.getfqdn().lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
