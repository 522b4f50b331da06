"""Time without compute that no finding explains: what can be said if nothing else can."""

from collections.abc import Sequence

import numpy as np

from alltrace.recipes.analysis.unsized_operations import why_unsized
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE, MEDIUM_SHARE, Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.ranking import Ranked

FILLED = 0.9  # compute fills the time from this share of it on: then nothing else can cost much
_SMALL = 0.5  # below this share of compute there must be a finding
_EXPLAINED = 0.5  # the findings explain the time without compute when they claim this share of it

_DOES = {
    "communication": "communication runs that compute waits for",
    "transfer": "copies between host and device run",
    "copy": "copies and fills run within the device",
    "kernel-gap": "they go from one kernel to the next",
    "idle": "nothing runs although work is queued",
    "unknown": "nothing runs, and no call is known to launch what comes",
}
"""What a device does in the classes of `CLASSES` in which the host is not late."""


def compute_share(all_ranks: AllRankFacts) -> float:
    """The share of the judged time of all ranks in which their devices compute, 0 to 1."""
    total = float(np.nansum(all_ranks.times))
    return float(all_ranks.of("compute").sum()) / total if total else 0.0


def find(all_ranks: AllRankFacts, others: Sequence[Ranked]) -> list[Finding]:
    """`unexplained`, where compute is a small part of the time and the other findings explain little of the rest.

    It states no loss: nothing shows how much of that time the job could get back.
    """
    share = compute_share(all_ranks)
    rest = (1 - share) * all_ranks.span_ns
    if share >= _SMALL or rest <= 0 or sum(o.claim_ns for o in others) >= _EXPLAINED * rest:
        return []
    totals = {name: float(all_ranks.of(name).sum()) for name in CLASSES if name != "compute"}
    largest = max(totals, key=lambda name: totals[name])
    spent = totals[largest] / float(np.nansum(all_ranks.times))
    advice = (
        f"Devices compute for {100 * share:.0f} % of the time only, and no finding explains the rest; for"
        f" {100 * spent:.0f} % of it {_DOES.get(largest, f'they wait for the host ({largest})')}. Check the timeline;"
        " capture calls, ranges and OS calls."
    )
    evidence = {"compute_share": round(share, 4), "stalled_ns_per_step": round(rest / max(len(all_ranks.steps), 1))}
    loss = Loss(0, "ceiling", (largest,), 0, 0, "it is unknown how much of this time the job could save")
    ranks = tuple(all_ranks.ranks.tolist())
    return [Finding("unexplained", loss, ranks, largest, advice, evidence, 0.3, severity="medium")]


def unjudged(all_ranks: AllRankFacts, others: Sequence[Ranked]) -> list[Finding]:
    """`unexplained` communication, if it is unknown who waits for whom and nothing else that costs much was found."""
    lost = all_ranks.of("communication")
    waited_ns = all_ranks.waiting_ns(lost)
    least_ns = max(LEAST_SHARE * all_ranks.span_ns, 1)
    much = any(o.claim_ns >= MEDIUM_SHARE * all_ranks.span_ns for o in others)
    claimed = sum(o.claim_ns for o in others)
    if all_ranks.doubt is None or waited_ns < least_ns or much or claimed >= _EXPLAINED * waited_ns:
        return []
    loss = all_ranks.loss(("communication",), lost, None, waited_ns)
    advice = (
        "Record which ranks communicate, which tells for whom devices wait:"
        f" {why_unsized(all_ranks.alignment.run.manifest)[1]}."
    )
    evidence: dict[str, float] = {"stalled_ns_per_step": round(waited_ns / max(len(all_ranks.steps), 1))}
    ranks = tuple(all_ranks.ranks.tolist())
    return [Finding("unexplained", loss, ranks, "communication", advice, evidence, 0.3)]


def verdict(all_ranks: AllRankFacts) -> str:
    share = compute_share(all_ranks)
    if share >= FILLED:
        return f"nothing that costs much time was found: devices compute for {100 * share:.1f} % of the analyzed time"
    computing = f"devices compute for {100 * share:.1f} % of the analyzed time only"
    return f"nothing stands out, although {computing}; see `breakdown` for the rest"
