"""Findings of one cause, and causes that hide each other, so that only both together give time back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations

import numpy as np

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE, MEDIUM_SHARE, Finding
from alltrace.recipes.questions.diagnose.host import OF_HOST
from alltrace.recipes.questions.diagnose.recovered_time import Altered, RecoveredTime

_LEAST_SHARE, _LEAST_PART = 0.01, 0.25
"""Two causes hide each other if together they cost this share of the judged time more than the sum of both alone, and
this part of what they cost together, if that is not enough for `medium`;"""

_LEAST_PART_OF_TOLD = 0.1
"""or if both are reported anyway, as much more as is reported, and this part of what the smaller one costs without the
other."""

_AS_MUCH = 0.8
"""Of pairs that together cost this part of what the costliest pair does, the one that costs most alone is named."""

_MOST_CAUSES = 6
"""Of more causes only those that are reported anyway, and then those with most time, are tried with each other."""

_IN_THE_SAME_STEPS = 0.75  # two losses are in the same steps if their parts in these have this share in common

_LACKS_CPU = 1.333  # the work of a host takes this many times as long if its thread has a CPU for 3/4 of the time
_USUAL_SHARE = 0.4  # pauses in at least this share of the steps are not rare ones
_ALSO = {"host-pause": "pauses", "data-stall": "waits for the next batch"}
_ALSO_OF_SEVERAL = {"host-pause": "pause", "data-stall": "wait for the next batch"}

_NO_CAUSES = frozenset({"jitter", "missing-rank", "unexplained", "hand-over"})


def with_one_of_each_cause(findings: Sequence[Finding], all_ranks: AllRankFacts) -> list[Finding]:
    """The findings, where those of the same few ranks that have one cause are one finding with the loss of all."""
    run = all_ranks.recovery
    if run is None:
        return list(findings)
    of_one_cause = _joined(findings, run, partial(_pauses_with_it, all_ranks))
    return _joined(of_one_cause, run, partial(_has_more_work, all_ranks))


def _joined(
    findings: Sequence[Finding], run: RecoveredTime, have_one_cause: Callable[[Finding, Finding], bool]
) -> list[Finding]:
    separate: list[Finding] = []
    for finding in findings:
        for place, other in enumerate(separate):
            if not have_one_cause(finding, other):
                continue
            smaller, larger = _by_size(finding, other)
            together_ns = _together_ns(larger, smaller, run)
            if together_ns >= max(f.loss.estimate_ns for f in (larger, smaller)):
                separate[place] = _as_one(larger, smaller, together_ns, run)
                break
        else:
            separate.append(finding)
    return separate


def _by_size(first: Finding, second: Finding) -> list[Finding]:
    """The smaller finding and the larger one, which names both: a rank that lacks a CPU, else what takes more time."""
    pauses = first.kind in _ALSO or second.kind in _ALSO

    def size(finding: Finding) -> tuple[bool, int, int]:
        lacks_cpu = _is_slow(finding) and (pauses or len(finding.loss.classes) > 1)
        return lacks_cpu, finding.loss.own_ns, finding.loss.estimate_ns

    return sorted((first, second), key=size)


def _of_few(first: Finding, second: Finding, all_ranks: AllRankFacts) -> bool:
    return first.ranks == second.ranks and 2 * len(first.ranks) <= len(all_ranks.ranks)


def _pauses_with_it(all_ranks: AllRankFacts, first: Finding, second: Finding) -> bool:
    """Whether ranks write in a pause what they have copied, or lack a CPU, so that they work slowly, pause and wait."""
    if not _of_few(first, second, all_ranks):
        return False
    if {first.kind, second.kind} == {"sync-copy", "host-pause"}:
        return _in_the_same_steps(first, second)
    slow, other = sorted((first, second), key=_is_slow, reverse=True)
    often = other.evidence.get("steps_affected", 0.0) >= _USUAL_SHARE * len(all_ranks.steps)
    lacks_cpu = _is_slow(slow) and slow.evidence["slowdown"] >= _LACKS_CPU and all_ranks.judges_hosts
    return lacks_cpu and often and other.kind in _ALSO


def _has_more_work(all_ranks: AllRankFacts, first: Finding, second: Finding) -> bool:
    """Whether hosts have more work: some operators are called more often, and others take longer."""
    kinds = {first.kind, second.kind}
    return kinds == {"straggler", "imbalance"} and all_ranks.judges_hosts and _of_few(first, second, all_ranks)


def _is_slow(finding: Finding) -> bool:
    return finding.kind in ("straggler", "slow-host") and "slowdown" in finding.evidence


def _in_the_same_steps(first: Finding, second: Finding) -> bool:
    own, other = (f.loss.steps[1] if f.loss.steps is not None else np.zeros(0) for f in (first, second))
    return len(own) == len(other) and bool(np.minimum(own, other).sum() >= _IN_THE_SAME_STEPS)


def _as_one(larger: Finding, smaller: Finding, together_ns: int, run: RecoveredTime) -> Finding:
    one, other = larger.loss, smaller.loss
    bound = sum if set(one.classes).isdisjoint(other.classes) else max  # what is of one class is not there twice
    loss = replace(
        one,
        estimate_ns=together_ns,
        classes=tuple(dict.fromkeys((*one.classes, *other.classes))),
        own_ns=bound((one.own_ns, other.own_ns)),
        bound_ns=bound((one.bound_ns, other.bound_ns)),
        without=cache(partial(_without_both, larger, smaller, run)),
    )
    if smaller.kind in _ALSO and _is_slow(larger):
        also = f"In many of the steps its main thread also {_ALSO[smaller.kind]}, as one does that gets no CPU"
        if len(larger.ranks) > 1:
            pauses = _ALSO_OF_SEVERAL[smaller.kind]
            also = f"In many of the steps their main threads also {pauses}, as those do that get no CPU"
    elif smaller.kind == "host-pause":
        also = "In the same steps the launching thread pauses"
    elif smaller.kind == "sync-copy":
        also = f"In the same steps {smaller.where} takes time there"
    else:
        also = f"There, {smaller.where} takes more time too"
    advice = f"{larger.advice} {also}, which is part of the loss."
    return replace(larger, loss=loss, advice=advice, told=larger.told or smaller.told)


def with_joint_losses(findings: Sequence[Finding], all_ranks: AllRankFacts) -> list[Finding]:
    """The findings, where two that hide each other are reported and state what both cost together."""
    run, span_ns = all_ranks.recovery, all_ranks.span_ns
    if run is None:
        return list(findings)
    findings = _beside_a_loader(findings, all_ranks)
    hiding = []
    for first, second in combinations(_causes(findings, all_ranks), 2):
        if set(first.ranks) & set(second.ranks) and not _can_hide_on_one_rank(first, second):
            continue
        alone_ns = first.loss.estimate_ns + second.loss.estimate_ns
        together_ns = _together_ns(first, second, run)
        if not (_is_loader(first) or _is_loader(second)):
            together_ns = min(together_ns, _most_ns(findings, all_ranks))
        least_ns = max(_LEAST_SHARE * span_ns, min(_LEAST_PART * together_ns, MEDIUM_SHARE * span_ns))
        if _is_told(first, span_ns) and _is_told(second, span_ns):
            by_itself_ns = together_ns - max(first.loss.estimate_ns, second.loss.estimate_ns)
            least_ns = min(least_ns, max(LEAST_SHARE * span_ns, _LEAST_PART_OF_TOLD * by_itself_ns))
        if together_ns - alone_ns >= least_ns:
            hiding.append((alone_ns, together_ns, first, second))
    if not hiding:
        return list(findings)
    most_ns = max(together_ns for _, together_ns, *_ in hiding)
    # what costs much alone is surely there; without all waits of all hosts, say, almost any slow rank would give time
    # back
    _, together_ns, *both = max((pair for pair in hiding if pair[1] >= _AS_MUCH * most_ns), key=lambda pair: pair[:2])
    evidence = {"together_ns": together_ns, "together_share": round(together_ns / span_ns, 4)}
    return [
        replace(f, told=True, evidence={**f.evidence, **evidence}) if any(f is one for one in both) else f
        for f in findings
    ]


def _beside_a_loader(findings: Sequence[Finding], all_ranks: AllRankFacts) -> list[Finding]:
    """The findings, where no cause gives back more than a loader's time for batches allows."""
    most_ns = _most_ns(findings, all_ranks)

    def allowed(f: Finding) -> bool:
        return _is_loader(f) or f.loss.estimate_ns <= most_ns or f.loss.unknown is not None

    return [f if allowed(f) else replace(f, loss=replace(f.loss, estimate_ns=most_ns)) for f in findings]


