"""Jobs that become slower: what all ranks do takes longer from a step on, as with a leak or longer sequences."""

from collections.abc import Sequence

import numpy as np

from alltrace.recipes.analysis.change_in_time import later_part
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import MEDIUM_SHARE, Finding
from alltrace.recipes.questions.diagnose.gaps import CLASSES, HOST_CLASSES
from alltrace.trace.arrays import Flags, Floats

_LEAST_GROWTH = MEDIUM_SHARE

_SAME_TIME = 2  # changes this many steps apart can be one
_MOSTLY = 0.6  # a class of which later steps lose this share is what grows

# what waits for other ranks, and what takes time in some steps by its nature, which is a finding of its own
_NOT_OWN = ("communication", "compilation", "module-loading")

_ADVICE = {
    "compute": "kernels take longer, or are more",
    "data": "loading takes longer",
    "allocation": "allocations take longer, as with a leak or a fragmented allocator",
    "host-pause": "the host pauses for longer, as with garbage collection of more objects",
    "launch": "the host launches more slowly, as with longer lists or more hooks",
}


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`regression`, if the own time of three quarters of the ranks grows; a rank that alone becomes slower is none."""
    if all_ranks.whole_run or not len(all_ranks.steps):
        return []
    times = np.where(np.isnan(all_ranks.times[:, :, :1]), np.nan, all_ranks.times)
    own = np.nansum(np.delete(times, [CLASSES.index(name) for name in _NOT_OWN], axis=2), axis=2)
    own[np.isnan(times[:, :, 0])] = np.nan
    usual, late = _later(own)
    if late is None:  # a start-up that keeps the host hides kernels that become longer soon after it
        whole = usual
        usual, late = _later(times[:, :, CLASSES.index("compute")])
        if late is not None and np.median(whole[late]) <= whole[~late].min():
            return []
    if late is None:
        return []
    there = ~np.isnan(own)
    both = times[there[:, late].any(axis=1) & there[:, ~late].any(axis=1)]  # a report can have steps of one part alone
    grown = np.zeros(len(CLASSES))
    if len(both):
        grown = np.nanpercentile(np.nanmean(both[:, late], axis=1) - np.nanmean(both[:, ~late], axis=1), 25, axis=0)
    growth = {name: ns for name, ns in zip(CLASSES, grown.tolist(), strict=True) if name not in _NOT_OWN}
    grows = max(growth, key=lambda name: growth[name])
    values = all_ranks.of(grows)
    before = np.percentile(values[:, ~late], 50, axis=1, keepdims=True, method="lower")
    lost = np.where(late, np.maximum(values - before, 0.0), 0.0)
    change = all_ranks.less_compute(lost) if grows == "compute" else None
    loss = all_ranks.loss((grows,), lost, change, shared=HOST_CLASSES if grows in HOST_CLASSES else ())
    first = int(late.argmax())
    evidence = {
        "slowdown": round(float(usual[late].mean() / usual[~late].mean()), 3),
        "since_step": int(all_ranks.steps[first]),
        "excess_ns_per_step": float(np.round(growth[grows])),
        "steps_affected": int(late.sum()),
        "steps": len(all_ranks.steps),
    }
    what = _ADVICE.get(grows, f"more time goes to {grows}")
    advice = (
        f"From step {all_ranks.steps[first]} on every rank takes longer: {what}; compare "
        "steps before and after it, and look for what grows: sequence lengths, lists, caches, memory in use."
    )
    ranks = tuple(all_ranks.ranks.tolist())
    where = _kernel(all_ranks, late) if grows == "compute" else grows
    return [Finding("regression", loss, ranks, where, advice, evidence, 0.85)]


def _later(values: Floats) -> tuple[Floats, Flags | None]:
    """What three quarters of the ranks take at least in each step, and the later steps in which that is more."""
    usual = np.nanpercentile(values, 25, axis=0, method="lower")
    middle = float(np.median(usual))
    return usual, later_part(usual / middle, _LEAST_GROWTH) if middle > 0 else None


def resolved(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with one for each change: a device slower then is no regression, and a class is its cause.

    Time of a host's class that only later steps have is lost to the regression, and else to the class.
    """
    left = list(findings)
    for finding in [f for f in findings if f.kind == "regression"]:
        growth, since = finding.evidence["slowdown"] - 1, finding.evidence["since_step"]
        throttled = [f for f in findings if f.kind == "throttling"]
        changes = [f for f in throttled if abs(f.evidence["since_step"] - since) <= _SAME_TIME]
        if any(f.evidence["slowdown"] - 1 >= growth / 2 for f in changes):
            left.remove(finding)
            continue
        left = [f for f in left if f not in changes]
        grown = finding.loss.classes[:1]
        left = [
            f
            for f in left
            if f.kind in ("regression", "jitter")
            or f.loss.classes[:1] != grown
            or grown == ("compute",)
            or finding.loss.estimate_ns < _MOSTLY * f.loss.estimate_ns
        ]
    return left


def _kernel(all_ranks: AllRankFacts, late: Flags) -> str:
    growth = []
    for facts in all_ranks.facts.values():
        judged, at = all_ranks.judged(facts)
        sums = [facts.work.sums_ns[judged[part]] for part in (late[at], ~late[at])]
        if all(len(s) for s in sums):
            growth.append((facts.work.names, sums[0].mean(axis=0) - sums[1].mean(axis=0)))
    return all_ranks.name_of_most(growth)
