"""How long each rank takes for the same work as its peers, and how much work it has, in each step.

Launches of one kernel with one launch configuration are the same work. What a work takes elsewhere is the lower
quartile over the ranks of their mean durations, which more than half of the ranks may exceed. A rank's ratio in a step
is the time of its works by what these take elsewhere: above 1 if its device is slower. What remains of its compute time
without that is its own work.
"""

from dataclasses import dataclass, replace

import numpy as np

from alltrace.recipes.analysis.kernel_families import family_of
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.kernel_work import PIECES
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.distinct import distinct_rows, sorted_groups

_LEAST_COVERED = 0.5  # a ratio is known where works that other ranks have too take this share of the time in kernels


@dataclass(frozen=True)
class SameWork:
    """Ranks and steps in the order of `AllRankFacts`; a run without steps has `PIECES` instead, (ranks, pieces)."""

    ratio: Floats  # time for the same work by what it takes elsewhere, (ranks, pieces); NaN if not known
    kernel_ns: Floats  # time in kernels, (ranks, pieces)
    own: Floats  # compute time at the peers' pace, ns, (ranks, steps); NaN if a rank lacks a step
    typical_ns: tuple[Floats, ...]  # by rank, the time of each of its works on other ranks; NaN if no other rank has it

    def lost(self, share: Floats, compute: Floats) -> Floats:
        """What a share of the kernels' time, (ranks, pieces), is of each step's compute time, (ranks, steps), ns."""
        if share.shape == compute.shape:
            return share * compute
        whole = self.kernel_ns.sum(axis=1, keepdims=True)
        lost: Floats = (share * self.kernel_ns).sum(axis=1, keepdims=True) / np.where(whole > 0, whole, 1.0) * compute
        return lost


def same_work(all_ranks: AllRankFacts) -> SameWork:
    """The ratio and the own work of each rank in each step; without a ratio, own work is by its median."""
    ranks, pieces = len(all_ranks.ranks), PIECES if all_ranks.whole_run else len(all_ranks.steps)
    typical = _typical(all_ranks)
    ratio, kernel_ns = np.full((ranks, pieces), np.nan), np.zeros((ranks, pieces))
    compute = all_ranks.of("compute")
    for row, (facts, usual) in enumerate(zip(all_ranks.facts.values(), typical, strict=True)):
        rows, places = (np.arange(pieces),) * 2 if all_ranks.whole_run else all_ranks.judged(facts)
        kernel_ns[row, places] = facts.work.total_ns[rows]
        known = ~np.isnan(usual)
        took = facts.work.sums_ns[rows][:, known].sum(axis=1)
        expected = facts.work.counts[rows][:, known] @ usual[known]
        enough = (took >= _LEAST_COVERED * facts.work.total_ns[rows]) & (expected > 0)
        ratio[row, places[enough]] = took[enough] / expected[enough]
    work = SameWork(ratio, kernel_ns, np.where(np.isnan(all_ranks.times[:, :, 0]), np.nan, compute), typical)
    known = ~np.isnan(ratio)
    of_rank = zip(ratio, known, strict=True)
    level = np.array([float(np.median(its[there])) if 2 * there.sum() >= pieces else 1.0 for its, there in of_rank])
    slower = work.lost(1 - 1 / np.where(known, ratio, level[:, None]), compute)
    return replace(work, own=work.own - slower)


def breadth(all_ranks: AllRankFacts, work: SameWork, row: int) -> float:
    """The share of like kernels, by time, that take longer on a rank, where some do.

    A slower device runs all matrix products, or all that moves memory, longer. If some of a family take longer and
    others do not, their data differ: persistent kernels, for instance, have one grid for any number of tokens.
    """
    facts = list(all_ranks.facts.values())[row]
    usual = work.typical_ns[row]
    counts, sums = facts.work.counts.sum(axis=0), facts.work.sums_ns.sum(axis=0)
    known = ~np.isnan(usual) & (counts > 0)
    expected, took = counts[known] * usual[known], sums[known]
    longer = np.maximum(took - expected, 0)
    ratio = took / np.maximum(expected, 1)
    least = 1 + 0.5 * max(took.sum() / max(expected.sum(), 1) - 1, 0)
    families = [family_of(all_ranks.name(n)).family for n in facts.work.names[known].tolist()]
    share = 0.0
    for family in sorted(set(families)):
        mine = np.array([f == family for f in families])
        affected = expected[mine][ratio[mine] >= least].sum() / max(expected[mine].sum(), 1)
        share += affected * longer[mine].sum()
    return float(share / longer.sum()) if longer.sum() else 1.0


def most_delayed(all_ranks: AllRankFacts, work: SameWork, rows: Int64) -> str:
    """The kernel that takes most time beyond what it takes elsewhere, on the ranks of these rows."""
    own = [(list(all_ranks.facts.values())[row].work, work.typical_ns[row]) for row in rows.tolist()]
    return all_ranks.name_of_most(
        (w.names, np.nan_to_num(w.sums_ns.sum(axis=0) - w.counts.sum(axis=0) * usual_ns)) for w, usual_ns in own
    )


def most_added(all_ranks: AllRankFacts, rows: Int64) -> tuple[str, float]:
    """The kernel that takes most time beyond the lower quartile of all ranks, on these rows' ranks, at the peers' pace.

    And the share of all such time that is in kernels which three quarters of the ranks do not have, 0 to 1.
    """
    works = [facts.work for facts in all_ranks.facts.values()]
    names, at = np.unique(np.concatenate([w.names for w in works]), return_inverse=True)
    took_ns = [
        np.where(np.isnan(usual_ns), w.sums_ns.sum(axis=0), usual_ns * w.counts.sum(axis=0))
        for w, usual_ns in zip(works, _typical(all_ranks), strict=True)
    ]
    totals = np.zeros((len(works), len(names)))
    np.add.at(totals, (np.repeat(np.arange(len(works)), [len(t) for t in took_ns]), at), np.concatenate(took_ns))
    mine = totals[rows].sum(axis=0)
    usual = np.percentile(totals, 25, axis=0, method="lower") * len(rows)
    beyond = np.maximum(mine - usual, 0)
    alone = float(beyond[usual == 0].sum() / max(beyond.sum(), 1.0))
    return all_ranks.name_of_most([(names[mine > 0], (mine - usual)[mine > 0])]), alone


def _typical(all_ranks: AllRankFacts) -> tuple[Floats, ...]:
    """By rank, what each of its works takes elsewhere; NaN for a work that one rank alone has."""
    given = list(all_ranks.facts.values())
    sizes = [len(f.work.works) for f in given]
    if not sum(sizes):
        return tuple(np.empty(0) for _ in sizes)
    works = np.concatenate([f.work.works for f in given])
    counts = np.concatenate([f.work.counts.sum(axis=0, dtype=np.int64) for f in given])
    mean = np.concatenate([f.work.sums_ns.sum(axis=0) for f in given]) / np.maximum(counts, 1)
    code = distinct_rows(*works.T)[1]
    ordered, begins, ranks = sorted_groups(mean, code, int(code.max()) + 1)
    typical = np.where(ranks > 1, ordered[begins + (ranks - 1) // 4], np.nan)[code]
    return tuple(np.split(typical, np.cumsum(sizes)[:-1]))
