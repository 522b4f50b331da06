"""Operators far below their device's roof, as opportunities: which, why by their shapes, and what a change could save."""

from __future__ import annotations

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.operator_rates import SlowOperator

_MOST_FINDINGS = 6
_MOST_NOTES = 3
_NOTED_SHARE = 0.1
_NO_LOSS = "an opportunity is not a loss; opportunity_share is the most that a change can save"
_UNKNOWN_ROOF = f"{_NO_LOSS}; the device is not known, so it is by what any device does, or all of the operator's time"
_CONFIDENCE, _OF_UNKNOWN_DEVICE = 0.6, 0.5


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """A finding for each operator and reason that could give back `MEDIUM_SHARE` of the judged time or more, the first ones."""
    by_cause: dict[tuple[str, str], dict[int, list[SlowOperator]]] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if slow.reason:
                by_cause.setdefault((slow.name, slow.reason), {}).setdefault(rank, []).append(slow)
    findings = []
    for of_ranks in by_cause.values():
        shares = {rank: _share(all_ranks, rank, sum(s.saved_ns for s in slow)) for rank, slow in of_ranks.items()}
        most = max(shares, key=lambda r: (shares[r], -r))
        if shares[most] < MEDIUM_SHARE:
            continue
        first = of_ranks[most][0]
        ranks = tuple(r for r, share in shares.items() if share >= 0.5 * shares[most])
        affected = sum(s.took_ns for s in of_ranks[most]) / max(all_ranks.facts[most].kernel_total_ns, 1)
        findings.append(
            Finding(
                "slow-operator",
                Loss(0, "ceiling", ("compute",), 0, 0, _NO_LOSS if first.in_table else _UNKNOWN_ROOF),
                ranks,
                first.where,
                f"{first.says[:1].upper()}{first.says[1:]}; {first.advice}.",
                {"affected_share": round(affected, 3), **first.evidence},
                _CONFIDENCE if first.in_table else _OF_UNKNOWN_DEVICE,
                all_ranks.hosts_of(ranks),
                severity="low",
                opportunity=shares[most],
            )
        )
    return sorted(findings, key=lambda f: (-(f.opportunity or 0.0), f.where))[:_MOST_FINDINGS]


def notes(all_ranks: AllRankFacts) -> list[str]:
    """What is known of operators that take long on devices that are not in the tables: whether they are slow is not."""
    rank_of_text: dict[str, int] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if not slow.reason and _share(all_ranks, rank, slow.took_ns) >= _NOTED_SHARE:
                rank_of_text.setdefault(f"{slow.where} {slow.says}", rank)
    return [f"rank {rank}: {text}" for text, rank in list(rank_of_text.items())[:_MOST_NOTES]]


def _share(all_ranks: AllRankFacts, rank: int, kernels_ns: int) -> float:
    """A time of a rank's kernels as a share of the judged time, 0 to 1."""
    from alltrace.recipes.questions.diagnose.gaps import CLASSES

    facts = all_ranks.facts[rank]
    if not all_ranks.span_ns or not len(facts.times):
        return 0.0
    computing_ns = int(facts.times[:, CLASSES.index("compute")].sum())
    return min(kernels_ns / max(facts.kernel_total_ns, 1) * computing_ns / all_ranks.span_ns, 1.0)
