"""Where each device's time went: compute, exposed communication, exposed copies, idle.

At any moment a device is in exactly one class, the first that applies: a compute kernel runs; else a communication
kernel runs; else a copy runs; else idle. So the classes sum to the span, to the nanosecond. Kernels that no rule names
are compute, unless some of them look like communication, because all ranks of a host end them together: then these are
a separate class after communication. The span is from the first start to the last end of the device's work, or of all
devices' work with `--span run`. Time with possibly lost records is in no class, and not in the span.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, TABLES, class_notes, device_activity, device_rows
from alltrace.recipes.analysis.unrecorded import session_ns, unrecorded_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import NOTHING, classify_ns, clip, union
from alltrace.trace.number_text import numbered

_CLASSES = ("compute_ns", "exposed_communication_ns", "unclassified_ns", "exposed_copy_ns", "idle_ns")

_LONG_SESSION = 2  # a session that is longer than this many times the work that it recorded is said

_OF_ROLE = (
    col.text("role", "role"),
    col.whole("ranks", "how many ranks have it"),
    col.whole("devices", "how many devices they use"),
)
_CHART_OF_ROLES = Chart("stacked_bars", "role", _CLASSES, title="Where each role's time went")
_NO_ROLES = (
    "no rank of this run has a role, so all ranks are one group; set roles with `alltrace capture exec "
    "--role NAME` or ALLTRACE_ROLE "
    "in the environment"
)

COLUMNS: col.Columns = (
    col.RANK,
    col.text("host", "host"),
    GPU,
    col.ns("span_ns", "the total time, of which the other columns are parts"),
    col.ns("compute_ns", "a compute kernel runs"),
    col.ns("exposed_communication_ns", "a communication kernel runs and no compute kernel"),
    col.ns(
        "unclassified_ns",
        "a kernel runs that no rule names and that all ranks of a host end together, and no compute or communication"
        " kernel",
    ),
    col.ns("exposed_copy_ns", "a copy or fill runs and no kernel"),
    col.ns("idle_ns", "nothing runs"),
    col.percent("compute_percent", "compute_ns as a share of span_ns"),
    col.percent("exposed_communication_percent", "exposed_communication_ns as a share of span_ns"),
    col.percent("unclassified_percent", "unclassified_ns of span_ns"),
    col.percent("exposed_copy_percent", "exposed_copy_ns as a share of span_ns"),
    col.percent("idle_percent", "idle_ns of span_ns"),
)

CHART = Chart("stacked_bars", "rank", _CLASSES, detail="gpu", title="Where each device's time went")


def _columns(options: Options) -> col.Columns:
    return (*_OF_ROLE, *COLUMNS[3:]) if options["by"] == "role" else COLUMNS


def _map(rank: Rank, _options: Options) -> Any:
    rows: list[dict[str, Any]] = []
    for work in device_activity(rank):
        busy = union((work.compute, work.communication, work.meeting, work.copies))
        sets = (rank.unrecorded(busy), work.compute, work.communication, work.meeting, work.copies)
        left_out, *times = classify_ns(sets, work.start_ns, work.end_ns)
        rows.append({**work.facts(), "left_out_ns": left_out, **dict(zip(_CLASSES, times, strict=True))})
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    rows = device_rows(parts, run)
    hosts = {r.rank: r.host for r in run.ranks}
    first = min((row["start_ns"] for row in rows), default=0)
    last = max((row["end_ns"] for row in rows), default=0)
    unrecorded = unrecorded_of(run)
    for row in rows:
        own = row["end_ns"] - row["start_ns"] - row["left_out_ns"]
        span = own
        if options["span"] == "run":
            span = last - first - clip(unrecorded.get(row["rank"], NOTHING), first, last).total_ns
        row["idle_ns"] += span - own
        row |= {c.replace("_ns", "_percent"): 100 * row[c] / span if span else None for c in _CLASSES}
        row |= {"host": hosts[row["rank"]], "span_ns": span}
    if options["by"] == "role":
        columns = _columns(options)
        table = col.table_of(_by_role(rows, run), columns)
        has_roles = any(run.manifest.role_of(r) for r in run.ranks)
        return Answer(table, columns, (*class_notes(rows), *(() if has_roles or not rows else (_NO_ROLES,))))
    return Answer.of(rows, COLUMNS, (*_sessions(rows, run), *_left_out(rows), *class_notes(rows)))


def _sessions(rows: Sequence[Mapping[str, Any]], run: RunFacts) -> list[str]:
    """That sessions of profilers took much longer than what they recorded of devices: one note on all such ranks."""
    worked: dict[int, int] = {}
    for row in rows:
        worked[row["rank"]] = max(worked.get(row["rank"], 0), row["span_ns"])
    long: dict[int, int] = {}
    for rank in run.ranks:
        session, longest = session_ns(run.manifest, rank), worked.get(rank.rank)
        if session is not None and longest is not None and session > _LONG_SESSION * longest:
            long[rank.rank] = session
    if not long:
        return []
    captured, work = _seconds(long.values()), _seconds(worked[rank] for rank in long)
    return [
        f"{numbered('rank', sorted(long))}: {captured} captured, {work} of GPU work; the percentages are of the latter"
    ]


def _seconds(values: Iterable[int]) -> str:
    """Some ns as seconds: one value, or from the least to the most."""
    ordered = sorted(values)
    least, most = (f"{value / 1e9:.3g}" for value in (ordered[0], ordered[-1]))
    return f"{least} s" if least == most else f"{least} to {most} s"


def _left_out(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How little of the time of some ranks is divided."""
    judged = {r["rank"]: 1 - r["left_out_ns"] / (r["end_ns"] - r["start_ns"]) for r in rows if r["left_out_ns"]}
    if not judged:
        return []

    least = min(judged.values())
    share = f"{100 * least:.1f} %" if len(judged) == 1 else f"{100 * least:.1f} % to {100 * max(judged.values()):.1f} %"
    who = numbered("rank", sorted(judged))
    return [f"{who}: {share} of the time is counted; the rest was not recorded, or lacks records"]


