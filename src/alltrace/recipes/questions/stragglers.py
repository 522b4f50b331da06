"""Which rank the others wait for at collectives, how much, and why it is late.

A rank waits from its arrival at an operation to the last arrival; the rank that arrives last causes the waits of all
others, so that `waited_ns` and `caused_ns` have the same sum. Waits shorter than what the clocks may be off are not
counted. A rank that arrives last may itself have waited for a slow one, as its mates in a ring or a pipeline do. So
each wait is followed back to what took longer than the peers' before: `root_share` is what a rank would have to change
for, and rows come by it. `path_blame_ns` is what of the critical path goes beyond the peers' median.

With `--by-time` a row says when its rank is slower than the others by itself: always, from a step on, or sometimes.
What a rank takes by itself in a step (`own_ns`) is the time from the end of its previous step on the device to the end
of this one, without the waits during which nothing computes. `slow_steps` are the steps in which it is slower, the
first of them `since_step`, `slowdown` how many times as long it takes in them as the fastest quarter of the ranks, and
`excess_ns` what that sums to.

With `--source inspector` the operations come from NCCL Inspector's files of the whole job. The rank that took the
shortest time arrived last. The files do not show why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.analysis.inspector_records import (
    SOURCE,
    notes_on,
    of_trace,
    recorded,
    recorded_of,
    select_columns,
    straggler_rows,
)
from alltrace.recipes.analysis.lateness import (
    ALWAYS,
    CAUSES,
    SINCE,
    SOMETIMES,
    Cause,
    Lateness,
    causes,
    causing_together,
    host_range,
    lateness,
    over_steps,
    own_excess,
    slow_together,
    slower_steps,
    stages,
)
from alltrace.recipes.analysis.run_replay import (
    TABLES,
    alignment_tables,
    compared,
    graph_of,
    other_culprit,
    peers_in,
    replay_notes,
    replay_of,
    with_graph,
)
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts, alignment_of
from alltrace.recipes.execution.shared_tables import kept_once
from alltrace.replay.join import Replay
from alltrace.replay.path import blame_ns
from alltrace.replay.peers import Peers
from alltrace.replay.rank_graph import RankGraph
from alltrace.replay.root_causes import NOBODY, root_causes
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.amounts import amount
from alltrace.trace.arrays import Flags, Floats, Int64, integers, is_one_of
from alltrace.trace.distinct import rows_by, values_by
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import difference, merge, overlap_ns
from alltrace.trace.number_text import number_ranges

_NAMED_RANGES = 4

COLUMNS: col.Columns = (
    col.RANK,
    col.device(),
    col.text("host", "host"),
    col.ns("waited_ns", "time it waited for others at matched operations"),
    col.ns("caused_ns", "time others waited for it when it arrived last"),
    col.percent("caused_percent", "share of all waits", None),
    col.whole(
        "root_rank",
        "the rank that would have to change to save most of caused_ns; null if there is none, or transfers caused it",
    ),
    col.device("root_device", "root_rank"),
    col.real("root_share", "share of all waits for which this rank would have to change, 0 to 1"),
    col.ns("exposed_wait_ns", "part of its waits during which no compute kernel ran on its devices"),
    col.whole("operations", "matched operations it took part in"),
    col.percent("last_percent", "share of them at which it arrived last and another rank's wait counts", None),
    col.ns("path_blame_ns", "its part of the critical path above its peers' median; negative if it was faster"),
    col.text("cause", "why it is late: compute, communication (other), copy, host, or mixed; null if it is not"),
    col.percent("cause_percent", "share of that cause in its time above its peers' median", None),
    col.ns("compute_excess_ns", "compute time above the peers' median before operations at which it was last"),
    col.ns("communication_excess_ns", "other communication, measured the same way"),
    col.ns("copy_excess_ns", "copies, measured the same way"),
    col.ns("host_excess_ns", "time with nothing on the device, measured the same way"),
    col.text("range", "the range with most of that time, if the cause is the host"),
    col.text("pattern", "recurring, rotating or transient over steps; node or stage if all its ranks are late"),
    col.real("confidence", "confidence of the matching of the operations at which it was last, 0 to 1"),
)

BY_TIME: col.Columns = (
    col.RANK,
    col.device(),
    col.text("host", "host"),
    col.text("when", f"when it is slower than the others: {ALWAYS}, {SINCE}, or {SOMETIMES}; null if it is not"),
    col.whole("since_step", "the first step in which it is slower"),
    col.text("slow_steps", "the steps in which it is slower, such as 7-13"),
    col.whole("steps", "steps that are compared, without warm-up and checkpoint steps"),
    col.real(
        "slowdown", "how many times as long as the fastest quarter of the ranks it takes in them, median", decimals=3
    ),
    col.ns("excess_ns", "what it takes longer in them, summed"),
    col.ns("own_ns", "what it takes by itself in a step, without waiting for others, median"),
)

NEEDED = ((*TABLES, "collectives"),)


def _columns(options: Options) -> col.Columns:
    if options.get("source") == "inspector":
        if options.get("by_time"):
            raise UsageError(
                "--by-time needs the steps of the trace, and --source inspector has none; leave out one of them"
            )
        return select_columns(COLUMNS)
    return BY_TIME if options.get("by_time") else COLUMNS


def _chart(options: Options) -> Chart:
    if options.get("by_time"):
        return Chart("bars", "rank", ("excess_ns",), detail="device", title="What each rank takes longer in slow steps")
    detail = None if options.get("source") == "inspector" else "device"  # NCCL Inspector's files name no device
    return Chart(
        "bars", "rank", ("caused_ns", "waited_ns"), detail=detail, title="Waits at collectives: caused and suffered"
    )


def _reads(options: Options) -> dict[str, tuple[str, ...]]:
    """What graphs are made from; nothing of the trace where NCCL Inspector is the source."""
    return {} if options.get("source") == "inspector" else with_graph(dict(TABLES))


def _map(rank: Rank, options: Options) -> Any:
    """The rank's graph, and what it did before its operations; or what NCCL Inspector recorded."""
    if options["source"] == "inspector":
        return recorded_of(rank)
    return graph_of(rank), kept_once(rank, "lateness", (Lateness,), lateness)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    columns = _columns(options)
    if options["source"] == "inspector":
        records = recorded(parts)
        rows, notes = straggler_rows(records, parts, {r.rank: r.host for r in run.ranks}), notes_on(records, parts, run)
    else:
        parts = compared(parts, run)
        members, steps = alignment_tables(run)
        question = _Question(parts, members, steps, run) if parts else None
        rows, notes = ([], []) if question is None else question.by_time() if options["by_time"] else question.answer()
    return Answer.of(rows, columns, tuple(notes))


