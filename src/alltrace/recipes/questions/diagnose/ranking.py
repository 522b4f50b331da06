"""The findings in order: what each may claim of the judged time, its severity, and which come first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from alltrace.recipes.questions.diagnose.finding import (
    HIGH_SHARE,
    LEAST_SHARE,
    MEDIUM_SHARE,
    NEVER_HIGH,
    SEVERITIES,
    Finding,
)

_STATED = "this time is already included in the losses of other findings"

_AS_MUCH = 0.1  # losses are as near as this share of them: which of two closer ones is larger is unknown

_PARTS_OF_ONE_CAUSE = "exposed-communication"
"""A kind with findings that are parts of one cause: what the program itself communicates, whether compute could hide it
or not. The costliest part represents the cause."""


@dataclass(frozen=True)
class Ranked:
    finding: Finding  # the finding
    claim_ns: int  # what it claims of the judged time, ns: its loss as well as it is known
    span_ns: int  # the judged time, ns
    cause_ns: int | None = None  # what all parts of its cause claim, ns; None unless it is the costliest of them
    designed_ns: int = 0  # the part of that in transfers that are the program's design, ns
    costliest: bool = False  # whether its cause claims more than a finding that is `high`

    @property
    def lost_ns(self) -> int | None:
        """What is stated as its loss; None if that is not known, or other findings state all of it."""
        return self.claim_ns if self.note is None else None

    @property
    def note(self) -> str | None:
        """Why no loss is stated; None if one is."""
        if self.finding.loss.unknown is None and not self.claim_ns and _most(self.finding) > 0:
            return _STATED
        return self.finding.loss.unknown

    @property
    def share(self) -> float | None:
        """The loss as a share of the judged time, 0 to 1; None if it is not known."""
        if self.lost_ns is None:
            return None
        return self.claim_ns / self.span_ns if self.span_ns else 0.0

    @property
    def severity(self) -> str:
        """`high`, `medium` or `low`, from the share of the judged time that it claims, if unknown from what is sure."""
        finding = self.finding
        if finding.severity is not None:
            return finding.severity
        known = finding.loss.unknown is None
        claim = self.claim_ns if known else min(self.claim_ns, finding.loss.least_ns)
        of_cause = self.cause_ns if known and self.cause_ns is not None else claim
        share = of_cause / self.span_ns if self.span_ns else 0.0
        fault = not finding.needed_at_once and claim >= HIGH_SHARE * self.span_ns
        if share >= HIGH_SHARE and finding.kind not in NEVER_HIGH and (fault or self.costliest):
            return "high"
        return "medium" if share >= MEDIUM_SHARE else "low"


def ranked(findings: Sequence[Finding], span_ns: int) -> list[Ranked]:
    """What costs enough to be reported, by severity, then by loss; of equal ones the surer first; opportunities last.

    Of findings that are parts of one cause, the costliest has the place of their sum.

    Losses are exclusive. Each finding, the largest first, claims at most the bound of its classes, less what others
    claim that have one of them too: those before it what they got in the same steps, those after it what their own
    classes hold. What its own class holds it claims in any case, less what others with that class got. And it claims at
    most what is left of the judged time.

    `span_ns`: The judged time, ns.
    """
    claims: list[Ranked] = []
    left = span_ns
    order = sorted(findings, key=lambda f: (-_most(f), -f.confidence, f.kind, f.ranks))
    for place, finding in enumerate(order):
        loss, classes = finding.loss, set(finding.loss.classes)
        same = [(c.claim_ns, c.finding.loss) for c in claims if classes.intersection(c.finding.loss.classes)]
        kept = sum(min(_most(f), f.loss.own_ns) for f in order[place + 1 :] if classes.intersection(f.loss.classes))
        shared_ns = loss.bound_ns - kept - round(loss.taken_by(same))
        alike = [(claim_ns, other) for claim_ns, other in same if other.classes[0] == loss.classes[0]]
        own_ns = loss.own_ns - round(loss.taken_by(alike))
        claim = max(min(_most(finding), max(shared_ns, own_ns), left), 0)
        left -= claim
        claims.append(Ranked(finding, claim, span_ns))
    least = max(LEAST_SHARE * span_ns, 1)
    reported = [c for c in claims if _is_reported(c, least)]
    parts = [c for c in reported if c.finding.kind == _PARTS_OF_ONE_CAUSE]
    if parts:
        costliest = max(parts, key=lambda part: part.claim_ns)
        cause_ns = sum(part.claim_ns for part in parts)
        designed_ns = sum(part.claim_ns for part in parts if part.finding.needed_at_once)
        whole = replace(costliest, cause_ns=cause_ns, designed_ns=designed_ns)
        reported = [whole if claim is costliest else claim for claim in reported]
    others = (c for c in reported if c.finding.kind != _PARTS_OF_ONE_CAUSE)
    high = min((c.claim_ns for c in others if c.severity == "high"), default=span_ns)
    return sorted((replace(c, costliest=_of_cause(c) > high) for c in reported), key=lambda c: place_of(c, c.severity))


def _of_cause(claim: Ranked) -> int:
    return claim.claim_ns if claim.cause_ns is None else claim.cause_ns


def _is_reported(claim: Ranked, least: float) -> bool:
    """Whether it claims enough, or larger losses hold what a replay gives back for it alone: either removal does."""
    finding, loss = claim.finding, claim.finding.loss
    hidden = loss.basis == "replay" and loss.unknown is None and _most(finding) >= least
    return finding.told or finding.severity is not None or claim.claim_ns >= least or hidden


def place_of(claim: Ranked, severity: str) -> tuple[bool, int, float, bool]:
    """Losses first, then opportunities; by severity, then by what is given back.

    What the next kernel needs at once is the program's design: a fault that costs nearly as much comes first.
    """
    opportunity = claim.finding.opportunity
    back = _AS_MUCH * claim.designed_ns - _of_cause(claim) if opportunity is None else -opportunity
    return opportunity is not None, SEVERITIES.index(severity), back, claim.cause_ns is not None


def _most(finding: Finding) -> int:
    return min(finding.loss.estimate_ns, finding.loss.bound_ns)
