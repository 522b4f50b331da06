"""Copies that hold up the device: over the link alone, from pageable memory, synchronous, or slow."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.links import link_of
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts
from alltrace.recipes.questions.diagnose.recovered_time import OtherOrder, RecoveredTime
from alltrace.trace.arrays import Flags, Floats

_SLOW_COPY = 0.5  # a rank's copies are slow when they reach at most this share of its peers' median rate

_CULPRIT_SHARE = 0.25

_USUAL_SHARE_OF_LINK = 0.8  # the share of their link's rate that pinned copies reach, if the run has none to measure it


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`exposed-transfer`, `pageable-copy`, `sync-copy` and, of copies, `low-bandwidth`."""
    slow, excess, shares = _slow(all_ranks)
    return [*_exposed(all_ranks, excess, shares), *_pageable(all_ranks), *_synchronous(all_ranks), *slow]


def _exposed(all_ranks: AllRankFacts, excess: Floats, shares: Mapping[int, float]) -> list[Finding]:
    """Transfers over a link during which nothing computes.

    The excess of a slow link is reported separately. The loss is what the job gains if the data stays where it is, or
    moves during other work; the evidence states how much the available compute could hide.
    """
    lost = np.maximum(all_ranks.of("transfer") - excess, 0)
    if not lost.any():
        return []
    chosen = all_ranks.culprits(lost, _CULPRIT_SHARE)
    facts = all_ranks.facts_of(chosen)
    kind, moved = _largest(facts, lambda k: k.endswith("pinned") and not k.startswith(("DtoD", "UvmDtoD")))
    hideable = np.minimum(lost, all_ranks.of("compute"))
    evidence = {
        "exposed_ns_per_step": float(np.round(lost[chosen].mean())),
        "hideable_ns_per_step": float(np.round(hideable[chosen].mean())),
        **moved,
    }
    advice = "Devices wait for copies that nothing overlaps; start them earlier, on their own stream."
    if hideable[chosen].sum() < lost[chosen].sum() / 2:
        advice = (
            "Devices mostly wait for copies, which take longer than the compute that could hide them; keep the data on"
            " the device, or copy less of it."
        )
    ranks = all_ranks.ranks[chosen].tolist()
    # a run without steps holds the program's start too, of which a replay says nothing
    free = None if all_ranks.whole_run else partial(_free, ranks, shares)
    loss = all_ranks.loss(("transfer",), lost * chosen[:, None], free)
    where = f"{kind.removesuffix(' pinned')} copies" if kind else "copies"
    return [Finding("exposed-transfer", loss, tuple(ranks), where, advice, evidence, 0.8)]


def _pageable(all_ranks: AllRankFacts) -> list[Finding]:
    """Copies from or to pageable memory: lost is the difference to the same bytes pinned and during compute."""
    stalled = all_ranks.of("pageable-copy")
    if not stalled.any():
        return []
    chosen = all_ranks.culprits(stalled, _CULPRIT_SHARE)
    facts = all_ranks.facts_of(chosen)
    kind, moved = _largest(facts, lambda k: k.endswith("pageable"))
    pinned = np.array([_pinned_ns(f) / max(len(f.steps), 1) for f in all_ranks.facts.values()])[:, None]
    lost = np.maximum(stalled - np.maximum(pinned - all_ranks.of("compute"), 0), 0)
    rated = "gb_per_s" in moved
    evidence = {**moved, "pinned_ns_per_step": float(np.round(pinned[chosen].mean()))} if rated else {}
    advice = "Copies come from pageable memory, which is slow and blocks the host; pin the host buffers."
    if kind.startswith("DtoH"):
        advice = "Copies go to pageable memory, which is slow and blocks the host; copy to pinned buffers."
    where = next((f.call_names["pageable-copy"] for f in facts if "pageable-copy" in f.call_names), "copies")
    return [_blocking(all_ranks, "pageable-copy", stalled, lost, chosen, where, advice, evidence)]


def _synchronous(all_ranks: AllRankFacts) -> list[Finding]:
    lost = all_ranks.of("sync-copy")
    if not lost.any():
        return []
    chosen = all_ranks.culprits(lost, _CULPRIT_SHARE)
    facts = all_ranks.facts_of(chosen)
    rates = [r for f in facts for r in _rates(f).values()]
    evidence = {"gb_per_s": round(float(np.median(rates)), 2)} if rates else {}
    advice = "Synchronous copies drain the device; use asynchronous copies on their own stream, or copy less often."
    where = facts[0].call_names.get("sync-copy", "copies")
    return [_blocking(all_ranks, "sync-copy", lost, lost, chosen, where, advice, evidence)]


