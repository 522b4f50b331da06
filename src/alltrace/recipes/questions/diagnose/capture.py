"""Incomplete reports: missing ranks, dropped events, no ranges, hidden kernels, clocks that differ."""

import re
from collections.abc import Sequence

import numpy as np

from alltrace.recipes.base import RunFacts
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import NO_LOSS, Finding
from alltrace.run.manifest import warnings_of
from alltrace.trace.distinct import values_by
from alltrace.trace.number_text import number_ranges

_SLOWED = 1.05
_WARNED = (
    (
        r"drop|lost|overflow|might be missing",
        "dropped events",
        "The profiler dropped events; capture less at a time, or fewer kinds of events.",
    ),
    (
        r"cut short|left out|none of its rows|have no end",
        "damaged report",
        "Part of the report could not be read; capture it again, or use the rest.",
    ),
    (r"newer", "newer report", "The report is newer than this reader; update alltrace."),
)
"""What warnings of reports say, and what to do about it."""


def find(all_ranks: AllRankFacts, run: RunFacts) -> list[Finding]:
    missing = sorted(run.manifest.missing_ranks)
    advice = "There is no report for these ranks; capture them too, or recover their reports."
    faults = [_fault(missing, "missing ranks", advice, {"missing": len(missing)})]
    for others in (_short, _missing_records, _suspects, _doubted):
        faults += others(run)
    faults += _slowdown(all_ranks, run)
    warnings = warnings_of(run.manifest, run.ranks)
    for pattern, where, advice in _WARNED:
        warned = [w.ranks for w in warnings if re.search(pattern, w.warning.text, re.IGNORECASE)]
        ranks = sorted(set().union(*warned))
        faults.append(_fault(ranks, where, advice, {"reports": len(ranks)}))
    without = [r for r, f in all_ranks.facts.items() if not f.ranges]
    advice = "No ranges were captured, so steps and code cannot be named; trace NVTX."
    faults.append(_fault(without, "no ranges", advice, {"without_ranges": len(without)}, "low"))
    hidden = [r for r, f in all_ranks.facts.items() if f.graphs]
    count = sum(all_ranks.facts[r].graphs for r in hidden)
    advice = "CUDA graphs were traced as a whole, so their kernels are hidden; capture with --cuda-graph-trace=node."
    faults.append(_fault(hidden, "graphs hide kernels", advice, {"graph_launches": count}, "low"))
    return [fault for fault in faults if fault.ranks] + _clocks(all_ranks, run)


def _fault(
    ranks: Sequence[int], where: str, advice: str, evidence: dict[str, float], severity: str = "medium"
) -> Finding:
    return Finding("capture-fault", NO_LOSS, tuple(ranks), where, advice, evidence, 1.0, severity=severity)


def _short(run: RunFacts) -> list[Finding]:
    """Ranks with another first or last step than the others, if the program numbers its steps."""
    steps = run.alignment.steps if run.alignment is not None else None
    if steps is None or not steps.num_rows:
        return []
    named = np.array([source == "range" for source in steps.column("source").to_pylist()])
    rank, step = (steps.column(c).to_numpy()[named] for c in ("rank", "step"))
    if not len(rank):
        return []
    order = np.lexsort((step, rank))
    numbers, begin = np.unique(rank[order], return_index=True)
    first, last = step[order][begin], step[order][np.append(begin[1:], len(order)) - 1]
    usual = int(np.median(first)), int(np.median(last))
    faults = []
    for late, where, name, edge, did in (
        (first > usual[0], "late start", "first_step", first, "begin after the run did; start"),
        (last < usual[1], "cut short", "first_missing_step", last + 1, "end before the run did; stop"),
    ):
        if late.any():
            evidence = {name: float(edge[late][0]), "steps": float(usual[1] - usual[0] + 1)}
            advice = f"These reports {did} the capture at the same step on all ranks."
            faults.append(_fault(tuple(numbers[late].tolist()), where, advice, evidence))
    return faults


def _slowdown(all_ranks: AllRankFacts, run: RunFacts) -> list[Finding]:
    slowdown = run.alignment.capture_slowdown if run.alignment is not None else None
    if slowdown is None or not slowdown.certain or slowdown.ratio < _SLOWED:
        return []
    advice = (
        f"Captured steps take {100 * (slowdown.ratio - 1):.0f} % longer than others, by {slowdown.source}; capture"
        " fewer kinds of events, such as no CPU samples and no OS calls, and judge shares rather than times."
    )
    evidence = {"slowdown": round(slowdown.ratio, 4), "steps": float(slowdown.inside)}
    return [_fault(tuple(all_ranks.ranks.tolist()), "capture slows the program", advice, evidence)]


