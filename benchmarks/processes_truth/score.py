"""What `diagnose` says of a recording, compared with what was planted and what taking it away gained."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import alltrace
from alltrace.trace.errors import AlltraceError
from benchmarks.first_findings import ABOUT_THE_RECORDING, percent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.processes_truth.causes import Cause
    from benchmarks.processes_truth.measuring import Gain

WITHIN_SHARE, WITHIN_ERRORS = 0.2, 2
"""A loss is right within this share of the gain, or within this many standard errors of it."""


@dataclass(frozen=True)
class Scored:
    """A recording's diagnosis.

    Attributes:
        program: `torch` or `mpi`.
        cause: What was planted.
        gain: What taking it away gained.
        kind: The kind of the first finding that is about the program and not an opportunity; None without one.
        ranks: Its culprits.
        loss_share: Its loss, of the judged time; None if it is not known.
        said: The note that says why nothing was found, if nothing was.
        step_ns: The median step of the recording; None if none was found.
    """

    program: str
    cause: Cause
    gain: Gain
    kind: str | None
    ranks: tuple[int, ...]
    loss_share: float | None
    said: str
    step_ns: float | None

    @property
    def kind_right(self) -> bool:
        """Whether the first finding has one of the kinds of the cause."""
        return self.kind in self.cause.kinds

    @property
    def culprit_right(self) -> bool:
        """Whether it has one of these kinds and names the culprits, if there are any."""
        return self.kind_right and (not self.cause.culprits or self.ranks == self.cause.culprits)

    @property
    def loss_right(self) -> bool:
        """Whether its loss is the measured gain."""
        allowed = max(WITHIN_SHARE * abs(self.gain.share), WITHIN_ERRORS * self.gain.error)
        return self.kind_right and self.loss_share is not None and abs(self.loss_share - self.gain.share) <= allowed

    def row(self) -> str:
        """A row of the table."""
        gained = f"{percent(self.gain.share)} ± {percent(self.gain.error)}"
        first = "nothing" if self.kind is None else f"`{self.kind}`"
        loss = "unknown" if self.loss_share is None else percent(self.loss_share)
        ranks = ", ".join(map(str, self.ranks)) or "none"
        right = "yes" if self.culprit_right else "kind only" if self.kind_right else "no"
        cells = (
            self.program,
            f"`{self.cause.name}`",
            gained,
            first,
            ranks,
            loss,
            right,
            "yes" if self.loss_right else "no",
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| program | cause | gained | first finding | culprits | loss | kind and culprits right | loss right |\n"
    + "|---" * 8
    + "|"
)


def score(program: str, cause: Cause, gain: Gain, reports: Path, cache: Path) -> Scored:
    """Ask `diagnose` of a recording.

    Raises:
        AlltraceError: No report can be read.
    """
    run = alltrace.open(reports, cache_dir=cache)
    answer = run.recipe("diagnose")
    rows: list[dict[str, Any]] = [
        r for r in answer.to_pylist() if r["kind"] != ABOUT_THE_RECORDING and r["opportunity_share"] is None
    ]
    try:
        took: list[Any] = [r["duration_ns"] for r in run.recipe("steps").to_pylist() if r["kind"] == "step"]
    except AlltraceError:
        took = []
    first = rows[0] if rows else None
    said = next((note for note in answer.notes if note.startswith("nothing ")), "") if first is None else ""
    ranks, loss = ((), None) if first is None else (tuple(first["ranks"]), first["lost_share"])
    kind = None if first is None else first["kind"]
    return Scored(program, cause, gain, kind, ranks, loss, said, statistics.median(took) if took else None)


BY_CAUSE = (
    "| program | cause | runs | gained: median | least to most | loss of the first finding: median | least to most |"
    " kind and culprits right | loss right |\n" + "|---" * 9 + "|"
)


def by_cause(scores: Sequence[Scored]) -> list[str]:
    """A table with a row of each cause in each program."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for scored in scores:
        groups.setdefault((scored.program, scored.cause.name), []).append(scored)
    rows = [BY_CAUSE]
    for (program, cause), group in groups.items():
        total = len(group)
        shares = ([s.gain.share for s in group], [s.loss_share for s in group if s.loss_share is not None])
        cells = (
            program,
            f"`{cause}`",
            str(total),
            *(cell for values in shares for cell in _median_and_range(values)),
            f"{sum(s.culprit_right for s in group)} of {total}",
            f"{sum(s.loss_right for s in group)} of {total}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _median_and_range(shares: Sequence[float]) -> tuple[str, str]:
    if not shares:
        return "unknown", ""
    return percent(statistics.median(shares)), f"{percent(min(shares))} to {percent(max(shares))}"


def summary(scores: Sequence[Scored]) -> list[str]:
    """How many are right."""
    total = len(scores)
    counts = [
        ("the first finding has the cause's kind", sum(s.kind_right for s in scores)),
        ("and names its culprits", sum(s.culprit_right for s in scores)),
        ("its loss is the gain", sum(s.loss_right for s in scores)),
    ]
    return ["| all | right |", "|---|---|", *(f"| {what} | {right} of {total} |" for what, right in counts)]
