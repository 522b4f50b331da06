"""What costs the run time, who is to blame and what to do: ranked findings, the largest loss first.

Each rank's time in its steps is divided by what its device waits for: its own compute, the host that is late (and what
it does meanwhile), communication, copies. What differs between ranks names culprits; time that a rank waits for a later
one belongs to that rank. Warm-up and checkpoint steps are left out. `lost_ns` is the wall time that the job would get
back, of which `evidence` has in `basis` whether it comes from a replay or a ceiling. Losses are exclusive: time of a
class in a larger one is not counted again, so they sum to at most the judged time. Rows come by severity, then by loss.
Opportunities come last: no fault, but kernels of other formats, shapes or sizes would be faster, by `opportunity_share`
at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.gpu_state import GpuState
from alltrace.recipes.analysis.host_state import READS as CPUS
from alltrace.recipes.analysis.host_state import CpuPlaces, HostState
from alltrace.recipes.analysis.kernel_origins import main_origins
from alltrace.recipes.analysis.network_state import Adapter, NetworkState
from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES
from alltrace.recipes.analysis.run_replay import compared, graph_of, other_culprit, peers_in, replay_of, with_graph
from alltrace.recipes.analysis.sampled import READS as NETWORK
from alltrace.recipes.base import Answer, Chart, Options, Part, Question, Reads, RunFacts
from alltrace.recipes.execution.shared_tables import kept_once
from alltrace.recipes.questions.diagnose import (
    absent_ranks,
    capture,
    communication,
    compute,
    copies,
    host,
    late_ranks,
    opportunities,
    regression,
    sharing,
    unexplained,
)
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.confidence import confidence_of
from alltrace.recipes.questions.diagnose.finding import (
    DOUBTFUL,
    EVIDENCE,
    FEWEST_PARTS,
    FEWEST_STEPS,
    HIGH_SHARE,
    MANY_STEPS,
    MEDIUM_SHARE,
    PARTS,
    Finding,
)
from alltrace.recipes.questions.diagnose.hand_over import hand_overs, with_roles
from alltrace.recipes.questions.diagnose.host_time import Contribution, HostTime, host_time
from alltrace.recipes.questions.diagnose.joint_losses import with_joint_losses, with_one_of_each_cause
from alltrace.recipes.questions.diagnose.kernel_rows import LAUNCH, RESOURCES
from alltrace.recipes.questions.diagnose.kernel_work import KernelWork
from alltrace.recipes.questions.diagnose.lone_operations import LoneOperations, lone_operations
from alltrace.recipes.questions.diagnose.machine_evidence import with_machine_evidence
from alltrace.recipes.questions.diagnose.machine_state import MachineState, machine_state
from alltrace.recipes.questions.diagnose.operator_rates import SlowOperator
from alltrace.recipes.questions.diagnose.potential import Potential
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts, gather
from alltrace.recipes.questions.diagnose.ranking import Ranked, place_of, ranked
from alltrace.recipes.questions.diagnose.recovered_time import MOST_ERROR
from alltrace.recipes.questions.diagnose.time_slices import TimeSlices
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers, is_one_of
from alltrace.trace.number_text import counted, number_ranges

# `facts` has what one rank contributes, `all_ranks` puts all ranks side by side, and each module of `DETECTORS` looks
# for a family of findings there. A new detector is a module with `find(all_ranks)`, listed in `DETECTORS`.
DETECTORS = (compute, regression, communication, host, copies, absent_ranks, opportunities)
"""The modules that look for what costs time."""

_MOST_SHOWN = 60  # bars of a picture of step times, which fits into a terminal of 80 columns

_WORK = ("start", "end", "process", "device", "stream", "correlation")


COLUMNS: col.Columns = (
    col.text("kind", "kind of the finding"),
    col.text(
        "severity", f"high from {100 * HIGH_SHARE:.0f} % of the time, medium from {100 * MEDIUM_SHARE:.0f} %, else low"
    ),
    col.ns("lost_ns", "aligned wall time that the job would save over the judged steps; null if unknown"),
    col.ns("lost_ns_per_step", "the same per judged step; null without steps"),
    col.real("lost_share", "lost_ns of the analyzed time, 0 to 1; all rows together at most 1", decimals=4),
    col.real(
        "opportunity_share",
        "for an opportunity: the largest share of the analyzed time that a change can save, 0 to 1",
        decimals=4,
    ),
    col.Column("ranks", "ranks", None, "the culprits"),
    col.DEVICES,
    col.texts("hosts", "hosts where every rank is a culprit; the host of a single culprit"),
    col.text("where", "the kernel, range, communicator or call"),
    col.text("launched_by", "for a kernel: the operator, module and line that launched most of it; null if unknown"),
    col.Column("evidence", "any", None, "the numbers behind the finding, and basis: replay or ceiling"),
    col.text("advice", "what to do about it"),
    col.real("confidence", "confidence in the kind and the culprits, 0 to 1"),
    col.text("loss_note", "why the loss is null, or what it does not include; else null"),
    col.texts("classes", "the classes of time that make up the loss"),
    col.numbers(
        "shown_steps",
        "of a change in time the judged steps, the first of each group if there are more than 60; else null",
    ),
    col.numbers(
        "step_times_ns",
        "what the culprits take by themselves in each, or all ranks together if all are culprits; the longest of a"
        " group",
    ),
    col.flag(
        "needed_at_once",
        "whether it concerns transfers that the next kernel needs, which is the program's design and not a fault",
    ),
)

READS: Reads = {
    "kernels": (*_WORK, "name", "short_name", "kind", "graph_node", *LAUNCH, *RESOURCES),
    "copies": (*_WORK, "bytes", "kind", "src_kind", "dst_kind", "collective"),
    "graphs": _WORK,
    "api": ("start", "end", "process", "thread", "name", "correlation"),
    "ranges": RANGES,
    "osrt": ("start", "end", "name", "thread"),
    "mpi": ("start", "end", "thread", "name", "kind"),
    "frames": FRAMES,
    "overheads": ("start", "end", "name", "thread"),
    **NETWORK,
    **CPUS,
}


def _reads(_options: Options) -> dict[str, tuple[str, ...]]:
    operations = {"collectives": ("start", "end", "op", "communicator", "bytes", "group_size")}
    return with_graph({**dict(READS), **operations})


def _map(rank: Rank, _options: Options) -> Any:
    """The rank's facts and its graph; nothing without device work."""
    machine = (MachineState, GpuState, HostState, CpuPlaces, NetworkState, Adapter)
    facts = (RankFacts, KernelWork, TimeSlices, Potential, SlowOperator, HostTime, LoneOperations)
    own = kept_once(rank, "contribution", (Contribution, *facts, *machine), _contribution)
    return own if own.facts is None else replace(own, graph=graph_of(rank))


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    given = {p.rank: p.table for p in compared(parts, run) if p.table.facts is not None}
    if not given:
        nothing = ("nothing ran on any device, so nothing could be judged",) if parts else ()
        return Answer(_schema().empty_table(), COLUMNS, nothing)
    hosts, roles = {r.rank: r.host for r in run.ranks}, {r.rank: run.manifest.role_of(r) for r in run.ranks}
    joined, peers = partial(replay_of, run=run), partial(peers_in, run=run)
    all_ranks = AllRankFacts(given, hosts, run.alignment, run.texts, joined, peers, roles)
    if not len(all_ranks.steps):
        rows = [_row(r, all_ranks, (), {}) for r in ranked(capture.find(all_ranks, run), 0)]
        unjudged = ("no step has complete records, so no loss was judged",)
        return Answer(col.table_of(rows, COLUMNS, _schema()), COLUMNS, unjudged)
    findings = regression.resolved([finding for module in DETECTORS for finding in module.find(all_ranks)])
    findings = with_one_of_each_cause(findings, all_ranks)
    findings += sharing.find(all_ranks, run)
    findings += late_ranks.find(all_ranks, [r.finding for r in ranked(findings, all_ranks.span_ns)], findings)
    reported = ranked(findings, all_ranks.span_ns)
    findings += unexplained.find(all_ranks, reported) or unexplained.unjudged(all_ranks, reported)
    findings = with_joint_losses(findings, all_ranks)
    turns = hand_overs(all_ranks, run)
    findings = [*turns.findings, *with_roles(findings, turns)]
    findings = with_machine_evidence(findings, {rank: own.machine for rank, own in given.items()}, all_ranks)
    in_order = ranked([*capture.find(all_ranks, run), *findings], max(all_ranks.span_ns, turns.span_ns))
    origins = {rank: own.origins for rank, own in given.items()}
    rows = _by_severity([_row(r, all_ranks, in_order, origins) for r in in_order], in_order, all_ranks)
    notes = [*_limits(all_ranks), *sharing.notes(run), *opportunities.notes(all_ranks)]
    if all_ranks.recovery is not None and len(all_ranks.ranks) > 1:
        first = next((row["ranks"] for row in rows if row["lost_ns"]), ())
        replay, peers_of_all = all_ranks.recovery.replay, all_ranks.recovery.peers
        notes += other_culprit(replay, peers_of_all, run, first, "the reason for listing it saves more")
    if all(row["kind"] == "capture-fault" for row in rows):
        notes.insert(0, unexplained.verdict(all_ranks))
    return Answer(col.table_of(rows, COLUMNS, _schema()), COLUMNS, tuple(notes))