def _blocking(
    all_ranks: AllRankFacts,
    kind: str,
    stalled: Floats,
    lost: Floats,
    chosen: Flags,
    where: str,
    advice: str,
    evidence: dict[str, float],
) -> Finding:
    evidence |= {
        "stalled_ns_per_step": float(np.round(stalled[chosen].mean())),
        "calls": int(np.median([f.call_counts.get(kind, 0) for f in all_ranks.facts_of(chosen)])),
    }
    loss = all_ranks.loss((kind,), lost, partial(RecoveredTime.no_host, name=kind), shared=(*HOST_CLASSES, "copy"))
    return Finding(kind, loss, tuple(all_ranks.ranks[chosen].tolist()), where, advice, evidence, 0.9)


def _slow(all_ranks: AllRankFacts) -> tuple[list[Finding], Floats, dict[int, float]]:
    """Ranks with copies of one kind far slower than their peers', the cost by rank and step, and their part of it."""
    rates = {rank: _rates(facts) for rank, facts in all_ranks.facts.items()}
    worst: dict[int, tuple[float, str, float, float]] = {}
    for kind in sorted({k for r in rates.values() for k in r}):
        known = {rank: r[kind] for rank, r in rates.items() if kind in r}
        typical = float(np.median(list(known.values())))
        for rank, rate in known.items():
            if len(known) >= 3 and rate <= _SLOW_COPY * typical:
                slow = (rate / typical, kind, rate, typical)
                worst[rank] = min(worst.get(rank, slow), slow)
    classes = ("transfer", "copy", "pageable-copy", "sync-copy")
    copying = np.sum([all_ranks.of(name) for name in classes], axis=0)
    lost: Floats = all_ranks.excess(copying) * np.isin(all_ranks.ranks, list(worst))[:, None]
    chosen = all_ranks.culprits(lost)
    ranks = all_ranks.ranks[chosen].tolist()
    lost = lost * chosen[:, None]
    if not ranks:
        return [], lost, {}
    _, kind, rate, typical = worst[ranks[0]]
    evidence = {
        "gb_per_s": round(rate, 3),
        "peers_gb_per_s": round(typical, 3),
        "stalled_ns_per_step": float(np.round(lost[chosen].mean())),
    }
    advice = (
        "Copies of these ranks are far slower than their peers'; check the PCIe link's width and speed, and the NUMA"
        " placement."
    )
    shares = {r: 1 - worst[r][0] for r in ranks}
    loss = all_ranks.loss(classes, lost, lambda run: run.less_copies(shares))
    return [Finding("low-bandwidth", loss, tuple(ranks), f"{kind} copies", advice, evidence, 0.9)], lost, shares


def _free(ranks: Sequence[int], shares: Mapping[int, float], run: RecoveredTime) -> OtherOrder:
    """Copies that take no time on some ranks, against a run without the `shares` that slow links take too long.

    Copies that keep a host are findings of their own.
    """
    before, free = run.less_copies(shares), run.less_copies({**shares, **dict.fromkeys(ranks, 1.0)})
    return OtherOrder(run.replay.graph, np.where(run.keep_host[run.replay.graph.target], before, free), before)


def _largest(facts: Sequence[RankFacts], wanted: Callable[[str], bool]) -> tuple[str, dict[str, float]]:
    """The kind of copies among the wanted ones that takes longest over these ranks, and its bytes and rate."""
    moved: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for f in facts:
        for kind, size, length in zip(f.copy_kinds, f.copy_bytes.tolist(), f.copy_ns.tolist(), strict=True):
            if wanted(kind):
                moved[kind] += size
                took[kind] += length
    kind = max(sorted(took), key=lambda k: took[k], default="")
    evidence: dict[str, float] = {"bytes_per_step": round(moved[kind] / max(sum(len(f.steps) for f in facts), 1))}
    if took[kind]:
        rate, link = moved[kind] / took[kind], link_of(facts[0].device)
        evidence["gb_per_s"] = round(rate, 2)
        evidence |= {"link_gb_per_s": link[0], "link_share": round(rate / link[0], 3)} if link else {}
    return kind, evidence


def _rates(facts: RankFacts) -> dict[str, float]:
    copies = zip(facts.copy_kinds, facts.copy_bytes.tolist(), facts.copy_ns.tolist(), strict=True)
    return {kind: size / took for kind, size, took in copies if took > 0}


def _pinned_ns(facts: RankFacts) -> float:
    """What the bytes that a rank copies from and to pageable memory would take pinned, ns.

    At the rate of the rank's own pinned copies of the same direction, else at the usual rate of its link, else at their
    own rate.
    """
    rates, link = _rates(facts), link_of(facts.device)
    total = 0.0
    for kind, size, took in zip(facts.copy_kinds, facts.copy_bytes.tolist(), facts.copy_ns.tolist(), strict=True):
        if kind.endswith("pageable"):
            usual = rates.get(kind.replace("pageable", "pinned")) or (_USUAL_SHARE_OF_LINK * link[0] if link else 0.0)
            total += min(size / usual, took) if usual else took
    return total
