"""What `diagnose` says first about reports, and how long their steps are: what measured truth is compared with."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import alltrace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ABOUT_THE_RECORDING = "capture-fault"
"""The kind that is about a recording and says nothing of the program."""


@dataclass(frozen=True)
class Finding:
    """A finding, as far as it can be compared.

    Attributes:
        kind: Its kind.
        lost_share: What the job would get back, of the judged time, 0 to 1; None if it is not known.
        ceiling_share: Of an opportunity, the most that could be gained, 0 to 1; None for a loss.
    """

    kind: str
    lost_share: float | None
    ceiling_share: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Finding:
        """The text of a row of `diagnose`."""
        return cls(row["kind"], row["lost_share"], row.get("opportunity_share"))

    def share_text(self) -> str:
        """Such as `12.3 %`, or `at most 55.0 %`."""
        if self.ceiling_share is not None:
            return f"at most {percent(self.ceiling_share)}"
        return "unknown" if self.lost_share is None else percent(self.lost_share)


@dataclass(frozen=True)
class StepTimes:
    """How long steps take.

    Attributes:
        steps: How many there are; the most of any rank.
        mean_ns: From the start of the first to the end of the last, by their number; the median of the ranks.
        median_ns: The median of steps that are neither warm-up nor checkpoint, of all ranks; None if there is none.
    """

    steps: int
    mean_ns: float
    median_ns: float | None


@dataclass(frozen=True)
class Diagnosed:
    """What reports say.

    Attributes:
        findings: The findings about the program, in their order.
        steps: Its steps; None if none was found.
        notes: The notes of the diagnosis.
    """

    findings: tuple[Finding, ...]
    steps: StepTimes | None
    notes: tuple[str, ...]

    @property
    def first(self) -> Finding | None:
        """The first finding."""
        return self.findings[0] if self.findings else None


def step_times(rows: Sequence[Mapping[str, Any]]) -> StepTimes | None:
    """The times of steps, of rows of the recipe `steps`."""
    by_rank: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_rank[row["rank"]].append(row)
    if not by_rank:
        return None
    means = [(max(r["end_ns"] for r in own) - min(r["start_ns"] for r in own)) / len(own) for own in by_rank.values()]
    steady = [row["duration_ns"] for row in rows if row["kind"] == "step"]
    most = max(len(own) for own in by_rank.values())
    return StepTimes(most, statistics.median(means), statistics.median(steady) if steady else None)


def diagnosed(reports: Sequence[Path], cache: Path | None = None) -> Diagnosed:
    """Ask `diagnose` and `steps` of reports.

    Args:
        reports: Reports, folders of reports, or a run directory.
        cache: Where imported reports are kept; None for the user's cache.

    Raises:
        AlltraceError: No report can be read.
    """
    run = alltrace.open(*reports, cache_dir=cache)
    answer = run.recipe("diagnose")
    findings = tuple(Finding.of(row) for row in answer.to_pylist() if row["kind"] != ABOUT_THE_RECORDING)
    return Diagnosed(findings, step_times(run.recipe("steps").to_pylist()), answer.notes)


def percent(share: float) -> str:
    """Such as `12.3 %`."""
    return f"{100 * share:.1f} %"


def milliseconds(ns: float | None) -> str:
    """Such as `1.23 ms`, with three digits that count; empty if it is not known."""
    return "" if ns is None else f"{ns / 1e6:.3g} ms" if ns < 1e9 else f"{ns / 1e6:.0f} ms"
