"""The server's application: the page's files, and the data of one run or two."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from alltrace.ui.api import routes
from alltrace.ui.security import Guard, static_folder
from alltrace.ui.session import Session

_TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}


def make_app(sessions: Sequence[Session], *, token: str, host: str, port: int) -> Guard:
    # `sessions`: one run, or two to compare; the second one's data is under `/api/b/`. `token`: the secret that a
    # request must have. `host`: the address that is listened on.
    pages = _pages()
    content, kind = pages["index.html"]
    pages["index.html"] = (content.replace(b"/static/", static_folder(token).encode()), kind)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in pages:  # only what was listed is ever opened
            return JSONResponse({"error": "there is no such page"}, 404)
        content, kind = pages[name]
        return Response(content, media_type=kind)

    async def library(request: Request) -> Response:  # noqa: ARG001
        script = _plotly()
        if script is None:
            return JSONResponse({"error": "pictures need plotly; install alltrace[ui]"}, 404)
        return Response(script, media_type="text/javascript")

    async def runs(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse({"runs": [{"name": s.name, "state": s.state} for s in sessions]})

    mounts: list[Any] = [Mount("/api/b", routes=routes(sessions[1]))] if len(sessions) > 1 else []
    app = Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", page),
            Route("/library/plotly.js", library),
            Route("/api/runs", runs),
            *mounts,
            Mount("/api", routes=routes(*sessions[:2])),
        ]
    )
    return Guard(app, token=token, host=host, port=port)


def _pages() -> dict[str, tuple[bytes, str]]:
    entries = files("alltrace.ui").joinpath("static").iterdir()
    kinds = ((e, _TYPES.get(e.name.rpartition(".")[2])) for e in entries)
    return {e.name: (e.read_bytes(), f"{kind}; charset=utf-8") for e, kind in kinds if kind is not None}


def _plotly() -> bytes | None:
    try:
        return files("plotly").joinpath("package_data").joinpath("plotly.min.js").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        return None
