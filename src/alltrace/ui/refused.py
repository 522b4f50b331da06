"""The page that a browser without the token gets: what is missing, and where to find it. It shows nothing of the run."""

from __future__ import annotations

import base64
import hashlib

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

# This tab may have the token, as after a reload, or another tab of this origin, as after a link that opens a new one. A token
# that was refused is of an earlier start. The part after # is kept, also by the form.
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


POLICY = (
    f"default-src 'none'; style-src 'sha256-{_digest(_STYLE)}'; script-src 'sha256-{_digest(_SCRIPT)}'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""The content security policy of the page: its own style and script, and a form for this server."""

PAGE = f"""<!doctype html>
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
      <p>This page shows a run to whoever has the token of this server. Open the whole address that <code>alltrace ui</code> printed
      where it was started, which ends in <code>/?token=...</code>. Each start of the server has another token, so an address of an
      earlier one is refused.</p>
      <form method="get" action="/">
        <label for="token">Or enter the part after <code>token=</code>:</label>
        <p><input id="token" name="token" type="password" autocomplete="off" required></p>
        <p><button type="submit">Open the run</button></p>
      </form>
    </main>
  </body>
</html>
"""
