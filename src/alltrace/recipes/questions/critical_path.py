"""The chain of work over all ranks that decided how long the run took.

From the last end backwards: through a rank's own work to what it waited for, and at a collective to the rank that
arrived last (Böhme et al., IPDPS 2012). Shortening anything else makes the run no shorter. The times sum to the time
from the run's first moment to the last end.
"""

from functools import partial
from typing import Any

import numpy as np

from alltrace.recipes.analysis.run_replay import (
    TABLES,
    graph_of,
    graph_reads,
    merged_replay,
    name_texts,
    other_culprit,
    peers_in,
    replay_notes,
)
from alltrace.recipes.base import Answer, Chart, Option, Options, Question, RunFacts, alignment_of
from alltrace.replay.join import Replay
from alltrace.replay.path import CLASSES, Pieces, critical_path, rank_slack_ns
from alltrace.replay.rank_graph import COMPUTE
from alltrace.trace import columns as col
from alltrace.trace.amounts import amount
from alltrace.trace.distinct import rows_by

_RANK = col.rank("rank", "the rank on which this part of the path runs")
_CLASS = col.text(
    "class",
    "compute; transfer (a collective after its last arrival); communication that no other rank's matches; copy; host; "
    "gap (launch latency and pauses of the device); idle (nothing explains it)",
)

COLUMNS: col.Columns = (
    _RANK,
    col.device(),
    _CLASS,
    col.ns("time_ns", "time of the path in this class on this rank"),
    col.percent("share_percent", "share of the whole path", None),
    col.ns("slack_ns", "how much longer the rank could take, at its tightest point, without making the run longer"),
)

CHART = Chart("stacked_bars", "rank", ("time_ns",), "class", title="Time of the critical path on each rank")


def _columns(options: Options) -> col.Columns:
    if not options["segments"]:
        return COLUMNS
    return (
        col.ns("start_ns", "start of the piece on the run's aligned clock"),
        col.ns("duration_ns", "its length"),
        _RANK,
        col.device(),
        _CLASS,
        col.text("what", "the kernel with most of its time, or the collective's operation and communicator"),
    )


def _chart(options: Options) -> Chart | None:
    if not options["segments"]:
        return CHART
    return Chart(
        "scatter", "start_ns", ("duration_ns",), "class", detail="what", title="Pieces of the critical path", log_y=True
    )


def _answer(replay: Replay, members: Any, run: RunFacts, options: Options) -> Answer:
    """Shares by rank and class, or the pieces."""
    pieces = critical_path(replay)
    notes = replay_notes(replay, members)
    if pieces.makespan_ns:
        notes.append(
            f"the path takes {amount(pieces.makespan_ns, 'ns', 3)}, from the start of the run to the end of the last"
            " work"
        )
    if not options["segments"] and len(replay.parts) > 1:
        first = {row["rank"] for row in _shares(replay, pieces)[:1]}
        notes += other_culprit(
            replay, peers_in(replay, run), run, first, "most of the path is on it, which does not make it the culprit"
        )
    notes += _launches_on_path(replay, pieces)
    columns = _columns(options)
    rows = _segments(replay, pieces, members, run) if options["segments"] else _shares(replay, pieces)
    return Answer.of(rows, columns, tuple(notes))


def _launches_on_path(replay: Replay, pieces: Pieces) -> list[str]:
    """Why the path is the host's although devices compute for most of the time, as `breakdown` says."""
    whole = pieces.makespan_ns
    if not whole:
        return []
    on_path = np.bincount(pieces.kind, pieces.duration, minlength=len(CLASSES)) / whole
    launching = float(on_path[CLASSES.index("host")] + on_path[CLASSES.index("gap")])
    work_ns = np.zeros(replay.graph.nodes, np.int64)
    np.maximum.at(work_ns, replay.graph.target, replay.work_ns)  # every arc to a node has all of its work
    kernels = (replay.kind == COMPUTE) & (replay.rank >= 0)
    computing_ns = np.bincount(replay.rank[kernels], work_ns[kernels])
    computing = min(float(np.median(computing_ns[computing_ns > 0])) / whole, 1.0) if computing_ns.any() else 0.0
    if launching < 0.5 or computing < launching / 2:
        return []
    return [
        f"host and gap are {100 * launching:.3g} % of the path, although a rank's kernels take {100 * computing:.3g} % "
        "of the time: a kernel that waits for its launch, not for the kernel before it, is off the path; faster "
        "kernels make such a run no shorter, earlier or fewer launches do"
    ]


