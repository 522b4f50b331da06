"""Judges findings of causes that change in time: kind, culprits, first step, loss; healthy programs have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.programs.draw_changes import CHANGES, HEALTHY, onsets_of
from benchmarks.programs.score import CLOSE, NO_LOSS, culprits_of, described, ranks_right
from benchmarks.programs.score_causes import CauseJudgement, Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs.model import Program

ONSET_WITHIN = 2
"""Steps by which the first step of a finding may be wrong."""


MARKS = (
    "first finding",
    "any finding",
    "culprits",
    f"onset within {ONSET_WITHIN} steps",
    f"loss within {100 * CLOSE:g} %",
)


FAMILY = Family(CHANGES, HEALTHY, MARKS, MARKS, "another of these kinds")


def judge_change(
    seed: int, kind: str, program: Program, true_share: float, findings: Sequence[dict[str, Any]], least: float
) -> CauseJudgement:
    """What the findings of a program are worth.

    Args:
        seed: Of the program.
        kind: What was planted, or `healthy`.
        program: The program.
        true_share: Of the judged time, what is gained without the cause.
        findings: Rows of `diagnose`.
        least: The share below which a cause does not count.
    """
    words = f"{described(program)}, {program.steps} steps"
    judged = CauseJudgement(seed, kind, words, true_share, not program.causes or true_share >= least)
    about = [f | {"first_step": f["evidence"].get("since_step")} for f in findings if f["kind"] != NO_LOSS]
    judged.findings = [{k: f[k] for k in ("kind", "lost_share", "ranks", "first_step")} for f in about]
    judged.alarms = [f["kind"] for f in about if f["kind"] in CHANGES and f["kind"] != kind]
    if not program.causes:
        return judged
    cause = program.causes[0]
    first, last = onsets_of(cause)
    judged.truth = f"{cause.variant} {100 * true_share:.1f} % ranks {[*cause.ranks]} step {first} to {last}"
    same = next((f for f in about if f["kind"] == kind), None)
    if same is not None:
        step, loss = same["first_step"], same["lost_share"]
        holds = (
            about[0]["kind"] == kind,
            True,
            ranks_right(program, cause, kind, culprits_of(same, program.view.devices)),
            step is not None and first - ONSET_WITHIN <= step <= last + ONSET_WITHIN,
            loss is not None and abs(loss - true_share) <= CLOSE * true_share,
        )
        judged.right = [mark for mark, held in zip(MARKS, holds, strict=True) if held]
    return judged
