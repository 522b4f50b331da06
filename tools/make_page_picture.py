"""Writes docs/images/timeline.png, the page on `alltrace demo`. `python tools/make_page_picture.py`; needs Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "timeline.png"
WIDTH, HEIGHT = 1180, 760


def main() -> None:
    """Simulate, import, serve, look, and write the picture."""
    from alltrace.cli.main import main as alltrace

    with tempfile.TemporaryDirectory() as folder:
        alltrace(["synth", "straggler", "-o", f"{folder}/reports", "--ranks", "16"])
        alltrace(["import", f"{folder}/reports", "-o", f"{folder}/run"])
        command = [sys.executable, "-m", "alltrace.cli.main", "ui", f"{folder}/run", "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            _look(server.stdout.readline().strip() if server.stdout else "")
        finally:
            server.terminate()
            server.wait(20)
    print(f"wrote {PICTURE.name}, {PICTURE.stat().st_size >> 10} kB")


def _ask(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    base, _, token = address.partition("?token=")
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(f"{base}api/{path}", data, headers)  # noqa: S310  our own server
    with urllib.request.urlopen(request) as found:  # noqa: S310
        return json.loads(found.read())


def _look(address: str) -> None:
    from playwright.sync_api import sync_playwright

    while not _ask(address, "run")["state"]["ready"]:
        pass
    events = _ask(address, "events", {"ranks": [11], "tables": ["collectives"], "start": 0, "end": 10**12})
    row, start = events["row"][23], events["start"][23]
    view = f"#timeline?start={start - 9_000_000}&end={start + 4_000_000}&ranks=9-13&open=11&event=11/collectives/{row}"
    with sync_playwright() as play:
        path = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium")
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address)
        page.wait_for_selector("body[data-shown]")
        page.goto(re.sub(r"\?token=.*", "", address) + view)
        page.get_by_text("The same operation on 16 ranks").wait_for()
        page.wait_for_timeout(3000)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
