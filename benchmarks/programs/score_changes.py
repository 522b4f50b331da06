"""Judges what is found of causes that change in time: kind, culprits, first step, loss; and that healthy programs have none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.programs.draw_changes import CHANGES, HEALTHY, onsets_of
from benchmarks.programs.score import CLOSE, NO_LOSS, culprits_of, described, percent, ranks_right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs.model import Program

ONSET_WITHIN = 2
"""Steps by which the first step of a finding may be wrong."""


MARKS = ("first finding", "any finding", "culprits", f"onset within {ONSET_WITHIN} steps", f"loss within {100 * CLOSE:g} %")


@dataclass
class ChangeJudgement:
    """What was found in one program, and what is true.

    Attributes:
        seed: Of the program.
        kind: What was planted, or `healthy`.
        program: What it is, in a few words.
        true_share: Of the judged time, what is gained without the cause.
        counts: Whether that is enough to be found, or nothing was planted.
        truth: The cause in words.
        right: Which of `MARKS` hold: the first finding, or any, has the kind; and what the first of that kind states.
        alarms: The findings of kinds that change in time and were not planted.
        findings: Kind, loss, culprits and first step of the first findings.
        error: What went wrong instead of an answer.
    """

    seed: int
    kind: str
    program: str
    true_share: float
    counts: bool
    truth: str = "nothing"
    right: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether anything about it is wrong."""
        missed = self.kind != HEALTHY and self.counts and len(self.right) < len(MARKS)
        return bool(missed or self.alarms or self.error)


def judge_change(
    seed: int, kind: str, program: Program, true_share: float, findings: Sequence[dict[str, Any]], least: float
) -> ChangeJudgement:
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
    judged = ChangeJudgement(seed, kind, words, true_share, not program.causes or true_share >= least)
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


def summary_of_changes(judged: Sequence[ChangeJudgement], least: float) -> str:
    """The results as Markdown; all shares are of the programs of a kind whose cause costs enough."""
    lines = [f"| planted | programs | {' | '.join(MARKS)} | another of these kinds |", "|" + "---|" * (3 + len(MARKS))]
    counted = [j for j in judged if j.counts and j.error is None]
    for kind in [*CHANGES, "all"]:
        own = [j for j in counted if j.kind != HEALTHY and kind in (j.kind, "all")]
        marks = [percent(sum(mark in j.right for j in own), len(own)) for mark in MARKS]
        alarms = percent(sum(bool(j.alarms) for j in own), len(own))
        lines += [f"| {kind} | {len(own)} | {' | '.join(marks)} | {alarms} |"] * bool(own)
    healthy = [j for j in counted if j.kind == HEALTHY]
    lines += ["", f"Healthy programs with one of these kinds: {percent(sum(bool(j.alarms) for j in healthy), len(healthy))}"]
    lines.append(f"Left out, since the cause costs less than {100 * least:g} %: {sum(not j.counts for j in judged)}")
    lines.append(f"No answer: {sum(j.error is not None for j in judged)}")
    lines += ["", "| seed | program | truth | findings |", "|---|---|---|---|"]
    for j in (j for j in judged if j.wrong):
        found = "; ".join(
            f"{f['kind']} {'null' if f['lost_share'] is None else format(100 * f['lost_share'], '.1f')} % "
            f"{(f['ranks'] or [])[:8]} step {f['first_step']}"
            for f in j.findings[:3]
        )
        lines.append(f"| {j.seed} | {j.program} | {j.kind} {j.truth} | {j.error or found or 'none'} |")
    return "\n".join(lines)
