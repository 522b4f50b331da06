"""Devices that are idle because of the host: launches, waits, pauses, data, allocations; or for no known reason."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import HIGH_SHARE, LEAST_SHARE, Finding
from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.recovered_time import Altered, OtherOrder, RecoveredTime
from alltrace.replay.change import NEVER
from alltrace.trace.arrays import Flags, Floats, Int64

OF_HOST = ("data", "host-pause", "allocation", "module-loading", "compilation")
"""What a host does by itself, which its device may not wait for because something else makes it wait longer."""

_USUAL_SHARE = 0.6  # a pause in at least this share of the steps is not a rare one
_BEHIND = 0.75  # the pauses of a program follow its waits if this share of them begins as a wait ends,
_BECAUSE = 0.5  # and leaving out the waits gains this share of leaving out the pauses
_EVERY_STEP = 0.9  # they are part of the program if they occur in this share of the steps; occasional pauses are not
_SAME = 0.1  # a step is affected if it loses this share of what the worst one does

_SHORT_PAUSE_NS, _LEAST_PAUSED = 100_000, 0.01
"""Few ranks that take this much longer than others after waits in a step, and this share of it, pause there,"""

_AFTER_A_WAIT_NS = 50_000
"""beyond what each wait costs that they have more often than the others: the device is idle until the next launch."""

_CULPRIT_SHARE = 0.25
"""A rank is a culprit from this share of the worst rank's loss on: others' losses hide much of a host's."""


class _Kind(NamedTuple):
    kind: str
    advice: str
    confidence: float = 0.85


_KINDS = {
    "sync": _Kind(
        "sync", "The host waits for the device and lets it run dry; remove the waits, or read results later."
    ),
    "allocation": _Kind(
        "allocation",
        "Memory of the device is allocated and freed between kernels; keep buffers or use a caching allocator.",
        0.9,
    ),
    "data": _Kind(
        "data-stall",
        "The device waits for the next batch; use more loader workers, prefetch further, or cache the data.",
        0.9,
    ),
    "module-loading": _Kind(
        "module-loading",
        "Code is loaded, linked or captured into graphs during steps; warm up every kernel and shape first, or set "
        "CUDA_MODULE_LOADING=EAGER.",
    ),
    "compilation": _Kind(
        "recompilation",
        "Code is recompiled during steps; keep shapes and options the same, mark dimensions as dynamic, or cache"
        " compiled code.",
        0.9,
    ),
    "host-pause": _Kind(
        "host-pause",
        "The launching thread pauses; look for a wait for data, a lock or the file system, for host work such as"
        " logging or a checkpoint, and for garbage collection, page faults, swapping, or a busy core.",
    ),
    "launch": _Kind(
        "launch-bound",
        "The host launches kernels more slowly than the device runs them, or the kernels are so short "
        "that overhead dominates; fuse "
        "kernels or capture a CUDA graph.",
    ),
    "idle": _Kind(
        "idle-gap",
        "The device is idle although work is queued, and the report does not show why; check event waits and other"
        " processes on the device.",
        0.6,
    ),
    "unknown": _Kind(
        "unexplained",
        "The device is idle, and the report does not show when the host launched the next work; capture CUDA API calls"
        " too.",
        0.6,
    ),
}

