"""The page's facts about a run: its ranks, steps, findings; each finding with the place and time to look at."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow.compute as pc

from alltrace.align.aligned import Aligned
from alltrace.recipes.analysis.parallel_grid import grid_of
from alltrace.recipes.execution.availability import notes_on_damage
from alltrace.tiles.cancel import WANTED, Token
from alltrace.trace.errors import AlltraceError
from alltrace.trace.schema import EVENT_TABLES
from alltrace.ui.json_values import plain, plain_answer
from alltrace.ui.recipe_process import Question, answer, stage_answer
from alltrace.ui.session import Session, Shown
from alltrace.ui.stages import FINDINGS, JOB_TIME

MOST_STEPS = 5000


def run_facts(session: Session, shown: Shown) -> dict[str, Any]:
    run, view, aligned, number = shown
    facts: dict[str, Any] = {
        "alltrace": 1,
        "verb": "ui",
        "run": run.facts(),
        "name": session.name,
        "shown": number,
        "ranks": [
            {
                "rank": r.rank,
                "local_rank": r.local_rank,
                "host": r.host,
                "role": run.manifest.role_of(r),
                "devices": [d.name or "GPU" for d in r.devices],
                "rows": sum(r.rows.values()),
                "tables": sorted(t for t, n in r.rows.items() if n),
            }
            for r in run.ranks
        ],
        "clocks": [
            {n: getattr(c, n) for n in ("host", "offset_ns", "drift_ppm", "error_ns", "residual_ns", "evidence")}
            for c in run.manifest.clocks
        ],
        "missing_ranks": list(run.manifest.missing_ranks),
        "notes": [
            *run.manifest.notes,
            *notes_on_damage(run, run.ranks, dict.fromkeys(EVENT_TABLES, ()), aligned=False),
        ],
        "origin_ns": run.origin_ns,
        "history": None if session.history is None else session.history.name,
        "kernel_reports": [] if session.kernels is None else session.kernels.names,
    }
    if view is not None:
        facts["grid"] = {"level": view.grid.level, "span_ns": view.grid.span_ns}
        facts["metrics"] = [{"name": m, "scale": view.scales.get(m)} for m in view.metrics]
        facts["broken"] = {str(k): v for k, v in view.broken.items()}
        facts["steps"] = [] if aligned is None else session.kept("steps", lambda: _steps(aligned, run.span_ns[0]))
    if aligned is not None:
        facts["notes"] += list(aligned.notes)
        grid = grid_of(aligned.groups, [r.rank for r in run.ranks])
        facts["dimensions"] = [] if grid is None else [{"name": name, "size": size} for name, size in grid.dimensions]
        facts["communicators"] = [{"name": g.name, "ranks": list(g.ranks)} for g in aligned.groups]
    facts_by_name: dict[str, Any] = plain(facts)
    return facts_by_name


def facts_as_json(session: Session) -> bytes:
    """`run_facts` and the `state` as the page gets them; kept, as thousands of ranks take a while to write."""
    shown, state = session.shown, _json(session.state)
    facts: bytes = session.kept(f"run {shown.number}", lambda: _json(run_facts(session, shown)))
    return b'{"state":' + state + b"," + facts[1:]


def _json(values: dict[str, Any]) -> bytes:
    import json

    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def make_answers(session: Session) -> None:
    """Compute the page's data of a run that is ready, stage by stage; a failed stage has its reason."""
    facts_as_json(session)
    for make in (job_time, findings):
        with suppress(AlltraceError, OSError, MemoryError):
            make(session)


def _steps(aligned: Aligned, zero: int) -> list[dict[str, Any]]:
    """The steps, each from its first start on any rank to its last end."""
    if not aligned.steps.num_rows:
        return []
    table = aligned.steps
    ends = pc.max_element_wise(table.column("end"), table.column("device_end"))
    grouped = (
        table.select(["step", "start", "kind"])
        .set_column(2, "kind", table.column("kind").cast("string"))
        .append_column("end", ends)
        .append_column("length", pc.subtract(table.column("end"), table.column("start")))
        .group_by("step")
        .aggregate([("start", "min"), ("end", "max"), ("kind", "min"), ("length", "mean"), ("length", "max")])
        .sort_by("step")
    )
    names = ("step", "start_min", "end_max", "kind_min", "length_mean", "length_max")
    rows = zip(*(grouped.column(c).to_pylist() for c in names), strict=True)
    return [
        {"step": step, "start": start - zero, "end": end - zero, "kind": kind, "mean_ns": mean, "longest_ns": longest}
        for step, start, end, kind, mean, longest in list(rows)[:MOST_STEPS]
    ]