def _by_severity(
    rows: Sequence[dict[str, Any]], claims: Sequence[Ranked], all_ranks: AllRankFacts
) -> list[dict[str, Any]]:
    """The rows in the order of severities: `low` for doubtful findings, and not `high` if few steps or parts show it.

    So what is withheld comes before what costs less, if both are doubtful.
    """
    few = not all_ranks.whole_run and len(all_ranks.steps) < FEWEST_STEPS
    for row in rows:
        parts = row["evidence"].get("parts_affected") or PARTS
        if row["confidence"] < DOUBTFUL:
            row["severity"] = "low"
        elif row["severity"] == "high" and (few or _once(row) or parts < FEWEST_PARTS):
            row["severity"] = "medium"
    order = sorted(range(len(rows)), key=lambda at: place_of(claims[at], rows[at]["severity"]))
    return [rows[at] for at in order]


def _once(row: Mapping[str, Any]) -> bool:
    """Whether most of what a cause takes is in one step of many: what happened once is not what the program does."""
    stalled, longest, steps = (
        row["evidence"].get(name) or 0.0 for name in ("stalled_ns_per_step", "longest_step_ns", "steps")
    )
    return bool(steps >= MANY_STEPS and longest > stalled * steps / 2)


def _schema() -> Any:
    evidence = pa.struct([("basis", pa.string()), *((name, pa.float64()) for name in EVIDENCE)])
    schema = col.schema_of(COLUMNS)
    return schema.set(schema.get_field_index("evidence"), pa.field("evidence", evidence, metadata={"sparse": "1"}))