@dataclass
class _Waits:
    """The members of matched operations, sorted by instance; arrays of n."""

    instance: Int64
    rank: Int64
    row: Int64
    last: Int64
    wait_ns: Int64
    communicator: Int64
    arrival: Int64
    met: Int64
    confidence: Floats
    counts: Flags


class _Question:
    def __init__(self, parts: Sequence[Part], members: Any, steps: Any, run: RunFacts) -> None:
        self._graphs: list[RankGraph] = [p.table[0] for p in parts]
        self._late: dict[int, Lateness] = {p.rank: p.table[1] for p in parts}
        self._members, self._steps, self._run = members, steps, run
        self._ranks = np.array([p.rank for p in parts], np.int64)
        names = ("instance", "rank", "row", "awaited_rank", "wait_ns", "communicator", "wait_start_ns", "awaited_ns")
        columns = [members.column(c).to_numpy().astype(np.int64) for c in names]
        counts = members.column("fact").to_numpy().astype(bool) & (columns[4] > 0)
        of_ranks = np.isin(columns[1], self._ranks) & np.isin(columns[3], self._ranks)
        columns += [members.column("confidence").to_numpy().astype(float), counts]
        self._w = _Waits(*(c[of_ranks] for c in columns))
        self._rows = rows_by(self._w.rank)

    def answer(self) -> tuple[list[dict[str, Any]], list[str]]:
        w = self._w
        replay = replay_of(self._graphs, self._run)
        peers = peers_in(replay, self._run)
        blame, _ = blame_ns(replay, peers)
        counted = np.where(w.counts, w.wait_ns, 0)
        nothing = np.empty(0, np.intp)
        by_last = rows_by(w.last)
        caused = {r: int(counted[by_last.get(r, nothing)].sum()) for r in self._ranks.tolist()}
        total = int(counted.sum())
        blamed = np.zeros(int(w.instance.max(initial=-1)) + 1, np.bool_)
        blamed[w.instance[w.counts]] = True
        last = np.where(blamed[w.instance], w.last, -1)
        why = causes(w.instance, w.rank, last, self._before())
        patterns = self._patterns(caused, counted, replay, peers)
        exposed = self._exposed(counted)
        roots, shares = self._roots(counted, replay, peers)
        blamed_on = rows_by(last)
        rows: list[dict[str, Any]] = []
        for record in self._run.ranks:
            rank = record.rank
            if rank not in self._late:
                continue
            own, mine = self._rows.get(rank, nothing), blamed_on.get(rank, nothing)
            operations, times_last = len(own), len(np.unique(w.instance[mine]))
            sure = w.confidence[mine]
            cause = why.get(rank)
            excess = cause.excess_ns if cause else (None,) * 4
            late = bool(caused[rank]) and cause is not None
            rows.append(
                {
                    "rank": rank,
                    "host": record.host,
                    "waited_ns": int(counted[own].sum()),
                    "caused_ns": caused[rank],
                    "caused_percent": 100 * caused[rank] / total if total else 0.0,
                    "root_rank": roots.get(rank),
                    "root_share": shares.get(rank, 0.0),
                    "exposed_wait_ns": exposed[rank],
                    "operations": operations,
                    "last_percent": 100 * times_last / operations if operations else 0.0,
                    "path_blame_ns": round(blame.get(rank, 0.0)),
                    "cause": cause.name if late and cause else None,
                    "cause_percent": 100 * cause.share if late and cause and cause.name else None,
                    **{f"{name}_excess_ns": ns for name, ns in zip(CAUSES, excess, strict=True)},
                    "pattern": patterns.get(rank),
                    "confidence": float(sure.mean()) if len(sure) else None,
                }
            )
        rows.sort(key=lambda r: (-r["root_share"], -r["caused_ns"], r["rank"]))
        self._name_ranges(rows, why)
        first = {row["rank"] for row in rows[:1] if row["caused_ns"]}
        other = other_culprit(replay, peers, self._run, first, "most waits are for it, hidden by others or not")
        return rows, [*replay_notes(replay, self._members), *self._notes(), *other]

    def by_time(self) -> tuple[list[dict[str, Any]], list[str]]:
        numbers, own_ns = self._own_ns()
        slower = slower_steps(own_ns)
        at = {rank: row for row, rank in enumerate(self._ranks.tolist())}
        rows: list[dict[str, Any]] = []
        for record in self._run.ranks:
            if record.rank not in at:
                continue
            row = at[record.rank]
            there, when = ~np.isnan(own_ns[row]), slower.get(row)
            shown = {"rank": record.rank, "host": record.host, "steps": int(there.sum())}
            shown["own_ns"] = round(float(np.median(own_ns[row, there]))) if there.any() else None
            if when is not None:
                slow = numbers[when.steps].tolist()
                shown |= {"when": when.when, "since_step": slow[0], "slow_steps": number_ranges(slow)}
                shown |= {"slowdown": when.slowdown, "excess_ns": when.excess_ns}
            rows.append(shown)
        rows.sort(key=lambda r: (-r.get("excess_ns", 0), r["rank"]))
        few = [] if len(numbers) else ["no steps were found in the run, so nothing can be compared by time"]
        return rows, [*few, *self._notes()]

    def _own_ns(self) -> tuple[Int64, Floats]:
        """The steps, and what each rank takes by itself in each, (ranks, steps), ns; NaN if it lacks the step."""
        w = self._w
        columns = ("rank", "step", "start", "device_start", "device_end")
        rank, step, start, first, end = (integers(self._steps.column(c), -1) for c in columns)
        judged = is_one_of(self._steps.column("kind"), ("step",)) & (first >= 0) & np.isin(rank, self._ranks)
        numbers = np.unique(step[judged])
        own_ns = np.full((len(self._ranks), len(numbers)), np.nan)
        for row, one in enumerate(self._ranks.tolist()):
            mine = np.flatnonzero((rank == one) & (first >= 0))
            mine = mine[np.argsort(end[mine], kind="stable")]
            follows = np.concatenate(([False], step[mine][1:] == step[mine][:-1] + 1))
            begin = np.where(follows, np.concatenate((end[mine][:1], end[mine][:-1])), start[mine])
            own = self._rows.get(one, np.empty(0, np.intp))
            own = own[w.counts[own]]
            waits = difference(merge(w.arrival[own], w.arrival[own] + w.wait_ns[own]), self._late[one].compute)
            took = end[mine] - begin - overlap_ns(begin, end[mine], waits)
            chosen = judged[mine] & (took > 0)
            own_ns[row, np.searchsorted(numbers, step[mine][chosen])] = took[chosen]
        return numbers, own_ns

    def _before(self) -> Int64:
        """What each member's rank did before it arrived, of shape (n, 4)."""
        w = self._w
        before_ns = np.zeros((len(w.row), 4), np.int64)
        for rank, late in self._late.items():
            own = self._rows.get(rank, ())
            if len(own) and len(late.row):
                order = np.argsort(late.row, kind="stable")
                at = order[np.minimum(np.searchsorted(late.row[order], w.row[own]), len(order) - 1)]
                before_ns[own] = np.where((late.row[at] == w.row[own])[:, None], late.before_ns[at], 0)
        return before_ns

    def _exposed(self, counted: Int64) -> dict[int, int]:
        """Of each rank's counted waits what no compute covers."""
        w = self._w
        exposed_ns = {}
        for rank, late in self._late.items():
            own = self._rows.get(rank, np.empty(0, np.intp))
            own = own[counted[own] > 0]
            waits = merge(w.arrival[own], w.arrival[own] + counted[own])
            exposed_ns[rank] = difference(waits, late.compute).total_ns
        return exposed_ns

    def _roots(self, counted: Int64, replay: Replay, peers: Peers) -> tuple[dict[int, int], dict[int, float]]:
        """For each rank who is responsible for most of what it caused, and its own share of all waits."""
        w = self._w
        count = int(w.instance.max(initial=-1)) + 1
        waited = np.bincount(w.instance, counted, count)
        longest = np.zeros(count, np.int64)
        np.maximum.at(longest, w.instance, counted)
        # those who wait met the last one before at its previous operation of the same communicator
        order = np.lexsort((w.arrival, w.communicator, w.rank))
        again = (w.rank[order][1:] == w.rank[order][:-1]) & (w.communicator[order][1:] == w.communicator[order][:-1])
        since = np.full(len(w.rank), np.iinfo(np.int64).min)
        since[order[1:][again]] = w.met[order[:-1][again]]
        lasts = np.flatnonzero((w.rank == w.last) & (waited[w.instance] > 0))
        lasts = lasts[np.unique(w.instance[lasts], return_index=True)[1]]
        instance = w.instance[lasts]
        nodes = replay.nodes(w.rank[lasts], w.row[lasts])[1]
        wait, blamed, share = root_causes(replay, peers, nodes, longest[instance], since[lasts])
        unexplained = np.setdiff1d(np.arange(len(lasts)), wait)
        wait, blamed = np.concatenate((wait, unexplained)), np.concatenate((blamed, w.last[lasts[unexplained]]))
        amount = np.concatenate((share, np.ones(len(unexplained)))) * waited[instance[wait]]
        roots: dict[int, int] = {}
        for last, rows in rows_by(w.last[lasts[wait]]).items():
            sums = rows_by(blamed[rows])
            most = max(sums, key=lambda r: (amount[rows[sums[r]]].sum(), -r))
            if most != NOBODY:
                roots[last] = most
        total = float(waited.sum())
        return roots, {r: float(amount[own].sum()) / total for r, own in rows_by(blamed).items() if r != NOBODY}

    def _patterns(self, caused: dict[int, int], counted: Int64, replay: Replay, peers: Peers) -> dict[int, str]:
        hosts = values_by((record.host, record.rank) for record in self._run.ranks if record.rank in caused)
        groups = {"node": list(hosts.values()), "stage": stages(self._members)}
        excess = own_excess(replay, peers)
        spread = over_steps(self._ranks, self._w.last, self._step_of(), counted)
        together: dict[int, str] = {}
        for word, of in groups.items():
            together = dict.fromkeys(slow_together(of, excess), word) | together
        # where one rank is the worst nearly always, its neighbours are late because of it
        if not together and "recurring" not in spread.values():
            for word, of in groups.items():
                together = dict.fromkeys(causing_together(of if len(of) > 1 else (), caused), word) | together
        return {r: together.get(r) or spread[r] for r in caused if caused[r] and (r in together or r in spread)}

    def _step_of(self) -> Int64:
        """The step of each member: that in which the last rank was when it arrived."""
        w = self._w
        steps = np.full(len(w.rank), -1, np.int64)
        rank, start, number = (self._steps.column(c).to_numpy().astype(np.int64) for c in ("rank", "start", "step"))
        device = self._steps.column("device_start")
        start = np.where(device.is_valid().to_numpy(), device.fill_null(0).to_numpy(), start)
        for one, mine in rows_by(rank).items():
            own = self._rows.get(one, np.empty(0, np.intp))
            mine = mine[np.argsort(start[mine], kind="stable")]
            at = np.searchsorted(start[mine], w.arrival[own], "right") - 1
            steps[own] = np.where(at >= 0, number[mine[np.maximum(at, 0)]], -1)
        return steps

    def _name_ranges(self, rows: list[dict[str, Any]], why: dict[int, Cause]) -> None:
        """Name the range for the ranks with the host as cause, the worst few."""
        w = self._w
        host = [r for r in rows if r["caused_ns"] and r["host_excess_ns"] is not None and _of_host(why[r["rank"]])]
        for row in host[:_NAMED_RANGES]:
            own = np.flatnonzero((w.rank == row["rank"]) & (w.last == row["rank"]))
            length = self._before()[own].sum(axis=1)
            rank = alignment_of(self._run).run.rank(row["rank"])
            row["range"] = host_range(rank, w.arrival[own] - length, w.arrival[own])

    def _notes(self) -> list[str]:
        w = self._w
        left = (w.wait_ns > 0) & ~w.counts
        together = amount(int(w.wait_ns[left].sum()), "ns", 3)
        note = (
            "waits shorter than what the clocks may be off, or between clocks that are not connected, are not counted:"
            f" {int(left.sum()):,}, {together} together"
        )
        return [note] if left.any() else []


def _of_host(cause: Cause) -> bool:
    return cause.name == "host" or (cause.name == "mixed" and max(cause.excess_ns) == cause.excess_ns[3])


QUESTION = Question(
    "stragglers",
    __doc__,
    _columns,
    _map,
    _merge,
    tables=TABLES,
    reading=_reads,
    requires=lambda options: () if options.get("source") == "inspector" else NEEDED,
    options=(
        SOURCE,
        Option("by_time", bool, False, "for each rank, whether it is slower always, from a step on, or sometimes"),
    ),
    chart=_chart,
    clock="aligned",
    kept_parts=("graph", "lateness"),
    of_hosts=True,
    of_devices=of_trace,
    important=("rank", "caused_ns", "cause", "host", "caused_percent", "waited_ns", "root_rank", "range"),
)