_WITHOUT_A_NAME = {"host-pause": "no call of any thread", "idle": "queued work", "unknown": "nothing that runs"}
"""The name of classes without a call or range."""


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """One finding for each class of host delay that costs time."""
    findings = []
    behind = _pauses_behind_waits(all_ranks)
    short = np.zeros_like(all_ranks.own)
    for name, kind in _KINDS.items():
        also = {"launch": ("short-kernels",), "sync": ("host-pause",) * behind}.get(name, ())
        lost: Floats = np.sum([all_ranks.of(one) for one in (name, *also)], axis=0)
        if name == "sync" and not behind:
            short = _short_pauses(all_ranks, lost)
            lost = lost - short
            findings += _short_pause(all_ranks, short)
        # what another cause hides is there all the same
        host_ns = all_ranks.of_host(name) if name in OF_HOST else lost
        hidden = lost.sum(axis=1).max(initial=0) < LEAST_SHARE * all_ranks.span_ns
        total = host_ns.sum(axis=1)
        hidden &= bool(total.max(initial=0) >= 2 * LEAST_SHARE * all_ranks.span_ns)
        if not (lost.any() or hidden) or (behind and name == "host-pause"):
            continue
        chosen = all_ranks.culprits(lost, _CULPRIT_SHARE)
        if hidden or name == "host-pause":
            chosen = (chosen & ~np.bool_(hidden)) | all_ranks.culprits(host_ns)
        if name in OF_HOST and name != "data":  # each loader waits where it is the slowest one
            chosen = _few_of(all_ranks, host_ns if hidden else lost, chosen)
        if name == "launch":  # with launches that take longer than its kernels, even if waiting for others hides it
            paced = np.array([f.launch_ns * f.kernels > f.kernel_total_ns for f in all_ranks.facts.values()])
            chosen = paced if (paced & chosen).any() and not all_ranks.of("short-kernels").any() else chosen
        ranks = tuple(all_ranks.ranks[chosen].tolist())
        affected = (lost > 0.02 * np.maximum(all_ranks.own, 1)).mean(axis=1)[chosen].max(initial=0)
        confidence = kind.confidence
        if name == "host-pause" and affected > _USUAL_SHARE and 2 * len(ranks) > len(all_ranks.ranks):
            confidence = 0.5  # what most ranks do in most steps is how the program is
        where, evidence = _evidence(all_ranks, name, lost, chosen)
        change: Callable[[RecoveredTime], Altered | None] | None = partial(_without, name)
        if name == "unknown":
            change = None
        elif name == "launch":
            change = partial(_without_launching, all_ranks)
        elif name == "sync":
            others = () if behind else ("host-pause", "data")
            change = partial(_without_waits, all_ranks, _by_rank(all_ranks, short), others)
        loss = all_ranks.loss((name, *also), lost, change, shared=HOST_CLASSES if name in HOST_CLASSES else ())
        if name == "launch":  # so a host also comes to its other work sooner, but no device waits for launches then
            bounding = ["short-kernels", *(c for c in HOST_CLASSES if c not in OF_HOST)]
            most_ns = int(all_ranks.bounds_ns(bounding, np.asarray((lost > 0).any(axis=1))).sum())
            beyond_ns = max(loss.estimate_ns - most_ns, 0)
            loss = replace(loss, estimate_ns=loss.estimate_ns - beyond_ns, beyond_ns=beyond_ns)
        # a loader that keeps few hosts waiting is hardly faster than the steps are, and limits shorter ones
        least = 2 * LEAST_SHARE if name == "data" else HIGH_SHARE
        told = (hidden or name == "data") and 2 * chosen.sum() <= len(chosen)
        clearly_more = total[chosen].min(initial=np.inf) - total[~chosen].max(initial=0)
        told = told and clearly_more >= least * all_ranks.span_ns
        findings.append(Finding(kind.kind, loss, ranks, where, kind.advice, evidence, confidence, told=bool(told)))
    return findings


def _few_of(all_ranks: AllRankFacts, lost: Floats, chosen: Flags) -> Flags:
    """Of the ranks that lose time the few that lose it beyond what all lose; all of `chosen` if it is so of none."""
    beyond = all_ranks.excess(lost)
    few = all_ranks.culprits(beyond, _CULPRIT_SHARE)
    return few if 2 * few.sum() <= len(few) and beyond[few].sum() >= _BECAUSE * lost[few].sum() > 0 else chosen


def _short_pauses(all_ranks: AllRankFacts, waits: Floats) -> Floats:
    """(ranks, steps): what few ranks take longer from a wait to the next launch than others, ns; 0 for others."""
    beyond = all_ranks.excess(waits)
    pace_ns = np.array([f.launch_ns for f in all_ranks.facts.values()])
    known_ns = pace_ns[pace_ns > 0]  # 0 where a full queue hides it
    usual_ns = float(np.percentile(known_ns, 25, method="lower")) if len(known_ns) else np.inf
    slower = np.maximum(pace_ns / usual_ns - 1, 0)
    beyond = np.maximum(beyond - slower[:, None] * (waits - beyond), 0)  # who launches slowly does so after waits too
    total = beyond.sum(axis=1)
    rows = (total >= _CULPRIT_SHARE * total.max(initial=0)) & (total >= _LEAST_PAUSED * all_ranks.span_ns)
    counts = np.array([f.call_counts.get("sync", 0) / max(len(f.steps), 1) for f in all_ranks.facts.values()])
    more = np.maximum(counts - np.median(counts), 0)
    rows &= total >= (_SHORT_PAUSE_NS + _AFTER_A_WAIT_NS * more) * len(all_ranks.steps)
    few = 2 * rows.sum() <= len(rows)
    return np.where(rows[:, None] & few, beyond, 0.0)


def _short_pause(all_ranks: AllRankFacts, paused: Floats) -> list[Finding]:
    chosen = np.asarray(paused.any(axis=1))
    if not chosen.any():
        return []
    change = partial(RecoveredTime.shorter_after, name="sync", less_ns=_by_rank(all_ranks, paused))
    loss = all_ranks.loss(("sync",), paused, change, shared=HOST_CLASSES)
    kind = _KINDS["host-pause"]
    where, evidence = _evidence(all_ranks, "host-pause", paused, chosen)
    ranks = tuple(all_ranks.ranks[chosen].tolist())
    return [Finding(kind.kind, loss, ranks, where, kind.advice, evidence, kind.confidence)]