def _contribution(rank: Rank) -> Contribution:
    """What a rank contributes, without its graph, which other questions share."""
    steps = rank.shared("steps")
    gathered = gather(rank, steps)
    if gathered is None:
        return Contribution()
    facts, host = gathered
    # what the host does before its first step, or before the first device work of a run without steps, is not judged
    begin = int(facts.regions[0, 0]) if len(facts.regions) else 0
    if steps is not None and not facts.whole_run:
        begin = min(steps.column("start").to_pylist())
    graph = graph_of(rank)
    lone = lone_operations(rank, graph.member_row, facts)
    state = machine_state(rank, facts, host)
    return Contribution(facts, None, host_time(graph, host, begin), lone, state, main_origins(rank))


def _row(
    ranked: Ranked, all_ranks: AllRankFacts, rows: Sequence[Ranked], origins: Mapping[int, Mapping[str, str]]
) -> dict[str, Any]:
    finding, lost = ranked.finding, ranked.lost_ns
    of_where = (origins[rank].get(finding.where) for rank in (*finding.ranks, *origins) if rank in origins)
    alone = [all_ranks.hosts[r] for r in finding.ranks if len(finding.ranks) == 1 and r in all_ranks.hosts]
    shown, times_ns = _step_times(finding, all_ranks) if "since_step" in finding.evidence else (None, None)
    return {
        "kind": finding.kind,
        "severity": ranked.severity,
        "lost_ns": lost,
        "lost_ns_per_step": None if lost is None or all_ranks.whole_run else lost // max(len(all_ranks.steps), 1),
        "lost_share": ranked.share,
        "opportunity_share": finding.opportunity,
        "ranks": list(finding.ranks),
        "hosts": list(finding.hosts or all_ranks.hosts_of(finding.ranks)) or alone,
        "where": finding.where,
        "launched_by": next((text for text in of_where if text), None),
        "evidence": {**finding.evidence, **_common_evidence(finding, all_ranks), "basis": finding.loss.basis},
        "advice": finding.advice,
        "confidence": confidence_of(ranked, all_ranks, rows),
        "loss_note": ranked.note,
        "classes": list(finding.loss.classes),
        "shown_steps": shown,
        "step_times_ns": times_ns,
        "needed_at_once": finding.needed_at_once,
    }


