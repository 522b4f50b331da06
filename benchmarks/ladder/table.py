"""The table: of each cause and profiler, what the switch gains, and what the diagnosis of the slow side says first."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.first_findings import milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.first_findings import Diagnosed, Finding
    from benchmarks.ladder.causes import Cause
    from benchmarks.ladder.measuring import Times

HEAD = (
    (
        "| cause | switch | slow | fast | gained | recorded by | step when recorded | found | should be first | its"
        " loss | was first |"
    ),
    "|---|---|---|---|---|---|---|---|---|---|---|",
)

_WORTH_FINDING = 0.05
"""The share of a step that a switch has to gain for its cause to be one that should be found."""
_TOLERANCE = 1 / 3


@dataclass(frozen=True)
class Measured:
    """A cause, measured.

    Attributes:
        cause: The cause.
        times: The times without a profiler.
        diagnosed: By profiler, what the slow side's report says.
        judged: Whether there was a device with time that could be judged.
    """

    cause: Cause
    times: Times
    judged: bool
    diagnosed: Mapping[str, Diagnosed] = field(default_factory=dict)


def right(one: Measured, profiler: str) -> bool:
    """Whether the first finding has one of the kinds that it should have."""
    first = one.diagnosed[profiler].first
    return first is not None and first.kind in one.cause.kinds


def of_the_right_kind(one: Measured, profiler: str) -> Finding | None:
    """The first finding that has one of the kinds that the first one should have."""
    return next((finding for finding in one.diagnosed[profiler].findings if finding.kind in one.cause.kinds), None)


def within_a_third(one: Measured, profiler: str) -> bool:
    """Whether the loss of the right kind is what the switch gains, within a third of it; a ceiling has to cover it."""
    finding, gained = of_the_right_kind(one, profiler), one.times.gained
    if finding is None:
        return False
    if finding.ceiling_share is not None:
        return finding.ceiling_share >= gained * (1 - _TOLERANCE)
    return finding.lost_share is not None and abs(finding.lost_share - gained) <= gained * _TOLERANCE


def rows(one: Measured) -> list[str]:
    """The rows of a cause: one for each profiler."""
    times = one.times
    gained = f"{percent(times.gained)} ({percent(times.least_gained)} to {percent(times.most_gained)})"
    slow, fast = (milliseconds(statistics.median(ns)) for ns in (times.slow_ns, times.fast_ns))
    kinds = " or ".join(f"`{kind}`" for kind in one.cause.kinds)
    lines = []
    for profiler, found in one.diagnosed.items():
        recorded = milliseconds(found.steps.mean_ns if found.steps else None)
        first = f"`{found.first.kind}` {found.first.share_text()}" if found.first else "nothing"
        finding = of_the_right_kind(one, profiler)
        loss = finding.share_text() if finding else "none"
        cells = [one.cause.name, one.cause.switch, slow, fast, gained, profiler, recorded]
        cells += (
            [first, kinds, loss, "yes" if right(one, profiler) else "no"]
            if one.judged
            else ["", kinds, "", "needs a GPU"]
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def text(heading: str, measured: Sequence[Measured], left_out: Mapping[str, str]) -> str:
    """The page: a line on the machine, the table, a line with the sum, and what is not in it with the reason."""
    lines = [heading, "", *HEAD]
    for one in measured:
        lines += rows(one)
    worth = [one for one in measured if one.judged and one.times.gained >= _WORTH_FINDING]
    judged = [(one, profiler) for one in worth for profiler in one.diagnosed]
    if judged:
        first, near = (sum(is_so(*which) for which in judged) for is_so in (right, within_a_third))
        lines += [
            "",
            (
                f"Of {len(judged)} recordings of switches that gain {percent(_WORTH_FINDING)} or more, the right kind"
                f" came first in {first}, and its loss was the gain within a third, or its ceiling covered it, in"
                f" {near}."
            ),
        ]
    if left_out:
        lines += ["", "Not measured:", "", *(f"* {name}: {why}" for name, why in left_out.items())]
    return "\n".join(lines) + "\n"
