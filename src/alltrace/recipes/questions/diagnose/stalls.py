"""Devices with single launches that stall.

A launch stalls if it takes far longer than the longest launches of the same work usually take, on any rank, and the
rest of its step does not. Stalls that a few ranks have are those of their devices; stalls of all ranks are none, for
their work then varies.
"""

from collections.abc import Mapping

import numpy as np

from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.distinct import distinct_rows, sorted_groups

_STALL_NS = 1_000_000  # a launch that takes less than this longer than usual does not stall

_STALL_TIMES, _STALL_DEVIATIONS = 3.0, 10.0
"""It takes this many times as long as usual, and is this many deviations away."""

_FACTOR_DEVIATIONS = 5.0  # and by factors this many: what varies by large factors is sometimes that long

_RARELY = 1 / 3  # a work that takes longer in more of the steps is slow, and does not stall

_NORMAL = 1.4826
_FEW, _OWNED = 0.25, 0.75  # stalls belong to a quarter of the ranks, or one, if these have three quarters of the time


def stalls(all_ranks: AllRankFacts) -> Mapping[int, Int64]:
    """By rank, what stalled launches took beyond the usual, ns, (its steps, its works); of few ranks, else none."""
    facts = all_ranks.facts
    sizes = [f.work.longest_ns.shape for f in facts.values()]
    longest = np.concatenate([f.work.longest_ns.ravel() for f in facts.values()])
    ran = longest > 0
    if not ran.any():
        return {}
    code = distinct_rows(*np.concatenate([f.work.works for f in facts.values()]).T)[1]
    parts = np.split(code, np.cumsum([k for _, k in sizes])[:-1])
    of_cell = np.concatenate([np.broadcast_to(codes, size).ravel() for codes, size in zip(parts, sizes, strict=True)])
    usual, deviation = _middles(longest[ran].astype(np.float64), of_cell[ran], int(code.max()) + 1)
    _, factor = _middles(np.log(longest[ran]), of_cell[ran], int(code.max()) + 1)
    beyond = longest - usual[of_cell]
    stalled = ran & (beyond >= _STALL_NS) & (longest >= _STALL_TIMES * usual[of_cell])
    stalled &= beyond >= _STALL_DEVIATIONS * deviation[of_cell]
    stalled &= longest >= usual[of_cell] * np.exp(_FACTOR_DEVIATIONS * factor[of_cell])
    stalled_ns = np.where(stalled, beyond, 0).astype(np.int64)
    split = np.split(stalled_ns, np.cumsum([n * k for n, k in sizes])[:-1])
    of_rank = {rank: own.reshape(size) for rank, own, size in zip(facts, split, sizes, strict=True)}
    of_rank = {
        rank: np.where((own > 0).mean(axis=0) <= _RARELY, own, 0) if len(own) else own for rank, own in of_rank.items()
    }
    totals = np.array([own.sum() for own in of_rank.values()], np.float64)
    order = np.argsort(-totals, kind="stable")
    if not totals.any():
        return {}
    few = int(np.searchsorted(np.cumsum(totals[order]), _OWNED * totals.sum())) + 1
    if few > max(_FEW * len(totals), 1):
        return {}
    least = totals[order[few - 1]]
    return {rank: own for rank, own in of_rank.items() if own.any() and own.sum() >= least}


def _middles(values: Floats, group: Int64, groups: int) -> tuple[Floats, Floats]:
    """Of each group of values the median, and the deviation by the median of what they differ from it."""

    def medians(of: Floats) -> Floats:
        ordered, first, counts = sorted_groups(of, group, groups)
        return np.where(counts > 0, ordered[np.minimum(first + counts // 2, len(of) - 1)], np.inf)

    middle = medians(values)
    return middle, _NORMAL * medians(np.abs(values - middle[group]))
