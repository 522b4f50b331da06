"""The data for the page, by path; each from recipes or tiles."""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alltrace.recipes.base import Answer
from alltrace.tiles.cancel import CancelledError, Token
from alltrace.tiles.matrix import Matrices
from alltrace.tiles.notes import Notes
from alltrace.trace.errors import AlltraceError, DamageError, InputError, UsageError, printable
from alltrace.ui import facts
from alltrace.ui.json_values import plain, plain_answer
from alltrace.ui.kernels import KernelReports
from alltrace.ui.recipe_process import Question, answer, comparison, kept
from alltrace.ui.request_values import RequestValues
from alltrace.ui.session import GoneError, NotReadyError, Session, alone, understandable

Handler = Callable[[Session, RequestValues, Token], Any]  # a response, or what is sent as JSON

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
    compared: dict[str, Handler] = {} if other is None else {"diff": partial(_diff, other)}
    return [
        Route(f"/{name}", _endpoint(session, handler), methods=[method])
        for method, handlers in (("GET", _READ), ("POST", _POSTED | compared))
        for name, handler in handlers.items()
    ]


def _endpoint(session: Session, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            values = await RequestValues.of(request)
            return await _in_thread(request, partial(handler, session, values))
        except CancelledError:
            return Response(status_code=_NOBODY_WAITS)
        except (AlltraceError, OSError) as raised:
            error = understandable(session, raised)
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


async def _in_thread(request: Request, work: Callable[[Token], Any]) -> Response:
    """`work` in a thread; its token is cancelled once the browser has disconnected."""
    import anyio
    import anyio.to_thread

    token = Token()

    def outcome(token: Token) -> Response | AlltraceError | OSError:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            content = work(token)
            response = content if isinstance(content, Response) else JSONResponse(content)
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
        outcome_or_error = await anyio.to_thread.run_sync(outcome, token)
        group.cancel_scope.cancel()
    if isinstance(outcome_or_error, Exception):
        raise outcome_or_error
    return outcome_or_error


# all handlers have the same signature
def _run(session: Session, values: RequestValues, token: Token) -> Response:  # noqa: ARG001
    session.check_there()
    session.reopen()
    return Response(facts.facts_as_json(session), media_type="application/json")


def _heat(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    heat = session.view.heat(values.text("metric"), values.number("level"), values.number("index", least=0))
    header = {"x-alltrace-rows": str(heat.shape[0]), "x-alltrace-bins": str(heat.shape[1])}
    return Response(heat.astype("<u2").tobytes(), media_type=_BINARY, headers=header)


def _fine(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.fine import fine_heat

    view, ranks = session.view, values.ranks() or []
    with view.prefetcher.paused():
        heat = fine_heat(
            view, values.text("metric"), values.number("level"), values.number("index", least=0), ranks, token
        )
    return Response(heat.astype("<u2").tobytes(), media_type=_BINARY, headers={"x-alltrace-bins": str(heat.shape[1])})


def _tracks(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.labels import labelled

    ranks = values.ranks() or []
    tracks = {}
    for rank in ranks[:256]:
        token.check()
        tracks[str(rank)] = labelled(session.view, rank)
    return {"tracks": tracks}


def _tiles(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.view import pack

    tracks = _tracks_named(values.texts("tracks"))
    level, first, count = (values.number(n, least=0) for n in ("level", "first", "count"))
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


def _event(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    from alltrace.tiles.details import event_details, instance_of

    reader, rank = session.view.events, values.number("rank", least=0)
    details = event_details(reader, rank, values.text("table"), values.number("row", least=0))
    if "collective" in details:
        details["instance"] = instance_of(reader, rank, details["collective"])
    return plain(details)


def _neighbour(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    from alltrace.tiles.details import neighbour

    where = values.number("rank", least=0), values.text("table"), values.number("row", least=0)
    return {"event": plain(neighbour(session.view.events, *where, forward=values.flag("forward")))}


def _search(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.search import search

    hits = search(session.view.events, values.text("pattern", most=1000), _chosen(session, values), token=token)
    return plain(hits)


def _window(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.window import summary

    view = session.view
    totals = summary(
        view.events, _chosen(session, values), values.number("start"), values.number("end"), token, gpus=view.gpus
    )
    return plain(totals)


def _area(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.area import Area, area_facts

    view = session.view
    tracks: dict[int, list[str]] = {}
    for rank, key in _tracks_named(values.texts("tracks")):
        if rank not in view.broken:
            tracks.setdefault(rank, []).append(key)
    start, end, flame = values.number("start"), values.number("end"), values.maybe("flame", 20) or "ranges"
    area = Area(tracks, start, end, flame, values.maybe("pattern", 1000))
    with view.prefetcher.paused():
        return plain(area_facts(view.events, area, token, gpus=view.gpus))


def _events(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.window import events_between

    events = events_between(
        session.view.events,
        _chosen(session, values),
        values.texts("tables"),
        values.number("start"),
        values.number("end"),
        track=values.maybe("track"),
        pattern=values.maybe("pattern", 1000),
        least_ns=values.number("least_ns", 0),
        token=token,
    )
    return plain(events)


def _chosen(session: Session, values: RequestValues) -> list[int]:
    """The requested ranks, all if none is named; unreadable ranks are left out, unless there is no other."""
    ranks, broken = values.ranks(), session.view.broken
    wanted = [r.rank for r in session.run.ranks] if ranks is None else ranks
    readable = [r for r in wanted if r not in broken]
    if wanted and not readable:
        raise AlltraceError(f"rank {wanted[0]}: {broken[wanted[0]]}")
    return readable


def _recipe(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.recipes.registry import find

    session.check_ready()
    ranks, name, options = values.ranks(), values.text("name", most=200), values.options("options")
    file = next((o for o in find(name).options if o.reads is not None and options.get(o.name) is not None), None)
    if file is not None:
        raise UsageError(f"{file.flag} names files, which the page does not open; ask {name} on the command line")
    question = Question(
        name,
        options,
        None if ranks is None else tuple(ranks),
        values.maybe("steps", 50),
        values.flag("skip_warmup"),
        session.jobs,
    )
    result = kept(session, question)
    if result is None:
        with alone(_one_recipe, token):  # each uses all processors
            result = answer(session, question, token)
    body = plain_answer(result)
    if result.chart is not None:
        from alltrace.charts import draw, figure

        body["figure"] = plain(figure(draw(result)))
    return body


def _diff(other: Session, session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.recipes.questions.durations import chosen

    session.check_ready()
    other.check_ready()
    what, ranks = values.maybe("what"), values.ranks()
    chosen({"what": what})
    known = None if ranks is None else tuple(ranks)
    question = Question(
        "diff", {"what": what}, known, values.maybe("steps", 50), values.flag("skip_warmup"), session.jobs
    )
    with alone(_one_recipe, token):
        differences = comparison(session, other, question, token)
    return plain_answer(differences)


def _weighed(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    kernels = _kernels(session)
    session.check_ready()
    with alone(_one_recipe, token):
        return session.kept("weighed", lambda: kernels.weighed(answer(session, Question("launch-configurations"))))


def _kernels(session: Session) -> KernelReports:
    if session.kernels is None:
        raise UsageError("there are no kernel reports; start `alltrace ui RUN --ncu REPORT`")
    return session.kernels


def _history(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    if session.history is None:
        raise UsageError("there is no history; start `alltrace ui RUN --history HISTORY`")
    return session.history.told(session.run.manifest, values.maybe("job", 1000), values.maybe("tag", 1000))


def _queried(session: Session, values: RequestValues, token: Token, rows: int) -> Answer:
    """The answer to a query of the user's, in a process with limits, one at a time."""
    from alltrace.recipes.questions.sql import Limits
    from alltrace.recipes.questions.sql_process import limited_query

    session.check_ready()
    with alone(_one_query, token):
        limits = Limits(SQL_SECONDS, SQL_MEMORY_BYTES, rows)
        return limited_query(session.run, values.text("query", most=100_000), limits, token.check)


def _when_ready(make: Callable[[Session, Token], Any]) -> Handler:
    def handler(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
        session.check_ready()
        return make(session, token)

    return handler


def _noting(change: Callable[[Notes, RequestValues], Any]) -> Handler:
    def handler(session: Session, values: RequestValues, token: Token) -> Any:
        from alltrace.tiles.notes import Notes

        session.check_there()
        with alone(_one_note, token):
            return {"notes": change(Notes(session.run), values)}

    return handler


def _note(values: RequestValues) -> dict[str, Any]:
    start, end = values.number("start"), values.number("end")
    return {"text": values.text("text"), "start": start, "end": end, "ranks": values.ranks() or []}


def _notes(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    from alltrace.tiles.notes import Notes

    session.check_there()
    return {"notes": Notes(session.run).all()}


def _matrices(session: Session) -> Matrices:
    from alltrace.tiles.matrix import Matrices

    session.check_ready()
    aligned = session.aligned
    if aligned is None:
        raise UsageError("a run that is still being imported has no matrix; wait until the import has finished")
    matrices: Matrices = session.kept("matrices", lambda: Matrices(aligned))
    return matrices


def _matrix_cells(session: Session, values: RequestValues, token: Token) -> Any:  # noqa: ARG001
    matrix = _matrices(session).of(*_measured(values))
    return Response(matrix.astype("<f8").tobytes(), media_type=_BINARY)


def _measured(values: RequestValues) -> tuple[str, str]:
    return values.text("measure", 50), values.text("by", 50)


def _two_spans(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.two_spans import difference

    view = session.view
    first, second = ((values.number(f"{w}_start"), values.number(f"{w}_end")) for w in ("first", "second"))
    return plain(difference(view.events, _chosen(session, values), first, second, token, gpus=view.gpus))


def _laid(session: Session, values: RequestValues, token: Token) -> Any:
    from alltrace.tiles.laid import laid

    answer = _queried(session, values, token, LAID_ROWS)
    return plain({**laid(answer.table), "notes": list(answer.notes)})


_READ: dict[str, Handler] = {
    "run": _run,
    "state": lambda session, *_: session.state,
    "findings": _when_ready(facts.findings),
    "by-rank": _when_ready(lambda session, token: session.kept("by_rank", partial(facts.by_rank, session), token)),
    "job-time": _when_ready(facts.job_time),
    "recipes": lambda *_: {"recipes": facts.recipes()},
    "tables": lambda *_: {"tables": facts.tables()},
    "heat": _heat,
    "event": _event,
    "neighbour": _neighbour,
    "notes": _notes,
    "matrix": lambda session, values, _: plain(_matrices(session).facts(*_measured(values))),
    "matrix-cells": _matrix_cells,
    "roofline": lambda session, *_: session.kept("roofline", _kernels(session).roofline),
    "weighed": _weighed,
    "history": _history,
}
_POSTED: dict[str, Handler] = {
    "heat-fine": _fine,
    "tracks": _tracks,
    "tiles": _tiles,
    "search": _search,
    "window": _window,
    "area": _area,
    "events": _events,
    "recipe": _recipe,
    "sql": lambda session, values, token: plain_answer(_queried(session, values, token, SQL_ROWS)),
    "laid": _laid,
    "two-spans": _two_spans,
    "note-add": _noting(lambda notes, values: notes.add(_note(values))),
    "note-remove": _noting(lambda notes, values: notes.remove(values.number("id"))),
}