def _missing_records(run: RunFacts) -> list[Finding]:
    alike = values_by(((m.what, m.place), (rank, m)) for rank in run.ranks for m in rank.missing_records)
    faults = []
    for (what, place), its in alike.items():
        evidence = {
            "lost_records": float(sum(m.number for _, m in its)),
            "of_records": float(sum(m.of for _, m in its)),
        }
        kineto = any(run.manifest.reports[n].format == "kineto" for r, _ in its for n in r.reports)
        where = _WHAT[what] + (_PLACES.get(place, "") if what != "launches" else "")
        advice = advice_on_missing(what, place, kineto=kineto)
        faults.append(_fault([r.rank for r, _ in its], where, advice, evidence))
    return faults


def _suspects(run: RunFacts) -> list[Finding]:
    its = [rank for rank in run.ranks if rank.rows.get("suspects")]
    if not its:
        return []
    advice = (
        "These rows have times or sizes that cannot be, and count in nothing; `select * from suspects` lists them."
        " Record these ranks again, or report it to the profiler's authors."
    )
    suspects = sum(rank.rows["suspects"] for rank in its)
    share = suspects / sum(sum(rank.rows.values()) for rank in its)
    evidence = {"suspect_rows": float(suspects), "suspect_share": share}
    return [_fault([rank.rank for rank in its], "impossible records", advice, evidence)]


def _doubted(run: RunFacts) -> list[Finding]:
    reasons = {rank.rank: rank.doubt for rank in run.ranks if rank.doubt is not None}
    reasons |= {} if run.alignment is None else run.alignment.doubted
    doubt = "Of rank {} {}, so its times are compared with no other rank's; record it again."
    return [
        _fault(its, "times in doubt", doubt.format(number_ranges(its), reason), {"reports": len(its)})
        for reason, its in values_by((reason, rank) for rank, reason in reasons.items()).items()
    ]


_PLACES = {"start": " at the start", "end": " from some moment on", "spread": " all over the capture"}
_WHAT = {
    "kernels": "launches without their kernel",
    "launches": "kernels without their launch",
    "graphs": "graphs without what they ran",
}


_ADVICE = {
    "graphs": (
        "The work of these graphs is not in the report; capture with --cuda-graph-trace=node, or =graph for whole"
        " graphs."
    ),
    "launches": ("Host calls are missing, so work cannot be assigned to its launches; capture fewer kinds of events."),
    "everywhere": (
        "The report has calls but no kernels; check that CUDA activity is traced and that performance counters are"
        " permitted."
    ),
    "start of kineto": (
        "PyTorch's profiler drops the first kernels where CUPTI of CUDA 12.6 to 13.0 stamps them before the capture"
        " (pytorch/pytorch#192021): add warm-up steps to its schedule, or update CUDA; rely on the later steps."
    ),
    "end": (
        "The profiler stopped recording kernels while the program continued: its buffers were full; capture less at a"
        " time."
    ),
}


def advice_on_missing(what: str, place: str, *, kineto: bool) -> str:
    """What to do about missing records (`alltrace.run.manifest.MissingRecords`), with the causes that are known."""
    lost = (
        "The profiler lost kernels, as it does when its buffers are full; capture less at a time, or flush its buffers"
        " more often."
    )
    return _ADVICE.get(what) or _ADVICE.get(f"{place} of kineto" if place == "start" and kineto else place, lost)


def _clocks(all_ranks: AllRankFacts, run: RunFacts) -> list[Finding]:
    components = values_by((clock.component, clock.host) for clock in run.manifest.clocks)
    if len(components) < 2:
        return []
    largest = max(components.values(), key=len)
    apart = {h for c in components.values() if c is not largest for h in c}
    ranks = [r for r, h in all_ranks.hosts.items() if h in apart]
    advice = (
        "No collective connects these hosts with the others, so their clocks are known only from UTC stamps, "
        "which are off by milliseconds."
    )
    return [_fault(ranks, "clocks not connected", advice, {"components": len(components)}, "low")]
