"""A server of this machine that takes files by PUT, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PutServer(ThreadingHTTPServer):
    """Keeps what it was sent, and what was asked of it."""

    daemon_threads = True

    def __init__(self, ranges: str, fails: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = self.server_address[1]
        self.ranges, self.fails = ranges, fails
        self.elsewhere: str | None = None
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.received: list[int] = []
        self.queries: set[str] = set()
        self.authorized: set[str | None] = set()
        self.answers = threading.Event()
        self.answers.set()


class _Handler(BaseHTTPRequestHandler):
    server: PutServer

    def do_HEAD(self) -> None:
        path = self._heard("HEAD")
        body = self.server.files.get(path)
        if self.server.elsewhere is not None:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with suppress(BrokenPipeError):
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()

    def do_GET(self) -> None:
        body = self.server.files[self._heard("GET")]
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = body[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def do_PUT(self) -> None:
        path = self._heard("PUT")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(len(body))
        begins = self.headers["Content-Range"]
        code = 201
        if self.server.fails is not None:
            code = self.server.fails
        elif begins is None or self.server.ranges == "ignored":
            self.server.files[path] = body
        elif self.server.ranges == "refused":
            code = 400
        else:
            begin = int(begins.removeprefix("bytes ").partition("-")[0])
            self.server.files[path] = self.server.files[path][:begin] + body
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _heard(self, method: str) -> str:
        path, _, query = self.path.partition("?")
        self.server.asked.append((method, path))
        self.server.queries |= {query} - {""}
        self.server.authorized |= {self.headers["Authorization"]} - {None}
        self.server.answers.wait()
        return path

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def putting(*, ranges: str = "taken", fails: int | None = None) -> Iterator[PutServer]:
    """A server; `ranges` says what it does with a part of a file: `taken`, `refused` or `ignored`; `fails` is its
    answer to PUT."""
    server = PutServer(ranges, fails)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