def _most_ns(findings: Sequence[Finding], all_ranks: AllRankFacts) -> int:
    """What the job gets back at most while it waits for its loaders."""
    loaders = {rank for finding in findings if _is_loader(finding) for rank in finding.ranks}
    pace_ns = max((all_ranks.facts[rank].loader_ns for rank in loaders), default=0)
    return max(all_ranks.span_ns - pace_ns * len(all_ranks.steps), 0)


def _is_loader(finding: Finding) -> bool:
    return finding.loss.classes[:1] == ("data",)


def _causes(findings: Sequence[Finding], all_ranks: AllRankFacts) -> list[Finding]:
    """The causes to try with each other.

    A host's time counts also if its device does not wait for it, and a slow device's if its peers do not, because
    something else makes them wait longer.
    """
    span_ns = all_ranks.span_ns
    causes = []
    for f in findings:
        excess_ns = round(f.evidence.get("excess_ns_per_step", 0.0) * len(all_ranks.steps))
        time_ns = max(f.loss.bound_ns, _of_host_ns(f, all_ranks), excess_ns)
        is_cause = f.loss.without is not None and f.kind not in _NO_CAUSES and not f.needed_at_once
        if is_cause and time_ns >= _LEAST_SHARE * span_ns:
            causes.append((_is_told(f, span_ns), time_ns, f))
    causes.sort(key=lambda cause: cause[:2], reverse=True)
    return [f for *_, f in causes[:_MOST_CAUSES]]


