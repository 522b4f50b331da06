"""Copies that hold up the device: from pageable memory, synchronous, or over a slow link."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
    from alltrace.recipes.questions.diagnose.rank_facts import RankFacts
    from alltrace.recipes.questions.diagnose.recovered_time import RecoveredTime

_SLOW_COPY = 0.5
"""A rank's copies are slow when they reach at most this share of its peers' median rate."""


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`pageable-copy`, `sync-copy` and, of copies, `low-bandwidth`."""
    return [*_blocking(all_ranks), *_slow(all_ranks)]


def _blocking(all_ranks: AllRankFacts) -> list[Finding]:
    found = []
    for name, advice in (
        ("pageable-copy", "Copies come from pageable memory, which is slow and blocks the host; pin the host buffers."),
        ("sync-copy", "Synchronous copies drain the device; use asynchronous copies on a stream of their own, or copy less often."),
    ):
        lost = all_ranks.of(name)
        if not lost.any():
            continue
        chosen = all_ranks.culprits(lost, 0.25)
        facts = [f for f, c in zip(all_ranks.facts.values(), chosen, strict=True) if c]
        evidence = {
            "stalled_ns_per_step": float(np.round(lost[chosen].mean())),
            "calls": int(np.median([f.call_counts.get(name, 0) for f in facts])),
        }
        rates = [r for f in facts for k, r in _rates(f).items() if name != "pageable-copy" or k.endswith("pageable")]
        if rates:
            evidence["gb_per_s"] = round(float(np.median(rates)), 2)
        ranks = all_ranks.ranks[chosen].tolist()
        where = facts[0].call_names.get(name, "copies")
        loss = all_ranks.loss((name,), lost, partial(_without, name), shared=(*HOST_CLASSES, "copy"))
        hosts = all_ranks.hosts_of(ranks)
        found.append(Finding(name, loss, tuple(ranks), where, advice, evidence, 0.9, hosts))
    return found


def _slow(all_ranks: AllRankFacts) -> list[Finding]:
    """Ranks whose copies of one kind are far slower than their peers'."""
    rates = {rank: _rates(facts) for rank, facts in all_ranks.facts.items()}
    kinds = sorted({k for r in rates.values() for k in r})
    worst: dict[int, tuple[float, str, float, float]] = {}
    for kind in kinds:
        known = {rank: r[kind] for rank, r in rates.items() if kind in r}
        if len(known) < 3:
            continue
        typical = float(np.median(list(known.values())))
        for rank, rate in known.items():
            if rate <= _SLOW_COPY * typical and (rank not in worst or rate / typical < worst[rank][0]):
                worst[rank] = (rate / typical, kind, rate, typical)
    if not worst:
        return []
    classes = ("copy", "pageable-copy", "sync-copy")
    excess: NDArray[np.float64] = all_ranks.excess(np.sum([all_ranks.of(name) for name in classes], axis=0))
    lost = excess * np.isin(all_ranks.ranks, list(worst))[:, None]
    chosen = all_ranks.culprits(lost)
    ranks = all_ranks.ranks[chosen].tolist()
    if not ranks:
        return []
    _, kind, rate, typical = worst[ranks[0]]
    evidence = {
        "gb_per_s": round(rate, 3),
        "peers_gb_per_s": round(typical, 3),
        "stalled_ns_per_step": float(np.round(lost[chosen].mean())),
    }
    advice = (
        "Copies of these ranks are far slower than their peers'; check the PCIe link's width and speed, and the NUMA placement."
    )
    loss = all_ranks.loss(classes, lost * chosen[:, None], lambda run: run.less_copies({r: 1 - worst[r][0] for r in ranks}))
    hosts = all_ranks.hosts_of(ranks)
    where = f"{kind} copies"
    return [Finding("low-bandwidth", loss, tuple(ranks), where, advice, evidence, 0.9, hosts)]


def _without(name: str, run: RecoveredTime) -> NDArray[np.int64] | None:
    return run.no_host(name)


def _rates(facts: RankFacts) -> dict[str, float]:
    """GB/s of the large copies of each kind."""
    copies = zip(facts.copy_kinds, facts.copy_bytes.tolist(), facts.copy_ns.tolist(), strict=True)
    return {kind: size / took for kind, size, took in copies if took > 0}