def _by_role(rows: Sequence[Mapping[str, Any]], run: RunFacts) -> list[dict[str, Any]]:
    """The sums over the devices of each role's ranks."""
    roles = {r.rank: run.manifest.role_of(r) for r in run.ranks}
    roles_sums: dict[str | None, dict[str, Any]] = {}
    for row in rows:
        role = roles[row["rank"]]
        into = roles_sums.setdefault(
            role, {"role": role, "numbers": set(), "devices": 0, **dict.fromkeys(("span_ns", *_CLASSES), 0)}
        )
        into["numbers"].add(row["rank"])
        into["devices"] += 1
        for column in ("span_ns", *_CLASSES):
            into[column] += row[column]
    for into in roles_sums.values():
        span = into["span_ns"]
        into |= {c.replace("_ns", "_percent"): 100 * into[c] / span if span else None for c in _CLASSES}
        into["ranks"] = len(into.pop("numbers"))
    return sorted(roles_sums.values(), key=lambda row: (row["role"] is None, row["role"]))


QUESTION = Question(
    "breakdown",
    __doc__,
    _columns,
    _map,
    _merge,
    tables=TABLES,
    options=(
        Option(
            "span",
            str,
            "device",
            "the span of each row: of the device's own work, or from the first to the last work of any device",
            ("device", "run"),
        ),
        Option("by", str, "device", "one row per device, or one per role of ranks, with sums", ("device", "role")),
    ),
    chart=lambda options: _CHART_OF_ROLES if options["by"] == "role" else CHART,
    clock=lambda options: "one" if options["span"] == "run" else "own",
    of_hosts=True,
    important=("rank", "compute_percent", "exposed_communication_percent", "idle_percent", "gpu", "host", "span_ns"),
)
