"""Judges what is found of causes that change in time: kind, culprits, first step, loss; and that healthy programs have none."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.programs.draw_changes import CHANGES, HEALTHY, onsets_of
from benchmarks.programs.score import CLOSE, NO_LOSS, described, percent, ranks_right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs.model import Program

ONSET_WITHIN = 2
"""Steps by which the first step of a finding may be wrong."""


@dataclass
class ChangeJudgement:
    """What was found in one program, and what is true.

    Attributes:
        seed: Of the program.
        kind: What was planted, or `healthy`.
        program: What it is, in a few words.
        variant: Of the cause.
        ranks: Its culprits; empty if all ranks are.
        onset: Its first step, and the last step that counts as that.
        true_share: Of the judged time, what is gained without the cause.
        counts: Whether that is enough to be found, or nothing was planted.
        named: Whether the first finding has the kind.
        found: Whether any finding has it.
        ranks_right: Whether the first finding of that kind names the culprits.
        first_step: That it states; None if it states none.
        onset_right: Whether that is within two steps of the truth.
        found_share: The loss that it states; None if it states none.
        alarms: The findings of kinds that change in time and were not planted.
        findings: Kind, share, ranks and first step of the first findings.
        error: What went wrong instead of an answer.
    """

    seed: int
    kind: str
    program: str
    variant: str = ""
    ranks: tuple[int, ...] = ()
    onset: tuple[int, int] | None = None
    true_share: float = 0.0
    counts: bool = True
    named: bool = False
    found: bool = False
    ranks_right: bool = False
    first_step: int | None = None
    onset_right: bool = False
    found_share: float | None = None
    alarms: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    @property
    def loss_right(self) -> bool:
        """Whether the loss is near that by re-execution."""
        return self.found_share is not None and abs(self.found_share / self.true_share - 1) <= CLOSE

    @property
    def wrong(self) -> bool:
        """Whether anything about it is wrong."""
        if self.kind == HEALTHY or not self.counts:
            return bool(self.alarms or self.error)
        return not (self.named and self.ranks_right and self.onset_right and self.loss_right) or bool(self.alarms)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


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
    judged = ChangeJudgement(seed, kind, f"{described(program)}, {program.steps} steps", true_share=true_share)
    about = [f for f in findings if f["kind"] != NO_LOSS]
    judged.alarms = [f["kind"] for f in about if f["kind"] in CHANGES and f["kind"] != kind]
    judged.findings = [
        {k: f[k] for k in ("kind", "lost_share", "ranks")} | {"since_step": f["evidence"].get("since_step")} for f in about[:4]
    ]
    if not program.causes:
        return judged
    cause = program.causes[0]
    judged.variant, judged.ranks, judged.onset = cause.variant, cause.ranks, onsets_of(cause)
    judged.counts = true_share >= least
    judged.named = bool(about) and about[0]["kind"] == kind
    same = next((f for f in about if f["kind"] == kind), None)
    if same is None:
        return judged
    judged.found = True
    judged.ranks_right = ranks_right(program, cause, kind, same["ranks"])
    judged.found_share = same["lost_share"]
    judged.first_step = same["evidence"].get("since_step")
    if judged.first_step is not None:
        judged.onset_right = judged.onset[0] - ONSET_WITHIN <= judged.first_step <= judged.onset[1] + ONSET_WITHIN
    return judged


_MARKS = {
    "first finding": "named",
    "any finding": "found",
    "culprits": "ranks_right",
    f"onset within {ONSET_WITHIN} steps": "onset_right",
    f"loss within {100 * CLOSE:g} %": "loss_right",
    "another of these kinds": "alarms",
}


def summary_of_changes(judged: Sequence[ChangeJudgement], least: float) -> str:
    """The results as Markdown; all shares are of the programs of a kind whose cause costs enough."""
    lines = [f"| planted | programs | {' | '.join(_MARKS)} |", "|" + "---|" * (2 + len(_MARKS))]
    counted = [j for j in judged if j.counts and j.error is None]
    planted = [j for j in counted if j.kind != HEALTHY]
    for kind in [*CHANGES, "all"]:
        own = [j for j in planted if kind in (j.kind, "all")]
        marks = [percent(sum(bool(getattr(j, mark)) for j in own), len(own)) for mark in _MARKS.values()]
        lines += [f"| {kind} | {len(own)} | {' | '.join(marks)} |"] * bool(own)
    healthy = [j for j in counted if j.kind == HEALTHY]
    lines += ["", f"Healthy programs with one of these kinds: {percent(sum(bool(j.alarms) for j in healthy), len(healthy))}"]
    lines.append(f"Left out, since the cause costs less than {100 * least:g} %: {sum(not j.counts for j in judged)}")
    lines += [
        f"No answer: {sum(j.error is not None for j in judged)}",
        "",
        "| seed | program | truth | findings |",
        "|---|---|---|---|",
    ]
    for j in (j for j in judged if j.wrong):
        truth = f"{j.variant} {100 * j.true_share:.1f} % ranks {[*j.ranks]} step {j.onset}" if j.onset else "nothing"
        found = "; ".join(
            f"{f['kind']} {'null' if f['lost_share'] is None else format(100 * f['lost_share'], '.1f')} % "
            f"{(f['ranks'] or [])[:8]} step {f['since_step']}"
            for f in j.findings[:3]
        )
        lines.append(f"| {j.seed} | {j.program} | {j.kind} {truth} | {j.error or found or 'none'} |")
    return "\n".join(lines)