def _shares(replay: Replay, pieces: Pieces) -> list[dict[str, Any]]:
    slack = rank_slack_ns(replay)
    whole = pieces.makespan_ns
    rows = []
    for key, its in rows_by(pieces.rank * 16 + pieces.kind).items():
        rank, kind = divmod(key, 16)
        time = int(pieces.duration[its].sum())
        share = 100 * time / whole if whole else 0.0
        rows.append(
            {"rank": rank, "class": CLASSES[kind], "time_ns": time, "share_percent": share, "slack_ns": slack.get(rank)}
        )
    return sorted(rows, key=lambda r: (-r["time_ns"], r["rank"], r["class"]))


def _segments(replay: Replay, pieces: Pieces, members: Any, run: RunFacts) -> list[dict[str, Any]]:
    """The pieces; consecutive pieces of one rank and class are merged."""
    if not len(pieces.start):
        return []
    labels = _labels(replay, pieces, members, run)
    change = np.flatnonzero((np.diff(pieces.rank) != 0) | (np.diff(pieces.kind) != 0)) + 1
    rows = []
    origin = int(replay.when[0])
    for group in np.split(np.arange(len(pieces.start)), change):
        time: dict[str | None, int] = {}
        for n in group.tolist():
            label = (
                labels.get(int(pieces.arc[n])) if CLASSES[int(pieces.kind[n])] not in ("host", "gap", "idle") else None
            )
            time[label] = time.get(label, 0) + int(pieces.duration[n])
        rows.append(
            {
                "start_ns": origin + int(pieces.start[group[0]]),
                "duration_ns": int(pieces.duration[group].sum()),
                "rank": int(pieces.rank[group[0]]),
                "class": CLASSES[int(pieces.kind[group[0]])],
                "what": max(time, key=lambda k: time[k]),
            }
        )
    return rows


def _labels(replay: Replay, pieces: Pieces, members: Any, run: RunFacts) -> dict[int, str | None]:
    """What each arc of the path is."""
    labels: dict[int, str | None] = {}
    main: dict[int, int] = {}
    arcs = np.unique(pieces.arc)
    nodes = np.unique(replay.graph.target[arcs])
    for part, base in zip(replay.parts, replay.base.tolist(), strict=True):
        own = nodes[slice(*np.searchsorted(nodes, (base, base + len(part.when))))]
        cells = np.flatnonzero(np.isin(part.cell_node, own - base))
        cells = cells[np.argsort(part.cell_ns[cells], kind="stable")]
        main.update(
            zip((part.cell_node[cells] + base).tolist(), part.names[part.cell_name[cells]].tolist(), strict=True)
        )
    names = np.unique([main[t] for t in replay.graph.target[arcs].tolist() if t in main])
    texts = dict(zip(names.tolist(), name_texts(run, names), strict=True))
    groups = {g.number: g.name for g in alignment_of(run).groups}
    instance, first = np.unique(members.column("instance").to_numpy(), return_index=True)
    ops = members.column("op").to_pylist() if len(instance) else []
    communicators = members.column("communicator").to_numpy()
    for arc in arcs.tolist():
        number = int(replay.instance[arc])
        if number >= 0:
            row = int(first[np.searchsorted(instance, number)])
            labels[arc] = f"{ops[row]} ({groups.get(int(communicators[row]))})"
        else:
            name = main.get(int(replay.graph.target[arc]))
            labels[arc] = None if name is None else texts[name]
    return labels


QUESTION = Question(
    "critical-path",
    __doc__,
    _columns,
    graph_of,
    partial(merged_replay, _answer),
    tables=TABLES,
    reading=graph_reads,
    options=(Option("segments", bool, False, "list the pieces of the path, in order of time"),),
    chart=_chart,
    clock="aligned",
    kept_parts=("graph",),
    of_hosts=True,
    of_devices=True,
    important=("rank", "class", "time_ns", "share_percent"),
)