def findings(session: Session, token: Token = WANTED) -> dict[str, Any]:
    """What `diagnose` found, as rows; with the `verdict` in words, and a card per row with the place to look at."""
    findings: dict[str, Any] = session.made(FINDINGS, partial(_findings, session), token)
    return findings


def _findings(session: Session, advance: Callable[[int], None]) -> dict[str, Any]:
    from alltrace.recipes.questions.diagnose.cards import told
    from alltrace.tiles.places import Places

    result = answer(session, Question("diagnose", jobs=session.jobs), progress=advance)
    diagnosis, places = told(result, {r.rank: r.host for r in session.run.ranks}), Places(session.view)
    cards = []
    for card, row in zip(diagnosis.cards, result.table.to_pylist(), strict=True):
        place = places.of(card.kind, card.ranks, row["where"])
        # nothing of it can be pointed at, so the sentence says what to look for
        if place is not None and place.event is None:
            place = place._replace(says=f"{card.what}: {place.says}")
        parts = {"proof": card.proof, "place": place, "step_times": card.step_times}
        cards.append(card._asdict() | {name: None if part is None else part._asdict() for name, part in parts.items()})
    told_of: dict[str, Any] = plain({"verdict": diagnosis.verdict, "cards": cards})
    return plain_answer(result) | told_of | {"notes": list(diagnosis.notes)}


def job_time(session: Session, token: Token = WANTED) -> dict[str, Any]:
    """Where the time of all devices went: ns by class, as in the recipe `breakdown` for each device, and its notes."""
    times: dict[str, Any] = session.made(JOB_TIME, partial(_job_time, session), token)
    return times


def _job_time(session: Session, advance: Callable[[int], None]) -> dict[str, Any]:
    answer = stage_answer(session, Question("breakdown", jobs=session.jobs), progress=advance)
    names = [c.name for c in answer.columns if c.name.endswith("_ns") and c.name != "span_ns"]
    classes = [
        {"name": name.removesuffix("_ns").replace("_", " "), "ns": pc.sum(answer.table.column(name)).as_py() or 0}
        for name in names
    ]
    times: dict[str, Any] = plain({"classes": classes, "devices": answer.table.num_rows, "notes": list(answer.notes)})
    return times


def by_rank(session: Session) -> dict[str, Any]:
    """What ranks can be sorted by: for each rank what it waited and caused, ns, the mean share of each metric, %."""
    import numpy as np

    from alltrace.tiles.files import NO_DATA
    from alltrace.tiles.waits import waited_and_caused

    view = session.view
    waits = waited_and_caused(session.run)
    columns: dict[str, list[Any]] = {"rank": [r.rank for r in session.run.ranks]}
    if waits:
        columns |= {name: [waits[r][i] for r in columns["rank"]] for i, name in enumerate(("waited_ns", "caused_ns"))}
    for metric in view.metrics:
        values = view.whole(metric)
        known = values != NO_DATA
        sums, counts = np.where(known, values, 0).sum(axis=1, dtype=np.int64), known.sum(axis=1)
        columns[metric] = [
            round(100 * s / c / 65534, 2) if c else None for s, c in zip(sums.tolist(), counts.tolist(), strict=True)
        ]
    return {"columns": columns}


def tables() -> dict[str, list[str]]:
    from alltrace.run.sql_views import with_duration
    from alltrace.trace.schema import TABLES

    return {
        name: ["rank", "host", *(c.name for c in with_duration(table))]
        for name, table in TABLES.items()
        if name != "names"
    }


def recipes() -> list[dict[str, Any]]:
    from alltrace.recipes.registry import REPORTS, find, groups

    entries = []
    shelves = {**groups(), "nsys stats": [f"stats:{report}" for report in REPORTS]}
    for group, name in ((group, name) for group, names in shelves.items() for name in names):
        recipe = find(name)
        text = (recipe.doc or "").strip()
        entries.append(
            {
                "name": name,
                "group": group,
                "summary": text.splitlines()[0] if text else "",
                "windowed": recipe.windowed,
                "session_time": recipe.session_time,
                "options": [o.facts() for o in recipe.options if o.reads is None],  # the page opens no files
            }
        )
    return entries
