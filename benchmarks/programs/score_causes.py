"""The judgements of programs with a chosen cause, of all families of causes, and their tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.programs.score import percent

if TYPE_CHECKING:
    from collections.abc import Sequence


class Family(NamedTuple):
    """Kinds of programs that are judged alike.

    Attributes:
        kinds: Of programs.
        healthy: The kind of those without a cause; empty if there are none.
        marks: What is judged of each.
        needed: Those of them without which a program is listed as wrong.
        alarms: What is never right in such a program, or in a healthy one.
    """

    kinds: tuple[str, ...]
    healthy: str
    marks: tuple[str, ...]
    needed: tuple[str, ...]
    alarms: str


@dataclass
class CauseJudgement:
    """What was found in one program, and what is true.

    Attributes:
        seed: Of the program.
        kind: What was planted, or what kind of healthy program it is.
        program: What it is, in a few words.
        true_share: Of the judged time, what is gained without the cause, or without both.
        counts: Whether that is enough to be found, or nothing was planted.
        traceless: Whether it does not count because the judged steps record the same without one of its causes.
        truth: The cause in words.
        right: Which marks of its family hold.
        alarms: The findings that are never right there.
        findings: Kind, loss, culprits and what else is judged of the first findings.
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
    traceless: bool = False

    def is_wrong(self, family: Family) -> bool:
        """Whether anything about it is wrong."""
        missed = self.kind != family.healthy and self.counts and not set(family.needed) <= set(self.right)
        return bool(missed or self.alarms or self.error)


def summary_of_causes(judged: Sequence[CauseJudgement], families: Sequence[Family], least: float) -> str:
    """The results as Markdown; all shares are of the programs of a kind whose cause costs enough."""
    return "\n\n".join(
        "\n".join(_table(own, family, least))
        for family in families
        if (own := [j for j in judged if j.kind in (*family.kinds, family.healthy)])
    )


def _table(judged: Sequence[CauseJudgement], family: Family, least: float) -> list[str]:
    marks = family.marks
    lines = [f"| planted | programs | {' | '.join(marks)} | {family.alarms} |", "|" + "---|" * (3 + len(marks))]
    counted = [j for j in judged if j.counts and j.error is None]
    for kind in [*family.kinds, "all"] if len(family.kinds) > 1 else family.kinds:
        own = [j for j in counted if j.kind != family.healthy and kind in (j.kind, "all")]
        shares = [percent(sum(mark in j.right for j in own), len(own)) for mark in marks]
        alarms = percent(sum(bool(j.alarms) for j in own), len(own))
        lines += [f"| {kind} | {len(own)} | {' | '.join(shares)} | {alarms} |"] * bool(own)
    healthy = [j for j in counted if j.kind == family.healthy]
    lines.append("")
    if family.healthy:
        loud = percent(sum(bool(j.alarms) for j in healthy), len(healthy))
        lines.append(f"Healthy programs with {family.alarms}: {loud}")
    cheap, traceless = (sum(not j.counts and j.traceless == without for j in judged) for without in (False, True))
    lines.append(f"Left out, since the cause costs less than {100 * least:g} %: {cheap}")
    lines += [f"Left out, since the judged steps record the same without one of the causes: {traceless}"] * bool(
        traceless
    )
    lines.append(f"No answer: {sum(j.error is not None for j in judged)}")
    lines += ["", "| seed | program | truth | findings |", "|---|---|---|---|"]
    for j in (j for j in judged if j.is_wrong(family)):
        found = "; ".join(_finding(f) for f in j.findings[:4])
        lines.append(f"| {j.seed} | {j.program} | {j.kind} {j.truth} | {j.error or found or 'none'} |")
    return lines


def _finding(found: dict[str, Any]) -> str:
    loss = "null" if found["lost_share"] is None else format(100 * found["lost_share"], ".1f")
    more = "".join(
        f" {key.replace('_', ' ')} {found[key]}" for key in found if key not in ("kind", "lost_share", "ranks")
    )
    return f"{found['kind']} {loss} % {(found['ranks'] or [])[:8]}{more}"
