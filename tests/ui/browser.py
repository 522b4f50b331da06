"""Pages in a real browser: where tests find Chromium, how they serve runs, where they leave pictures of what they
saw."""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from pathlib import Path

import pytest
from tests.ui.conftest import TOKEN

SCREENSHOTS = Path(__file__).resolve().parents[2] / "screenshots"


def chromium() -> str:
    """The path of Chromium; the test is skipped where there is none."""
    found = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no Chromium: set ALLTRACE_CHROMIUM")
    return found


def made_ready(session):
    """Make all that is shown of a run: findings that were made beside the browser would count as time that the page
    takes."""
    from alltrace.ui.facts import make_answers

    session.prepare()
    make_answers(session)


def served(paths, scratch, kernels=None, begin=made_ready, history=None):
    """Serve runs, each begun with `begin`; the address, and what stops it."""
    import uvicorn

    from alltrace.ui.app import make_app
    from alltrace.ui.session import Session

    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port = listening.getsockname()[1]
    sessions = [
        Session(p, scratch / str(n), 1, kernels if n == 0 else None, history=history) for n, p in enumerate(paths)
    ]
    for session in sessions:
        begin(session)
    app = make_app(sessions, token=TOKEN, host="127.0.0.1", port=port)
    # requests of a page that closes end first, else their sockets stay open; on a busy machine that takes seconds
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=30))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()

    def stop():
        server.should_exit = True
        thread.join(60)
        listening.close()

    return f"http://127.0.0.1:{port}/", stop


def shot(page, name):
    """Keep a picture of the page, and look at it now and then."""
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def go(page, hash_, shown):
    page.goto(f"{page.base}{hash_}")
    page.wait_for_selector(f"body[data-shown={shown}]")


def wait_inked(page, selector, colors):
    page.wait_for_function(
        "([s, n]) => { const c = document.querySelector(s); return new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > n }",
        arg=[selector, colors],
    )


def asked(page, path, body=None):
    """What the server answers to a request of the page, as JSON."""
    return page.evaluate(
        """async ([path, body]) => {
          const headers = {authorization: `Bearer ${sessionStorage.getItem("alltrace-token")}`, "content-type": "application/json"};
          const how = body === null ? {} : {method: "POST", body: JSON.stringify(body)};
          return (await fetch(path, {headers, ...how})).json();
        }""",  # noqa: E501
        [path, body],
    )


def state_of(page, name):
    """A value in the URL behind #, once it has settled."""
    page.wait_for_timeout(400)
    found = re.search(rf"[?&]{name}=([^&]*)", page.url)
    return None if found is None else found[1]


def settled(page):
    """Wait until the timeline has all tiles that it wants."""
    page.wait_for_function(
        "() => { const t = window.alltraceTimeline; return t && t.store.tiles.size > 0 && t.store.flying.size === 0"
        " && [...t.open].every((r) => t.tracks.has(r)) }"
    )
    page.wait_for_timeout(150)


def click_event(page, track, number=0):
    """Click the middle of an event that is drawn on a track."""
    settled(page)
    hit = page.evaluate(
        "([track, n]) => { const t = window.alltraceTimeline; const h = t.hits.filter((x) => x.track === track)[n];"
        " const b = t.tracksBox.getBoundingClientRect(); return h && {x: b.left + h.x + h.w / 2, y: b.top + h.y + h.h /"
        " 2} }",
        [track, number],
    )
    assert hit, f"nothing is drawn on {track}"
    page.mouse.click(hit["x"], hit["y"])


def barriers(page):
    """What keeps people out, as axe tells it; the test is skipped where axe is not installed."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    page.evaluate(script)  # by the debugger, which the content policy does not bind
    found = page.evaluate("() => axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
    return [(v["id"], v["nodes"][0]["html"][:160]) for v in found["violations"]]