def _by_rank(all_ranks: AllRankFacts, lost: Floats) -> dict[int, float]:
    totals = zip(all_ranks.ranks.tolist(), lost.sum(axis=1).tolist(), strict=True)
    return {rank: total for rank, total in totals if total}


def _pauses_behind_waits(all_ranks: AllRankFacts) -> bool:
    """Whether devices run dry in pauses of the host only because it waited for them right before, step after step."""
    run, pauses_of = all_ranks.recovery, all_ranks.of("host-pause")
    if run is None or pauses_of.sum(axis=1).max(initial=0) < LEAST_SHARE * all_ranks.span_ns:
        return False
    if (pauses_of > _SAME * pauses_of.max()).any(axis=0).mean() < _EVERY_STEP:
        return False
    facts = all_ranks.facts.values()
    paused = np.array([f.paused_ns for f in facts])
    if 2 * (paused >= _CULPRIT_SHARE * paused.max()).sum() <= len(paused):
        return False  # ranks wait alike, and few of them pause
    if sum(f.paused_behind_ns for f in facts) < _BEHIND * sum(f.paused_ns for f in facts):
        return False
    if run.waits("sync") < len(all_ranks.ranks) * len(all_ranks.steps):
        return False
    waits, pauses = run.no_host("sync"), run.no_host("host-pause")
    if waits is None or pauses is None:
        return False
    saved = run.saved_ns(pauses)
    return saved > 0 and run.saved_ns(waits) >= _BECAUSE * saved


def _without(name: str, run: RecoveredTime) -> Int64 | None:
    return run.no_idle() if name == "idle" else run.no_host(name)


def _without_waits(
    all_ranks: AllRankFacts, paused_ns: Mapping[int, float], others: Sequence[str], run: RecoveredTime
) -> Altered | None:
    """The run without the host's waits, against one in which launching takes no time, nor `others`, nor short pauses.

    After a wait the queue of the device is empty until the host has launched enough. What quick launches would give
    back of that is lost to launching: a host that launches late keeps the queue short, and any wait, such as the one
    that ends a step, shows it. What one that does not pause would give back is lost to the pause.
    """
    waits, launching = run.no_host("sync"), _without_launching(all_ranks, run)
    if waits is None or launching is None:
        return waits
    for weights in map(run.no_host, others):
        launching = launching if weights is None else launching + weights - run.replay.weights
    if paused_ns:
        launching = np.minimum(launching, run.shorter_after("sync", paused_ns))
    both = np.where(waits == NEVER, NEVER, waits + launching - run.replay.weights)
    return OtherOrder(run.replay.graph, both, launching)


def _without_launching(all_ranks: AllRankFacts, run: RecoveredTime) -> Int64 | None:
    """Kernels that launch in no time, and no short ones, since fused ones are not separate."""
    weights, short = run.no_host("launch"), all_ranks.of("short-kernels")
    if not short.any():
        return weights
    whole = np.maximum(short + all_ranks.of("compute"), 1)
    less = run.less_work(all_ranks.ranks, all_ranks.numbers, short / whole)
    return less if weights is None else weights + less - run.replay.weights


def _evidence(all_ranks: AllRankFacts, name: str, lost: Floats, chosen: Flags) -> tuple[str, dict[str, float]]:
    facts = all_ranks.facts_of(chosen)
    mine = lost[chosen]
    evidence: dict[str, float] = {
        "stalled_ns_per_step": float(np.round(mine.mean())),
        "longest_step_ns": float(mine.max()),
        "steps_affected": int((mine > _SAME * mine.max()).any(axis=0).sum()),
        "steps": len(all_ranks.steps),
    }
    known = sorted(named for f in facts if (named := f.call_names.get(name)))
    where = max(known, key=known.count, default="")
    if name in facts[0].call_counts:
        evidence["calls"] = int(np.median([f.call_counts.get(name, 0) for f in facts]))
    if name == "launch":
        kernels = sum(f.kernels for f in facts)
        evidence["kernels_per_step"] = round(kernels / max(sum(len(f.steps) for f in facts), 1))
        evidence["launch_ns"] = float(np.median([f.launch_ns for f in facts]))
        evidence["mean_kernel_ns"] = round(sum(f.kernel_total_ns for f in facts) / max(kernels, 1))
        where = "kernel launches"
    return where or _WITHOUT_A_NAME.get(name, name), evidence
