"""Ranks that compute longer than others: slow devices, slow hosts, and uneven work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alltrace.recipes.questions.diagnose.finding import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts

_LEAST_EXCESS = 0.03
"""A rank's step stands out when its compute time exceeds the others' by this share of the step."""

_CLEAR = 1.1
"""Ranks that are slower by this factor are told even where something else, such as slow launches, hides it for now."""


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`straggler`, `slow-host` or `imbalance`: compute that exceeds the lower quartile of all ranks."""
    if len(all_ranks.ranks) < 2 or not len(all_ranks.steps):
        return []
    compute = all_ranks.of("compute")
    lengths = np.nan_to_num(all_ranks.times.sum(axis=2))
    excess = all_ranks.excess(compute)
    excess[excess < _LEAST_EXCESS * np.median(lengths)] = 0
    if not excess.any():
        return []
    slow, more = _factors(all_ranks)
    uneven = (more - 1) > (slow - 1)
    found = []
    for kind, chosen in (("slow", ~uneven), ("uneven", uneven)):
        lost = excess * chosen[:, None]
        ranks = all_ranks.ranks[all_ranks.culprits(lost) & chosen]
        if not len(ranks):
            continue
        lost = lost * np.isin(all_ranks.ranks, ranks)[:, None]
        hosts = all_ranks.hosts_of(ranks.tolist())
        whole = sum(1 for r in all_ranks.hosts if all_ranks.hosts[r] in hosts)
        by_host = (
            kind == "slow" and bool(hosts) and whole == len(ranks) and whole > len(hosts) and len(set(all_ranks.hosts.values())) > 1
        )
        name = "imbalance" if kind == "uneven" else "slow-host" if by_host else "straggler"
        found.append(_finding(all_ranks, name, lost, ranks, hosts, slow, more))
    return found


def _finding(
    all_ranks: AllRankFacts,
    kind: str,
    lost: NDArray[np.float64],
    ranks: NDArray[np.int64],
    hosts: tuple[str, ...],
    slow: NDArray[np.float64],
    more: NDArray[np.float64],
) -> Finding:
    mine = np.isin(all_ranks.ranks, ranks)
    affected = (lost[mine] > 0).sum(axis=1)
    evidence = {
        "slowdown": round(float(np.median(slow[mine])), 3),
        "work_ratio": round(float(np.median(more[mine])), 3),
        "excess_ns_per_step": float(np.round(lost[mine].sum() / max(len(all_ranks.steps), 1) / len(ranks))),
        "steps_affected": int(affected.max()),
        "steps": len(all_ranks.steps),
    }
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8].tolist()))}"
    advice = {
        "straggler": f"The kernels of {named} take longer than the same ones elsewhere; look at that GPU's clocks and "
        "temperature, and drain it if it stays slow.",
        "slow-host": f"All ranks of {', '.join(hosts)} compute more slowly than others; check its cooling and other jobs.",
        "imbalance": f"{named[0].upper()}{named[1:]} runs more kernels than others, which wait; spread the work evenly.",
    }[kind]
    compute = all_ranks.of("compute")
    share = np.divide(lost, compute, out=np.zeros_like(lost), where=compute > 0)
    steps = None if all_ranks.whole_run else all_ranks.steps.tolist()
    loss = all_ranks.loss(("compute",), lost, lambda run: run.less_compute(all_ranks.ranks, steps, share))
    where = _where(all_ranks, mine)
    clear = evidence["slowdown"] >= _CLEAR and affected.max() >= 0.5 * len(all_ranks.steps)
    culprits = tuple(ranks.tolist())
    return Finding(kind, loss, culprits, where, advice, evidence, 0.9, hosts, told=clear)


def _factors(all_ranks: AllRankFacts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each rank how much longer its kernels take than the same elsewhere, and how much more of them it has."""
    means: dict[int, list[float]] = {}
    for facts in all_ranks.facts.values():
        for ident, count, total in zip(
            facts.kernel_names.tolist(), facts.kernel_counts.tolist(), facts.kernel_ns.tolist(), strict=True
        ):
            means.setdefault(ident, []).append(total / count)
    typical = {ident: float(np.percentile(values, 25, method="lower")) for ident, values in means.items()}
    slow, expected = np.ones(len(all_ranks.ranks)), np.zeros(len(all_ranks.ranks))
    for row, facts in enumerate(all_ranks.facts.values()):
        usual = float(sum(c * typical[i] for i, c in zip(facts.kernel_names.tolist(), facts.kernel_counts.tolist(), strict=True)))
        slow[row] = facts.kernel_ns.sum() / usual if usual else 1.0
        expected[row] = usual / max(len(facts.steps), 1)
    base = float(np.percentile(expected, 25, method="lower"))
    return slow, expected / base if base else np.ones(len(all_ranks.ranks))


def _where(all_ranks: AllRankFacts, mine: NDArray[np.bool_]) -> str:
    """The kernel that the culprits spend most time in."""
    totals: dict[int, int] = {}
    for chosen, facts in zip(mine, all_ranks.facts.values(), strict=True):
        if chosen:
            for ident, total in zip(facts.kernel_names.tolist(), facts.kernel_ns.tolist(), strict=True):
                totals[ident] = totals.get(ident, 0) + total
    return all_ranks.name(max(totals, key=lambda i: (totals[i], -i))) if totals else ""
