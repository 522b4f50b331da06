"""Runs the server until it is stopped."""

import os
import socket
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from alltrace.trace.errors import AlltraceError, UsageError
from alltrace.trace.scratch import scratch_folder
from alltrace.ui.history import HistoryFile
from alltrace.ui.kernels import KernelReports


def serve(
    paths: Sequence[Path],
    names: Sequence[str],
    *,
    host: str,
    port: int,
    browser: bool,
    jobs: int | None,
    tell: Callable[[str], None],
    kernels: KernelReports | None = None,
    history: HistoryFile | None = None,
) -> None:
    """Serve one run or two until interrupted."""
    # `names`: what the page calls each. `port`: the port; 0 for any that is free. `browser`: whether to open the page
    # in a browser. `jobs`: the most processes for data that is computed on first use. `tell`: called with the page's
    # address once the page can be opened. `kernels`: reports of Nsight Compute, to show with the first run. `history`:
    # a history of many runs, likewise.
    try:
        import uvicorn

        from alltrace.ui.app import make_app
        from alltrace.ui.security import new_token
    except ImportError as error:
        raise AlltraceError(f"the page needs the package {error.name}; install alltrace[ui]") from error
    from alltrace.ui.facts import make_answers
    from alltrace.ui.recipe_process import stop
    from alltrace.ui.session import Session

    listening = listen(host, port)
    # questions that end with the server leave semaphores; loky removes them, and need not warn about it
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker")))
    number = listening.getsockname()[1]
    token = new_token()
    with scratch_folder("alltrace-ui-") as scratch, listening:
        shown_with: list[dict[str, Any]] = [{"kernels": kernels, "history": history}, {}]
        sessions = [
            Session(p, Path(scratch, str(n)), jobs, when_ready=make_answers, name=names[n], **shown_with[n])
            for n, p in enumerate(paths)
        ]
        app: Any = make_app(sessions, token=token, host=host, port=number)
        for session in sessions:
            session.start()
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104
        address = f"http://{shown}:{number}/?token={token}"
        tell(address)
        if browser:
            import webbrowser

            # a browser's arguments can be read by all users of the machine
            webbrowser.open(redirect_page(address, Path(scratch)).as_uri())
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, server_header=False, timeout_graceful_shutdown=1
        )
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            stop()


def redirect_page(address: str, folder: Path) -> Path:
    """A page only for this user that redirects to an address with a token; in a folder of this user."""
    page = folder / "open.html"
    with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        goes_on = f'<meta http-equiv="refresh" content="0;url={escape(address)}">'
        file.write(f'<!doctype html><meta charset="utf-8"><title>alltrace</title>{goes_on}')
    return page


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio sends small answers at once only on sockets that say they are TCP
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise UsageError(f"--host is {host!r}, which is not an address of this machine ({error.strerror})") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot listen on {host}:{port} ({why}); choose another port with --port") from error
    return listening
