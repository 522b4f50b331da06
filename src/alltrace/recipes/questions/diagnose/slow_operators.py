"""Operators far below their device's roof, as opportunities: which, why by shapes, and what a change could save."""

from __future__ import annotations

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import AN_OPPORTUNITY, Finding, Loss
from alltrace.recipes.questions.diagnose.operator_rates import SlowOperator
from alltrace.recipes.questions.diagnose.opportunities import opportunity, rank_with_most, share_of_kernels

_CLASSES = ("compute",)
_MOST_FINDINGS = 6
_MOST_NOTES = 3
_NOTED_SHARE = 0.1
_UNKNOWN_ROOF = (
    f"{AN_OPPORTUNITY}; the device is not known, so it is by what any device does, or all of the operator's time"
)
_CONFIDENCE, _OF_UNKNOWN_DEVICE = 0.6, 0.5


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """A finding for each operator and reason that could give back enough of the judged time, the first ones."""
    by_cause: dict[tuple[str, str], dict[int, list[SlowOperator]]] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if slow.reason:
                by_cause.setdefault((slow.name, slow.reason), {}).setdefault(rank, []).append(slow)
    findings = []
    for of_ranks in by_cause.values():
        saved_ns = {rank: sum(s.saved_ns for s in slow) for rank, slow in of_ranks.items()}
        shares = {
            r: share_of_kernels(all_ranks.facts[r], ns, _CLASSES, all_ranks.span_ns) for r, ns in saved_ns.items()
        }
        if (most := rank_with_most(shares)) is None:
            continue
        first = of_ranks[most][0]
        affected = sum(s.took_ns for s in of_ranks[most]) / max(all_ranks.facts[most].kernel_total_ns, 1)
        loss = Loss(0, "ceiling", _CLASSES, 0, 0, AN_OPPORTUNITY if first.in_table else _UNKNOWN_ROOF)
        advice = f"{first.says[:1].upper()}{first.says[1:]}; {first.advice}."
        evidence = {"affected_share": round(affected, 3), **first.evidence}
        sure = _CONFIDENCE if first.in_table else _OF_UNKNOWN_DEVICE
        findings.append(opportunity("slow-operator", loss, shares, first.where, advice, evidence, sure))
    return sorted(findings, key=lambda f: (-(f.opportunity or 0.0), f.where))[:_MOST_FINDINGS]


def notes(all_ranks: AllRankFacts) -> list[str]:
    """What is known of operators that take long on devices that are not in the tables: whether they are slow is not."""
    rank_of_text: dict[str, int] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if not slow.reason and share_of_kernels(facts, slow.took_ns, _CLASSES, all_ranks.span_ns) >= _NOTED_SHARE:
                rank_of_text.setdefault(f"{slow.where} {slow.says}", rank)
    return [f"rank {rank}: {text}" for text, rank in list(rank_of_text.items())[:_MOST_NOTES]]