def _step_times(finding: Finding, all_ranks: AllRankFacts) -> tuple[list[int], list[int]]:
    named = np.isin(all_ranks.ranks, finding.ranks)
    times = all_ranks.lengths if named.all() else all_ranks.own[named].mean(axis=0)
    first = np.arange(0, len(times), -(-len(times) // _MOST_SHOWN))
    return all_ranks.steps[first].tolist(), np.maximum.reduceat(times, first).round().astype(np.int64).tolist()


def _common_evidence(finding: Finding, all_ranks: AllRankFacts) -> dict[str, float]:
    evidence = {"replay_error": round(all_ranks.replay_error or 0.0, 4)} if finding.loss.basis == "replay" else {}
    if not finding.loss.classes:
        return evidence
    covered = round(all_ranks.covered_share(finding.ranks), 3)
    parts = all_ranks.parts_with(finding.loss.classes[0], finding.ranks)
    evidence |= {"covered_share": covered} if covered < 1 else {}
    return evidence | ({"parts_affected": parts} if parts is not None and finding.loss.estimate_ns else {})


def _limits(all_ranks: AllRankFacts) -> list[str]:
    facts, whole, steps = all_ranks.facts, all_ranks.whole_run, len(all_ranks.steps)
    stepless, partly = all_ranks.stepless, len(all_ranks.partly)
    lossy, silent = [r for r, f in facts.items() if f.left_out], [r for r, f in facts.items() if not f.calls]
    lost = sum(facts[r].left_out for r in lossy)
    judged, partly_judged, unrecorded = (counted(n, "step is", "steps are") for n in (steps, partly, lost))
    graphs, ranges = any(f.graphs for f in facts.values()), any(f.ranges for f in facts.values())
    notes = {
        _basis(all_ranks): True,
        "no steps were found, so the whole run, including its start-up, is judged as one step": whole,
        f"{judged} judged{_left_out(all_ranks)}": not whole,
        f"of fewer than {FEWEST_STEPS} judged steps nothing is `high`": not whole and steps < FEWEST_STEPS,
        f"{partly_judged} left out, because not all reports contain them": partly,
        f"no usable step was found on rank {number_ranges(stepless)}, so it is left out": stepless,
        f"rank {number_ranges(lossy)}: {'a part of the run is' if whole else unrecorded} left out, in which work may"
        " have run without a record": lossy,
        "only one rank: waits between ranks, slow ranks and uneven work could not be judged": len(facts) < 2,
        "no collective is matched across ranks: waiting, slow communicators and exposed communication could not be"
        " judged": len(facts) > 1 and all_ranks.members is None,
        "the clocks of some communicating ranks are not known well enough: slow communicators and exposed communication"
        " between them could not be judged": all_ranks.clocks_unknown,
        "CUDA graphs hide their kernels: slow kernels and communication inside graphs could not be judged": graphs,
        f"rank {number_ranges(silent)}: no CUDA calls in the report, so its host activity is unknown": silent,
        "without ranges, waiting for data can only be detected from calls that read or wait": not ranges,
    }
    return [note for note, holds in notes.items() if holds]


def _left_out(all_ranks: AllRankFacts) -> str:
    """Which steps are left out because of what they are, and how much of the time of all steps they take."""
    steps = all_ranks.alignment.steps if all_ranks.alignment is not None else None
    if steps is None or not steps.num_rows:
        return ""
    took = integers(steps.column("end")) - integers(steps.column("start"))
    parts = []
    for kind in ("warm-up", "checkpoint"):
        mine = is_one_of(steps.column("kind"), (kind,))
        if mine.any():
            numbers = number_ranges(sorted(set(integers(steps.column("step"))[mine].tolist())))
            share = f"{100 * took[mine].sum() / max(int(took.sum()), 1):.1f} % of the time"
            parts.append(f"{kind} ({'step' if numbers.isdecimal() else 'steps'} {numbers}, {share})")
    return f"; left out: {', '.join(parts)}" if parts else ""


def _basis(all_ranks: AllRankFacts) -> str:
    if all_ranks.doubt is not None:
        return f"{all_ranks.doubt}; so losses are upper bounds, and are only given where all ranks have them alike"
    if all_ranks.replay_error is None:
        return "the run was not replayed, so losses are upper bounds"
    error = f"{100 * all_ranks.replay_error:.2f} %"
    if all_ranks.replay_error > MOST_ERROR:
        return f"the replay error is {error}, more than {100 * MOST_ERROR:.0f} %, so losses are upper bounds"
    return f"the replay error is {error}; losses that are not from the replay are upper bounds"


QUESTION = Question(
    "diagnose",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=READS,
    reading=_reads,
    chart=Chart("stacked_bars", "kind", ("lost_ns",), "severity", title="What costs the run time"),
    clock="aligned",
    keeps=True,
    kept_parts=("contribution", "graph"),
    of_hosts=True,
    of_devices=True,
    important=("kind", "ranks", "lost_ns", "severity", "lost_share", "hosts", "where", "advice"),
)
