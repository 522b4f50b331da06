"""Opportunities in compute: nothing is lost to a fault, yet other kernels would do the same work sooner.

The saving of a rank is an upper bound (`potential`); the saving of the job is that of the rank that could save most. It
is not a loss, to which severities apply, so all are `low`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import AN_OPPORTUNITY, MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts

_IDLE = ("launch", "kernel-gap", "idle")


@dataclass(frozen=True)
class _Kind:
    advice: str
    classes: tuple[str, ...] = ("compute",)


_KINDS = {
    "precision": _Kind(
        "Matrix products, convolutions or attention run in fp32 or TF32, although this device is faster in bf16 or"
        " fp16; try automatic mixed precision (torch.autocast), or at least TF32."
    ),
    "attention": _Kind(
        "Attention runs as separate products and a softmax; use a fused kernel (FlashAttention, "
        "torch.nn.functional.scaled_dot_product_attention)."
    ),
    "fusion": _Kind(
        "Many consecutive kernels only read and write data; fuse them (torch.compile, fused optimizers and norms,"
        " Triton)."
    ),
    "shapes": _Kind(
        "The blocks of matrix products leave multiprocessors empty in their last wave; choose batch, hidden and"
        " vocabulary sizes that are multiples of 64 or 128, or batch small products."
    ),
    "small-kernels": _Kind(
        "The device is idle between many small kernels; record them in a CUDA graph, or fuse them.", _IDLE
    ),
}

_CONFIDENCE = 0.6


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """A finding for each kind that could give back `MEDIUM_SHARE` of the judged time or more."""
    found = []
    for kind, about in _KINDS.items():
        shares = {rank: _share(facts, kind, about, all_ranks.span_ns) for rank, facts in all_ranks.facts.items()}
        potential = all_ranks.facts[most].potentials.get(kind) if (most := rank_with_most(shares)) is not None else None
        if most is None or potential is None:
            continue
        facts = all_ranks.facts[most]
        evidence = {
            "affected_share": round(potential.affected_ns / max(facts.kernel_total_ns, 1), 3),
            "kernels_per_step": round(potential.kernels / max(len(facts.steps), 1)),
        }
        loss = Loss(0, "ceiling", about.classes, 0, 0, AN_OPPORTUNITY)
        found.append(
            opportunity(kind, loss, shares, all_ranks.name(potential.name), about.advice, evidence, _CONFIDENCE)
        )
    return found


def rank_with_most(shares: Mapping[int, float]) -> int | None:
    """The rank that could save most; None if it is less than `MEDIUM_SHARE` of the judged time."""
    most = max(shares, key=lambda r: (shares[r], -r), default=None)
    return most if most is not None and shares[most] >= MEDIUM_SHARE else None


def opportunity(
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


def share_of_kernels(facts: RankFacts, kernels_ns: int, classes: Sequence[str], span_ns: int) -> float:
    """A time of a rank's kernels as a share of the judged time, 0 to 1, by how long these classes take."""
    if not span_ns or not len(facts.times):
        return 0.0
    return min(kernels_ns / max(facts.kernel_total_ns, 1) * _held_ns(facts, classes) / span_ns, 1.0)


def _held_ns(facts: RankFacts, classes: Sequence[str]) -> int:
    return int(facts.times[:, [CLASSES.index(name) for name in classes]].sum())


def _share(facts: RankFacts, kind: str, about: _Kind, span_ns: int) -> float:
    potential = facts.potentials.get(kind)
    if potential is None or not span_ns or not len(facts.times):
        return 0.0
    if about.classes == _IDLE:
        return min(potential.saved_ns, _held_ns(facts, about.classes), span_ns) / span_ns
    return share_of_kernels(facts, potential.saved_ns, about.classes, span_ns)
