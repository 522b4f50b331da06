"""Opportunities in compute: nothing is lost to a fault, yet other kernels would do the same work sooner.

The saving of a rank is an upper bound (`potential`); the saving of the job is that of the rank that could save most. It is not a
loss, to which severities apply, so all are `low`.
"""

from __future__ import annotations

from dataclasses import dataclass

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts

_IDLE = ("launch", "kernel-gap", "idle")


@dataclass(frozen=True)
class _Kind:
    advice: str
    classes: tuple[str, ...] = ("compute",)


_KINDS = {
    "precision": _Kind(
        "Matrix products, convolutions or attention run in fp32 or TF32, although this device is faster in bf16 or fp16; "
        "try automatic mixed precision (torch.autocast), or at least TF32."
    ),
    "attention": _Kind(
        "Attention runs as separate products and a softmax; use a fused kernel (FlashAttention, "
        "torch.nn.functional.scaled_dot_product_attention)."
    ),
    "fusion": _Kind(
        "Many consecutive kernels only read and write data; fuse them (torch.compile, fused optimizers and norms, Triton)."
    ),
    "shapes": _Kind(
        "The blocks of matrix products leave multiprocessors empty in their last wave; choose batch, hidden and vocabulary sizes "
        "that are multiples of 64 or 128, or batch small products."
    ),
    "small-kernels": _Kind("The device is idle between many small kernels; record them in a CUDA graph, or fuse them.", _IDLE),
}

_NO_LOSS = "an opportunity is not a loss; opportunity_share is the most that a change can save"
_CONFIDENCE = 0.6


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """A finding for each kind that could give back `MEDIUM_SHARE` of the judged time or more."""
    found = []
    for kind, about in _KINDS.items():
        shares = {rank: _share(facts, kind, about, all_ranks.span_ns) for rank, facts in all_ranks.facts.items()}
        most = max(shares, key=lambda r: (shares[r], -r), default=None)
        if most is None or shares[most] < MEDIUM_SHARE:
            continue
        ranks = tuple(r for r, share in shares.items() if share >= 0.5 * shares[most])
        potential = all_ranks.facts[most].potentials[kind]
        evidence = {
            "affected_share": round(potential.affected_ns / max(all_ranks.facts[most].kernel_total_ns, 1), 3),
            "kernels_per_step": round(potential.kernels / max(len(all_ranks.facts[most].steps), 1)),
        }
        found.append(
            Finding(
                kind,
                Loss(0, "ceiling", about.classes, 0, 0, _NO_LOSS),
                ranks,
                all_ranks.name(potential.name),
                about.advice,
                evidence,
                _CONFIDENCE,
                all_ranks.hosts_of(ranks),
                severity="low",
                opportunity=shares[most],
            )
        )
    return found


def _share(facts: RankFacts, kind: str, about: _Kind, span_ns: int) -> float:
    """The share of the judged time that a rank could save, 0 to 1; of kernels, the part of their time that is saved counts."""
    from alltrace.recipes.questions.diagnose.gaps import CLASSES

    potential = facts.potentials.get(kind)
    if potential is None or not span_ns or not len(facts.times):
        return 0.0
    held = int(facts.times[:, [CLASSES.index(c) for c in about.classes]].sum())
    if about.classes == _IDLE:
        return min(potential.saved_ns, held, span_ns) / span_ns
    return min(potential.saved_ns / max(facts.kernel_total_ns, 1) * held / span_ns, 1.0)