def _is_told(finding: Finding, span_ns: int) -> bool:
    return finding.told or finding.loss.estimate_ns >= LEAST_SHARE * span_ns


def _of_host_ns(finding: Finding, all_ranks: AllRankFacts) -> int:
    if not set(finding.loss.classes[:1]) & set(OF_HOST):
        return 0
    host_ns = all_ranks.of_host(finding.loss.classes[0])[np.isin(all_ranks.ranks, finding.ranks)]
    return int(host_ns.sum(axis=1).max(initial=0))


def _can_hide_on_one_rank(first: Finding, second: Finding) -> bool:
    """Whether one is of the device's work and the other of what the host does of its own."""
    sides = {name for finding in (first, second) for name in finding.loss.classes[:1]}
    return bool(sides & {"compute", "communication"} and sides & {*OF_HOST, "launch"})


def _together_ns(first: Finding, second: Finding, run: RecoveredTime) -> int:
    """What the job gets back without both; 0 if that cannot be replayed."""
    both = _without_both(first, second, run)
    return 0 if both is None else run.saved_ns(both) - first.loss.beyond_ns - second.loss.beyond_ns


def _without_both(first: Finding, second: Finding, run: RecoveredTime) -> Altered | None:
    one, other = (None if f.loss.without is None else f.loss.without() for f in (first, second))
    return None if one is None or other is None else run.without_both(one, other)
