"""Causes that hide each other: without one of them the job waits for the other, so only both together give time back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime

_LEAST_SHARE = 0.01
"""Two causes hide each other if together they cost this share of the judged time more than the sum of both alone,"""

_LEAST_PART = 0.25
"""and this part of what they cost together."""

_AS_MUCH = 0.8
"""Of pairs that together cost this part of what the costliest pair does, the one that costs most alone is named."""

_MOST_CAUSES = 6
"""Of more causes only those that cost most alone, or would by the others' work, are tried with each other."""

_OF_HOST = frozenset({"data", "host-pause", "launch", "allocation", "module-loading", "compilation"})
_NO_CAUSES = frozenset({"jitter", "missing-rank", "unexplained", "hand-over"})


def with_joint_losses(findings: Sequence[Finding], all_ranks: AllRankFacts) -> list[Finding]:
    """The findings, where two that hide each other are reported and state what both cost together."""
    run, span_ns = all_ranks.recovery, all_ranks.span_ns
    if run is None:
        return list(findings)
    causes = [f for f in findings if f.loss.without is not None and f.kind not in _NO_CAUSES and not f.needed_at_once]
    causes = sorted(causes, key=lambda f: -f.loss.bound_ns)[:_MOST_CAUSES]
    hiding = []
    for first, second in combinations(causes, 2):
        if set(first.ranks) & set(second.ranks) and not _can_hide_on_one_rank(first, second):
            continue
        together_ns = _together_ns(first, second, run)
        alone_ns = first.loss.estimate_ns + second.loss.estimate_ns
        if together_ns - alone_ns >= max(_LEAST_SHARE * span_ns, _LEAST_PART * together_ns):
            hiding.append(_Pair(first, second, together_ns, alone_ns))
    if not hiding:
        return list(findings)
    most_ns = max(pair.together_ns for pair in hiding)
    # what costs much alone is surely there; without all waits of all hosts, say, almost any slow rank would give time back
    pair = max((p for p in hiding if p.together_ns >= _AS_MUCH * most_ns), key=lambda p: (p.alone_ns, p.together_ns))
    evidence = {"together_ns": pair.together_ns}
    both = (pair.first, pair.second)
    return [replace(f, told=True, evidence={**f.evidence, **evidence}) if any(f is one for one in both) else f for f in findings]


class _Pair(NamedTuple):
    first: Finding
    second: Finding
    together_ns: int
    alone_ns: int


def _can_hide_on_one_rank(first: Finding, second: Finding) -> bool:
    """Whether one is of the device's kernels and the other of what the host does of its own."""
    sides = [finding.loss.classes[:1] for finding in (first, second)]
    return ("compute",) in sides and any(side and side[0] in _OF_HOST for side in sides)


def _together_ns(first: Finding, second: Finding, run: RecoveredTime) -> int:
    """What the job gets back without both; 0 if that cannot be replayed."""
    both = run.without_both(first.loss.without, second.loss.without)
    return 0 if both is None else run.saved_ns(both)
