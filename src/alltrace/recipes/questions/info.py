"""Who ran where: each rank's host, process and devices, how its number was found, and how many rows of what it has.

The list `clocks` has one row per host: `offset_ns` (how far its clock is ahead of the first host's), `drift_ppm`,
`error_ns` (how far the offset may be off in the time of the evidence: half of its 95 % interval; null without any),
`residual_ns` (typical scatter of the ends of collectives; likewise), `evidence` (collectives used) and `component`
(hosts with the same number were connected by evidence; others by their UTC stamps alone); and `communicators`, one row:
`grid` (the dimensions that they form, such as `TP 2 x PP 2 x DP 4`, neighbouring ranks first; null if they form none),
`found_by` (`ids` if the reports name them, `logs` if NCCL's logs do, `structure` if they are inferred from who ends
together), `communicators` (how many there are), `score` (how sure it is which ranks communicate, from 0 to 1), and
`reason` (why nothing should be computed from that; null if it is sure enough).

Where records are missing there is `missing_records` too, one row for each rank and kind: `rank`, `what` (`kernels` of
launches, `launches` of kernels, or what `graphs` ran), `number` out of `of`, `place` (at the `start` or `end` of the
capture, in a few `places`, `spread` all over it, or `everywhere`), `start_ns` and `end_ns` (when the first and the last
of them were launched, aligned), and `unrecorded_ns` (how long work without a record may have run, which is not judged).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from alltrace.align.aligned import Aligned
from alltrace.recipes.analysis.unrecorded import session_ns
from alltrace.recipes.base import Answer, Options, Part, Question, RunFacts
from alltrace.run.manifest import Manifest, RankRecord, warnings_of_report
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import counted
from alltrace.trace.schema import EVENT_TABLES

COLUMNS: col.Columns = (
    col.whole("rank", "rank"),
    col.whole("local_rank", "its number on its host"),
    col.text("host", "host"),
    col.whole("process", "process ID of the process that computes"),
    col.texts("devices", "GPUs: name and UUID, or bus id, or CUDA ordinal"),
    col.text("role", "its role in a program of several groups of ranks; no column if no rank has a role"),
    col.text("rank_source", "how its number was found"),
    col.texts("reports", "number of its reports"),
    col.ns("start_ns", "first start of any event, aligned, from the session's start"),
    col.ns("end_ns", "last end of any event, aligned, from the session's start"),
    col.ns(
        "session_ns",
        "from the start of its first report's session to the end of its last one's; null if the reports do not say",
    ),
    col.ns(
        "recorded_ns",
        "how much of the time from start to end was recorded: without pauses of the profiler and lost records",
    ),
    *(col.whole(t, f"rows of {t}; no column if no rank has the table") for t in EVENT_TABLES),
)


def _map(rank: Rank, _options: Options) -> Any:
    """Nothing: all it takes is in the manifest."""
    del rank
    return pa.table({"nothing": pa.array([], pa.int64())})


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    from alltrace.run.clock import clock_map

    manifest = run.manifest
    numbers = {p.rank for p in parts}
    ranks = [r for r in run.ranks if r.rank in numbers]
    present = [t for t in EVENT_TABLES if any(r.rows.get(t) for r in ranks)]
    roles = {r.rank: manifest.role_of(r) for r in ranks}
    absent = {*EVENT_TABLES, *(() if any(roles.values()) else ("role",))} - set(present)
    columns = tuple(c for c in COLUMNS if c.name not in absent)
    rows = []
    for r in ranks:
        clock = clock_map(manifest, r)
        rows.append(
            {
                "rank": r.rank,
                "local_rank": r.local_rank,
                "host": r.host,
                "process": r.pids[0] if r.pids else None,
                "devices": [f"{d.name or 'GPU'} ({d.identity[1]})" for d in r.devices],
                "role": roles[r.rank],
                "rank_source": r.rank_source,
                "reports": [path_text(manifest.reports[i].path) for i in r.reports],
                "start_ns": None if r.start_ns is None else clock.apply_one(r.start_ns),
                "end_ns": None if r.end_ns is None else clock.apply_one(r.end_ns),
                "session_ns": session_ns(manifest, r),
                "recorded_ns": (
                    None if r.start_ns is None or r.end_ns is None else r.end_ns - r.start_ns - _unrecorded_ns(r)
                ),
                **{t: r.rows.get(t, 0) for t in present},
            }
        )
    clock_columns = ("host", "offset_ns", "drift_ppm", "error_ns", "residual_ns", "evidence", "component")
    clocks = [{name: getattr(clock, name) for name in clock_columns} for clock in manifest.clocks]
    extra = {"clocks": clocks, "communicators": _communicators(run.alignment, [r.rank for r in run.ranks])}
    slowdown = run.alignment.capture_slowdown if run.alignment is not None else None
    slowed = () if slowdown is None else (slowdown.text,)
    if lost := _missing_records(manifest, ranks):
        extra["missing_records"] = lost
    return Answer.of(rows, columns, (*_warnings(manifest), *_logs(manifest), *slowed), extra)


def _unrecorded_ns(rank: RankRecord) -> int:
    return sum(end - start for start, end in rank.unrecorded)


def _communicators(alignment: Aligned | None, ranks: Sequence[int]) -> list[dict[str, Any]]:
    """How sure the matching of communicators is, in one row; none without communication."""
    from alltrace.recipes.analysis.parallel_grid import grid_of

    if alignment is None or alignment.matching_score is None:
        return []
    grid = grid_of(alignment.groups, ranks)
    ways = {g.found_by for g in alignment.groups}
    return [
        {
            "grid": None if grid is None else grid.text,
            "found_by": next((w for w in ("structure", "logs", "ids") if w in ways), None),
            "communicators": len(alignment.groups),
            "score": alignment.matching_score,
            "reason": alignment.matching_reason,
        }
    ]


def _missing_records(manifest: Manifest, ranks: Sequence[RankRecord]) -> list[dict[str, Any]]:
    from alltrace.run.clock import clock_map

    rows = []
    for rank in ranks:
        clock = clock_map(manifest, rank)
        hidden = _unrecorded_ns(rank)
        for lost in rank.missing_records:
            times = {"start_ns": clock.apply_one(lost.start_ns), "end_ns": clock.apply_one(lost.end_ns)}
            counts: dict[str, Any] = {"what": lost.what, "number": lost.number, "of": lost.of, "place": lost.place}
            rows.append(
                {"rank": rank.rank, **counts, **times, "unrecorded_ns": 0 if lost.what == "launches" else hidden}
            )
    return rows


def _logs(manifest: Manifest) -> list[str]:
    """Which GPU logs were joined with the reports."""
    logs = [log for log in manifest.logs if log.kind == "gpu"]
    samples = counted(sum(log.records for log in logs), "sample")
    return (
        [f"{counted(len(logs), 'GPU log')} joined: {samples} of clocks, power and temperature in `gpu_log`"]
        if logs
        else []
    )


def _warnings(manifest: Any) -> list[str]:
    """What readers warned of, each sentence once, with how many reports it is true of; and what was left out."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for number, report in enumerate(manifest.reports):
        for warning in warnings_of_report(manifest, number):
            by_text[str(warning)].append(path_text(report.path))
    texts = [
        f"{paths[0]}: {text}" if len(paths) == 1 else f"{len(paths)} reports: {text}" for text, paths in by_text.items()
    ]
    return [*texts, *(f"left out: {r}" for r in manifest.redactions)]


QUESTION = Question(
    "info",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    clock="aligned",
    windowed=False,
    important=("rank", "host", "reports", "devices", "kernels", "start_ns", "end_ns"),
)
