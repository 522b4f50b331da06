"""The data for the page, by path; each from recipes or tiles."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alltrace.tiles.cancel import CancelledError, Token
from alltrace.trace.errors import AlltraceError, DamageError, InputError, UsageError, printable
from alltrace.ui import facts
from alltrace.ui.json_values import plain, plain_answer
from alltrace.ui.recipe_process import Question, answer, comparison, kept
from alltrace.ui.request_values import Asked
from alltrace.ui.session import GoneError, NotReadyError, Session, alone, understandable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from alltrace.tiles.matrix import Matrices
    from alltrace.ui.kernels import KernelReports

    Handler = Callable[[Session, Asked, Token], Response]

SQL_SECONDS = 10.0
SQL_MEMORY_BYTES = 512 << 20
SQL_ROWS = 5000
LAID_ROWS = 20_000

_BINARY = "application/octet-stream"
_NOBODY_WAITS = 499
_one_recipe = threading.Lock()
_one_query = threading.Lock()
_one_note = threading.Lock()


def routes(session: Session, other: Session | None = None) -> list[Route]:
    """The paths of one run, and what compares it with another."""
    compared = [Route("/diff", _endpoint(session, partial(_diff, other)), methods=["POST"])] if other is not None else []
    return compared + [
        Route(f"/{name}", _endpoint(session, handler), methods=["POST" if name in _POSTED else "GET"])
        for name, handler in _HANDLERS.items()
    ]


def _endpoint(session: Session, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            asked = await Asked.of(request)
            return await _in_thread(request, partial(handler, session, asked))
        except CancelledError:
            return Response(status_code=_NOBODY_WAITS)
        except (AlltraceError, OSError) as found:
            error = understandable(session, found)
            return JSONResponse({"error": printable(str(error))}, _status(error))

    return respond


def _status(error: AlltraceError) -> int:
    if isinstance(error, NotReadyError):
        return 503
    if isinstance(error, GoneError):
        return 410
    if isinstance(error, InputError) and not isinstance(error, DamageError):
        return 422  # the run is whole, but does not hold what was asked for
    return 400 if isinstance(error, UsageError) else 500


async def _in_thread(request: Request, work: Callable[[Token], Response]) -> Response:
    """`work` in a thread; its token is cancelled once the browser has disconnected."""
    import anyio
    import anyio.to_thread

    token = Token()

    def outcome(asked: Token) -> Response | AlltraceError | OSError:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            response = work(asked)
            took = 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu)
            response.headers["server-timing"] = f"wall;dur={took[0]:.1f}, cpu;dur={took[1]:.1f}"
            return response
        except (AlltraceError, OSError) as error:
            return error  # raised here, it would come out of the group as a group of errors

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        token.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        found = await anyio.to_thread.run_sync(outcome, token)
        group.cancel_scope.cancel()
    if isinstance(found, Exception):
        raise found
    return found


def _run(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001  all handlers have the same signature
    session.check_there()
    session.reopen()
    return Response(facts.facts_as_json(session), media_type="application/json")


def _state(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    return JSONResponse(session.state)


def _findings(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    session.check_ready()
    return JSONResponse(facts.findings(session, token))


def _job_time(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    session.check_ready()
    return JSONResponse(facts.job_time(session, token))


def _by_rank(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    session.check_ready()
    return JSONResponse(session.kept("by_rank", lambda: facts.by_rank(session), token))


def _recipes(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    return JSONResponse({"recipes": facts.recipes()})


def _heat(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    found = session.view.heat(asked.text("metric"), asked.number("level"), asked.number("index", least=0))
    header = {"x-alltrace-rows": str(found.shape[0]), "x-alltrace-bins": str(found.shape[1])}
    return Response(found.astype("<u2").tobytes(), media_type=_BINARY, headers=header)


def _fine(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.fine import fine_heat

    view, ranks = session.view, asked.ranks() or []
    with view.prefetcher.paused():
        found = fine_heat(view, asked.text("metric"), asked.number("level"), asked.number("index", least=0), ranks, token)
    return Response(found.astype("<u2").tobytes(), media_type=_BINARY, headers={"x-alltrace-bins": str(found.shape[1])})


def _tracks(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.labels import labelled

    ranks = asked.ranks() or []
    found = {}
    for rank in ranks[:256]:
        token.check()
        found[str(rank)] = labelled(session.view, rank)
    return JSONResponse({"tracks": found})


def _tiles(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.view import pack

    tracks = _tracks_named(asked.texts("tracks"))
    level, first, count = (asked.number(n, least=0) for n in ("level", "first", "count"))
    tiles, names = session.view.tiles(tracks, level, first, count, token)
    return Response(pack(tiles, names, {"level": level}), media_type=_BINARY)


def _tracks_named(texts: Sequence[str]) -> list[tuple[int, str]]:
    """The ranks and keys of tracks that are named as a rank, a slash and a key."""
    tracks = []
    for text in texts:
        rank, _, key = text.partition("/")
        if not rank.isdigit() or not rank.isascii() or len(rank) > 9:
            raise UsageError(f"unknown track {text!r}; expected a rank, a slash and a key")
        tracks.append((int(rank), key))
    return tracks


def _event(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    from alltrace.tiles.details import event_details, instance_of

    reader, rank = session.view.events, asked.number("rank", least=0)
    found = event_details(reader, rank, asked.text("table"), asked.number("row", least=0))
    if "collective" in found:
        found["instance"] = instance_of(reader, rank, found["collective"])
    return JSONResponse(plain(found))


def _neighbour(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    from alltrace.tiles.details import neighbour

    where = asked.number("rank", least=0), asked.text("table"), asked.number("row", least=0)
    return JSONResponse({"event": plain(neighbour(session.view.events, *where, forward=asked.flag("forward")))})


def _search(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.search import search

    found = search(session.view.events, asked.text("pattern", most=1000), _chosen(session, asked), token=token)
    return JSONResponse(plain(found))


def _window(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.window import summary

    view = session.view
    found = summary(view.events, _chosen(session, asked), asked.number("start"), asked.number("end"), token, gpus=view.gpus)
    return JSONResponse(plain(found))


def _area(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.area import Area, area_facts

    view = session.view
    tracks: dict[int, list[str]] = {}
    for rank, key in _tracks_named(asked.texts("tracks")):
        if rank not in view.broken:
            tracks.setdefault(rank, []).append(key)
    start, end, flame = asked.number("start"), asked.number("end"), asked.maybe("flame", 20) or "ranges"
    area = Area(tracks, start, end, flame, asked.maybe("pattern", 1000))
    with view.prefetcher.paused():
        return JSONResponse(plain(area_facts(view.events, area, token, gpus=view.gpus)))


def _events(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.window import events_between

    found = events_between(
        session.view.events,
        _chosen(session, asked),
        asked.texts("tables"),
        asked.number("start"),
        asked.number("end"),
        track=asked.maybe("track"),
        pattern=asked.maybe("pattern", 1000),
        least_ns=asked.number("least_ns", 0),
        token=token,
    )
    return JSONResponse(plain(found))


def _chosen(session: Session, asked: Asked) -> list[int]:
    """The requested ranks, all if none is named; unreadable ranks are left out, unless there is no other."""
    ranks, broken = asked.ranks(), session.view.broken
    wanted = [r.rank for r in session.run.ranks] if ranks is None else ranks
    found = [r for r in wanted if r not in broken]
    if wanted and not found:
        raise AlltraceError(f"rank {wanted[0]}: {broken[wanted[0]]}")
    return found


def _recipe(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.recipes.registry import find

    session.check_ready()
    ranks, name, options = asked.ranks(), asked.text("name", most=200), asked.options("options")
    file = next((o for o in find(name).options if o.reads is not None and options.get(o.name) is not None), None)
    if file is not None:
        raise UsageError(f"{file.flag} names files, which the page does not open; ask {name} on the command line")
    question = Question(
        name,
        options,
        None if ranks is None else tuple(ranks),
        asked.maybe("steps", 50),
        asked.flag("skip_warmup"),
        session.jobs,
    )
    found = kept(session, question)
    if found is None:
        with alone(_one_recipe, token):  # each uses all processors
            found = answer(session, question, token)
    told = plain_answer(found)
    if found.chart is not None:
        from alltrace.charts import draw, figure

        told["figure"] = plain(figure(draw(found)))
    return JSONResponse(told)


def _diff(other: Session, session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.recipes.questions.durations import chosen

    session.check_ready()
    other.check_ready()
    what, ranks = asked.maybe("what"), asked.ranks()
    chosen({"what": what})
    known = None if ranks is None else tuple(ranks)
    question = Question("diff", {"what": what}, known, asked.maybe("steps", 50), asked.flag("skip_warmup"), session.jobs)
    with alone(_one_recipe, token):
        found = comparison(session, other, question, token)
    return JSONResponse(plain_answer(found))


def _roofline(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    return JSONResponse(session.kept("roofline", _kernels(session).roofline))


def _weighed(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    kernels = _kernels(session)
    session.check_ready()
    with alone(_one_recipe, token):
        return JSONResponse(session.kept("weighed", lambda: kernels.weighed(answer(session, Question("launch-configurations")))))


def _kernels(session: Session) -> KernelReports:
    if session.kernels is None:
        raise UsageError("there are no kernel reports; start `alltrace ui RUN --ncu REPORT`")
    return session.kernels


def _history(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    if session.history is None:
        raise UsageError("there is no history; start `alltrace ui RUN --history HISTORY`")
    return JSONResponse(session.history.told(session.run.manifest, asked.maybe("job", 1000), asked.maybe("tag", 1000)))


def _sql(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.recipes.questions.sql import Limits
    from alltrace.recipes.questions.sql_process import limited_query

    session.check_ready()
    with alone(_one_query, token):
        limits = Limits(SQL_SECONDS, SQL_MEMORY_BYTES, SQL_ROWS)
        found = limited_query(session.run, asked.text("query", most=100_000), limits, token.check)
    return JSONResponse(plain_answer(found))


def _notes(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    from alltrace.tiles.notes import Notes

    session.check_there()
    return JSONResponse({"notes": Notes(session.run).all()})


def _note_add(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.notes import Notes

    session.check_there()
    note = {"text": asked.text("text"), "start": asked.number("start"), "end": asked.number("end"), "ranks": asked.ranks() or []}
    with alone(_one_note, token):
        return JSONResponse({"notes": Notes(session.run).add(note)})


def _note_remove(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.notes import Notes

    session.check_there()
    with alone(_one_note, token):
        return JSONResponse({"notes": Notes(session.run).remove(asked.number("id"))})


def _matrices(session: Session) -> Matrices:
    from alltrace.tiles.matrix import Matrices

    session.check_ready()
    aligned = session.aligned
    if aligned is None:
        raise UsageError("a run that is still being imported has no matrix; wait until the import has finished")
    found: Matrices = session.kept("matrices", lambda: Matrices(aligned))
    return found


def _matrix(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    return JSONResponse(plain(_matrices(session).told(asked.text("measure", 50), asked.text("by", 50))))


def _matrix_cells(session: Session, asked: Asked, token: Token) -> Response:  # noqa: ARG001
    found = _matrices(session).of(asked.text("measure", 50), asked.text("by", 50))
    return Response(found.astype("<f8").tobytes(), media_type=_BINARY)


def _two_spans(session: Session, asked: Asked, token: Token) -> Response:
    from alltrace.tiles.two_spans import difference

    view = session.view
    first, second = ((asked.number(f"{w}_start"), asked.number(f"{w}_end")) for w in ("first", "second"))
    return JSONResponse(plain(difference(view.events, _chosen(session, asked), first, second, token, gpus=view.gpus)))


def _laid(session: Session, asked: Asked, token: Token) -> Response:
    """What a query found, as tracks of the timeline."""
    from alltrace.recipes.questions.sql import Limits
    from alltrace.recipes.questions.sql_process import limited_query
    from alltrace.tiles.laid import laid

    session.check_ready()
    with alone(_one_query, token):
        limits = Limits(SQL_SECONDS, SQL_MEMORY_BYTES, LAID_ROWS)
        found = limited_query(session.run, asked.text("query", most=100_000), limits, token.check)
    return JSONResponse(plain({**laid(found.table), "notes": list(found.notes)}))


_HANDLERS: dict[str, Handler] = {
    "run": _run,
    "state": _state,
    "findings": _findings,
    "by-rank": _by_rank,
    "job-time": _job_time,
    "recipes": _recipes,
    "heat": _heat,
    "heat-fine": _fine,
    "tracks": _tracks,
    "tiles": _tiles,
    "event": _event,
    "neighbour": _neighbour,
    "search": _search,
    "window": _window,
    "area": _area,
    "events": _events,
    "recipe": _recipe,
    "sql": _sql,
    "laid": _laid,
    "notes": _notes,
    "note-add": _note_add,
    "note-remove": _note_remove,
    "matrix": _matrix,
    "matrix-cells": _matrix_cells,
    "two-spans": _two_spans,
    "roofline": _roofline,
    "weighed": _weighed,
    "history": _history,
}
_POSTED = frozenset(
    {
        "heat-fine",
        "tracks",
        "tiles",
        "search",
        "window",
        "area",
        "events",
        "recipe",
        "sql",
        "laid",
        "two-spans",
        "note-add",
        "note-remove",
    }
)
