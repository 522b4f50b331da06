"""Judges what is found of uneven work and of a rank that is late at a barrier: kind, culprits, one card, loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.programs.draw_uneven import LATE, TWIN, UNEVEN
from benchmarks.programs.losses import measure, truth_of
from benchmarks.programs.model import Without
from benchmarks.programs.score import CLOSE, NO_LOSS, SAME_KIND, culprits_of, described, judge, ranks_right
from benchmarks.programs.score_causes import CauseJudgement, Family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.programs.losses import Truth
    from benchmarks.programs.model import Cause, Program

MARKS = ("first finding", "any finding", "culprits", "one card", "a loss", f"loss within {100 * CLOSE:g} %")
FAMILY = Family((*UNEVEN, LATE), TWIN, MARKS, MARKS, "a wrong alarm")

LATE_KINDS = {
    "logging": {"host-pause", "data-stall", "straggler", "imbalance"},
    "evaluation": {"host-pause", "data-stall", "straggler", "imbalance"},
    "checkpoint": {"host-pause", "data-stall", "straggler", "imbalance", "sync-copy"},  # of what it writes
    "device": {"straggler", "imbalance"},
}
"""Kinds of findings that are right about a late rank, by what it does: work of its host, or of its device."""

OF_A_RANK = {"imbalance", "straggler", "slow-host", "throttling", "device-stall"}
"""Kinds that name a rank; a finding of one of them about a culprit is a card of its cause."""

OF_VICTIMS = ("sync", "exposed-communication", "slow-communicator")
"""Kinds that the ranks which wait would have."""


def truth_of_uneven(program: Program, base_ns: int | None = None) -> Truth:
    """As `truth_of`; what slightly different sequences and tokens cost counts as `imbalance` and `jitter`."""
    truth = truth_of(program, base_ns)
    if not program.lengths and not program.tokens:
        return truth
    causes = Without(frozenset(range(len(program.causes))))
    natural = (measure(program, causes) - measure(replace(program, lengths=(), tokens=()), causes)) / truth.judged_ns
    more = max(0.0, natural)
    kinds = truth.kinds | {kind: truth.kinds.get(kind, 0.0) + more for kind in ("imbalance", "jitter")}
    return replace(truth, kinds=kinds)


def accepted_kinds(cause: Cause) -> set[str]:
    """Kinds of findings that are right about uneven work or a late rank."""
    return LATE_KINDS[cause.variant.partition(":")[0]] if cause.kind == LATE else {cause.kind}


def judge_uneven(
    seed: int, kind: str, program: Program, truth: Truth, findings: Sequence[Mapping[str, Any]], least: float
) -> CauseJudgement:
    """What the findings of a program are worth.

    The first finding is right if it has a kind of the cause; or, where the program loses more by itself, the kind of
    that. The cause's finding is the first one of such a kind that names the culprits, else the first of such a kind.

    Args:
        seed: Of the program.
        kind: What was planted, or `healthy-twin`.
        program: The program.
        truth: What it loses.
        findings: Rows of `diagnose`.
        least: The share below which a cause does not count.
    """
    share = truth.causes[0] if program.causes else 0.0
    words = f"{described(program)}, {program.steps} steps"
    judged = CauseJudgement(seed, kind, words, share, not program.causes or share >= least)
    about = [{**f, "kind": SAME_KIND.get(f["kind"], f["kind"])} for f in findings if f["kind"] != NO_LOSS]
    judged.findings = [{k: f[k] for k in ("kind", "lost_share", "ranks")} for f in about]
    if not program.causes:
        judged.alarms = judge(seed, program, truth, [dict(f) for f in findings], least).false_alarms
        return judged
    cause = program.causes[0]
    accepted = accepted_kinds(cause)
    judged.truth = f"{cause.variant} {100 * share:.1f} % ranks {[*cause.ranks]}"
    judged.alarms = [
        f["kind"]
        for f in about
        if f["kind"] in OF_VICTIMS and (f["lost_share"] or 0) >= max(least, 2 * truth.kinds.get(f["kind"], 0.0))
    ]
    own = [f for f in about if f["kind"] in accepted]
    same = next(
        (f for f in own if ranks_right(program, cause, f["kind"], culprits_of(f, program.view.devices))),
        own[0] if own else None,
    )
    costliest = truth.right(least)
    first = costliest | accepted if cause.kind in costliest else costliest
    loss, most = same["lost_share"] if same else None, max(share, truth.kinds[cause.kind])
    holds = (
        bool(about) and about[0]["kind"] in first,
        same is not None,
        same is not None and ranks_right(program, cause, same["kind"], culprits_of(same, program.view.devices)),
        sum(_is_card(program, cause, f) and not _is_natural(truth, cause, f) for f in about) == 1,
        loss is not None,
        loss is not None and (1 - CLOSE) * share <= loss <= (1 + CLOSE) * most,
    )
    judged.right = [mark for mark, held in zip(MARKS, holds, strict=True) if held]
    return judged


def _is_card(program: Program, cause: Cause, finding: Mapping[str, Any]) -> bool:
    """Whether a finding is about the cause: of a right kind or a rank, and not about all ranks."""
    if finding["kind"] not in accepted_kinds(cause) | OF_A_RANK:
        return False
    devices = program.view.devices
    culprits, named = {rank // devices for rank in cause.ranks}, set(finding["ranks"] or ())
    everyone = program.grid.ranks // devices
    if len(culprits) == everyone:
        return finding["kind"] in accepted_kinds(cause)
    return bool(named & culprits) and len(named) < everyone


def _is_natural(truth: Truth, cause: Cause, finding: Mapping[str, Any]) -> bool:
    """Whether a finding states what the program loses to its kind by itself, as tokens that differ a little do."""
    costs = truth.kinds.get(finding["kind"], 0.0)
    return finding["kind"] != cause.kind and 0 < (finding["lost_share"] or 0.0) <= (1 + CLOSE) * costs
