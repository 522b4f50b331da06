"""Opportunities in compute: nothing is lost to a fault, yet other kernels would do the same work sooner.

The saving of a rank is an upper bound (`potential`, and `operator_rates` for operators far below their device's roof);
the saving of the job is that of the rank that could save most. It is not a loss, to which severities apply, so all are
`low`.
"""

from collections.abc import Mapping

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import AN_OPPORTUNITY, MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.operator_rates import SlowOperator
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts

_COMPUTE, _IDLE = ("compute",), ("launch", "kernel-gap", "idle")

_ADVICE = {
    "precision": (
        "Matrix products, convolutions or attention run in fp32 or TF32, although this device is faster in bf16 or"
        " fp16; try automatic mixed precision (torch.autocast), or at least TF32."
    ),
    "attention": (
        "Attention runs as separate products and a softmax; use a fused kernel (FlashAttention, "
        "torch.nn.functional.scaled_dot_product_attention)."
    ),
    "fusion": (
        "Many consecutive kernels only read and write data; fuse them (torch.compile, fused optimizers and norms,"
        " Triton)."
    ),
    "shapes": (
        "The blocks of matrix products leave multiprocessors empty in their last wave; choose batch, hidden and"
        " vocabulary sizes that are multiples of 64 or 128, or batch small products."
    ),
    "small-kernels": ("The device is idle between many small kernels; record them in a CUDA graph, or fuse them."),
}
_MOST_OPERATORS, _MOST_NOTES, _NOTED_SHARE = 6, 3, 0.1
_UNKNOWN_ROOF = (
    f"{AN_OPPORTUNITY}; the device is not known, so it is by what any device does, or all of the operator's time"
)
_CONFIDENCE, _OF_UNKNOWN_DEVICE = 0.6, 0.5


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """A finding for each kind, and for the first operators and reasons, that could give back `MEDIUM_SHARE` or more."""
    return [*_of_kernels(all_ranks), *_of_operators(all_ranks)]


def _of_kernels(all_ranks: AllRankFacts) -> list[Finding]:
    findings = []
    for kind, advice in _ADVICE.items():
        shares = {rank: _share(facts, kind, all_ranks.span_ns) for rank, facts in all_ranks.facts.items()}
        if (most := _rank_with_most(shares)) is None:
            continue
        facts = all_ranks.facts[most]
        potential = facts.potentials[kind]
        evidence = {
            "affected_share": round(potential.affected_ns / max(facts.kernel_total_ns, 1), 3),
            "kernels_per_step": round(potential.kernels / max(len(facts.steps), 1)),
        }
        loss = Loss(0, "ceiling", _IDLE if kind == "small-kernels" else _COMPUTE, 0, 0, AN_OPPORTUNITY)
        where = all_ranks.name(potential.name)
        findings.append(_opportunity(kind, loss, shares, where, advice, evidence, _CONFIDENCE))
    return findings


def _of_operators(all_ranks: AllRankFacts) -> list[Finding]:
    by_cause: dict[tuple[str, str], dict[int, list[SlowOperator]]] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if slow.reason:
                by_cause.setdefault((slow.name, slow.reason), {}).setdefault(rank, []).append(slow)
    findings = []
    for of_ranks in by_cause.values():
        saved_ns = {rank: sum(s.saved_ns for s in slow) for rank, slow in of_ranks.items()}
        shares = {r: _share_of_kernels(all_ranks.facts[r], ns, all_ranks.span_ns) for r, ns in saved_ns.items()}
        if (most := _rank_with_most(shares)) is None:
            continue
        first = of_ranks[most][0]
        affected = sum(s.took_ns for s in of_ranks[most]) / max(all_ranks.facts[most].kernel_total_ns, 1)
        loss = Loss(0, "ceiling", _COMPUTE, 0, 0, AN_OPPORTUNITY if first.in_table else _UNKNOWN_ROOF)
        advice = f"{first.says[:1].upper()}{first.says[1:]}; {first.advice}."
        evidence = {"affected_share": round(affected, 3), **first.evidence}
        sure = _CONFIDENCE if first.in_table else _OF_UNKNOWN_DEVICE
        findings.append(_opportunity("slow-operator", loss, shares, first.where, advice, evidence, sure))
    return sorted(findings, key=lambda f: (-(f.opportunity or 0.0), f.where))[:_MOST_OPERATORS]


def notes(all_ranks: AllRankFacts) -> list[str]:
    """What is known of operators that take long on devices that are not in the tables: whether they are slow is not."""
    rank_of_text: dict[str, int] = {}
    for rank, facts in all_ranks.facts.items():
        for slow in facts.operators:
            if not slow.reason and _share_of_kernels(facts, slow.took_ns, all_ranks.span_ns) >= _NOTED_SHARE:
                rank_of_text.setdefault(f"{slow.where} {slow.says}", rank)
    return [f"rank {rank}: {text}" for text, rank in list(rank_of_text.items())[:_MOST_NOTES]]


def _rank_with_most(shares: Mapping[int, float]) -> int | None:
    """The rank that could save most; None if it is less than `MEDIUM_SHARE` of the judged time."""
    most = max(shares, key=lambda r: (shares[r], -r), default=None)
    return most if most is not None and shares[most] >= MEDIUM_SHARE else None


def _opportunity(
    kind: str,
    loss: Loss,
    shares: Mapping[int, float],
    where: str,
    advice: str,
    evidence: dict[str, float],
    confidence: float,
) -> Finding:
    """The finding of the ranks that could save half of what any could, by `shares` of the judged time."""
    most = max(shares.values())
    ranks = tuple(rank for rank, share in shares.items() if share >= 0.5 * most)
    return Finding(kind, loss, ranks, where, advice, evidence, confidence, severity="low", opportunity=most)


def _share_of_kernels(facts: RankFacts, kernels_ns: int, span_ns: int) -> float:
    """A time of a rank's kernels as a share of the judged time, 0 to 1, by how long it computes."""
    compute_ns = int(facts.times[:, CLASSES.index("compute")].sum())
    return min(kernels_ns / max(facts.kernel_total_ns, 1) * compute_ns / span_ns, 1.0) if span_ns else 0.0


def _share(facts: RankFacts, kind: str, span_ns: int) -> float:
    potential = facts.potentials.get(kind)
    if potential is None or kind != "small-kernels":
        return 0.0 if potential is None else _share_of_kernels(facts, potential.saved_ns, span_ns)
    idle_ns = int(facts.times[:, [CLASSES.index(name) for name in _IDLE]].sum())
    return min(potential.saved_ns, idle_ns, span_ns) / span_ns if span_ns else 0.0
