"""Ranks that all others wait for without a visible cause: neither their kernels nor their host differ."""

from collections.abc import Sequence

import numpy as np

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import LEAST_SHARE, Finding
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.trace.distinct import rows_by

_LEAST_EXCESS = 0.01  # a rank differs if its own time exceeds the others' by this share of the step
_LEAST_LAST = 0.5  # it must arrive last at this share of the operations at which somebody waits


_HELD = 0.5  # what a rank takes longer is known if the classes of a finding about it hold this share of that


def find(all_ranks: AllRankFacts, others: Sequence[Finding], known: Sequence[Finding] = ()) -> list[Finding]:
    """`straggler` for each rank that arrives last at most operations and that no finding is about.

    `others`: The findings that are reported; ranks that they name among a few are reported. `known`: All findings, also
    those that cost nothing: if one holds what a rank takes longer, it is not for no reason.
    """
    members = all_ranks.members
    if members is None or not len(members.rank) or len(all_ranks.ranks) < 3 or not len(all_ranks.steps):
        return []
    few = len(all_ranks.ranks) / 2
    told = {r for f in others if len(f.ranks) <= few for r in f.ranks}
    excess = all_ranks.excess(all_ranks.own)
    length = float(np.median(np.nan_to_num(all_ranks.times.sum(axis=2))))
    # an operation counts if some wait at it is larger than an error of the clocks
    late = members.fact & (members.last_arrival > members.start)
    number = np.repeat(np.arange(len(members.firsts)), np.diff(np.append(members.firsts, len(members.rank))))
    waited_for = np.bincount(number, late) > 0
    last = waited_for[number] & (members.start >= members.last_arrival)
    operations = max(int(waited_for.sum()), 1)
    lasts = np.flatnonzero(last)
    by_rank = rows_by(members.rank[lasts])
    findings = []
    for row, rank in enumerate(all_ranks.ranks.tolist()):
        mine = lasts[by_rank[rank]] if rank in by_rank else lasts[:0]
        share = len(mine) / operations
        if any(rank in f.ranks and len(f.ranks) <= few and f.loss.own_ns >= _HELD * excess[row].sum() for f in known):
            continue
        if rank in told or share < _LEAST_LAST or np.median(excess[row]) < _LEAST_EXCESS * length:
            continue
        lost = np.zeros_like(excess)
        lost[row] = excess[row]
        ops, counts = np.unique(members.op[mine].astype(str), return_counts=True)
        evidence = {
            "late_ns_per_step": float(np.round(excess[row].mean())),
            "last_share": round(share, 3),
            "steps_affected": int((excess[row] >= _LEAST_EXCESS * length).sum()),
            "steps": len(all_ranks.steps),
        }
        advice = (
            f"Rank {rank} arrives last although its kernels and host take no longer; check what its device waits for"
            " before it communicates."
        )
        loss = all_ranks.loss([name for name in CLASSES if name != "communication"], lost)
        told_anyway = loss.estimate_ns >= LEAST_SHARE * all_ranks.span_ns  # even if losses of all ranks hold its time
        where = str(ops[counts.argmax()])
        findings.append(Finding("straggler", loss, (rank,), where, advice, evidence, 0.7, told=told_anyway))
    return findings
