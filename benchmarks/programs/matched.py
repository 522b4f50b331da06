"""Compares what alltrace matched, and its clocks, with the truth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.run.overlay import MEMBERS
from alltrace.run.parquet import read_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.align.aligned import Aligned
    from benchmarks.programs.planted import Member, Planted

SURE = 0.9
"""The confidence from which on a match or a communicator is a claim."""


@dataclass
class MatchingScore:
    """How one run was matched.

    Attributes:
        planted: Operations of which at least two members are recorded.
        right: Those whose exact set of members was matched.
        wrong: Those of which a match contradicts the truth: it has a member of another operation, or lacks members
            although the communicator is given as having no more, or the operation is in two matches.
        incomplete: Of the rest, those that have a match that says itself that members lack. The others are in no match.
        sure_wrong: Of the wrong ones, those with a confidence of `SURE` or more.
        wrong_communicators: Communicators that the reports do not name, given with a score of `SURE` or more, whose
            members never are those of any operation.
        examples: Of the first wrong ones, what was planted and what was matched.
    """

    planted: int = 0
    right: int = 0
    wrong: int = 0
    incomplete: int = 0
    sure_wrong: int = 0
    wrong_communicators: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def withheld(self) -> int:
        """Operations of which no match, or none that claims to be complete, is given."""
        return self.planted - self.right - self.wrong

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "withheld": self.withheld}


@dataclass(frozen=True)
class Match:
    """A matched instance.

    Attributes:
        members: The kernels in it.
        complete: Whether it has all members that its communicator is given as having.
        confidence: The least of its members.
    """

    members: frozenset[Member]
    complete: bool
    confidence: float


def matches_of(aligned: Aligned, planted: Planted) -> list[Match]:
    """The matched instances of a run whose members are kernels that the reports hold."""
    run = aligned.run
    if run.overlay is None:
        return []
    stored = read_parquet(run.overlay.files.path("members.parquet"), MEMBERS.column_names)
    columns = {name: stored.column(name).to_numpy(zero_copy_only=False) for name in stored.column_names}
    member_of: list[Member | None] = [None] * stored.num_rows
    for rank in np.unique(columns["rank"]).tolist():
        at = np.flatnonzero(columns["rank"] == rank)
        own = run.rank(rank).in_file_time().table("collectives", ["start", "device", "stream"])
        rows = own.take(columns["row"][at]).to_pylist()
        for place, row in zip(at.tolist(), rows, strict=True):
            member_of[place] = planted.numbers.get((rank, row["device"], row["start"], row["stream"]))
    members: dict[int, set[Member]] = defaultdict(set)
    confidence: dict[int, float] = {}
    size: dict[int, int] = {}
    for place, member in enumerate(member_of):
        if member is not None:
            instance = int(columns["instance"][place])
            members[instance].add(member)
            confidence[instance] = min(confidence.get(instance, 1.0), float(columns["confidence"][place]))
            size[instance] = aligned.groups[int(columns["communicator"][place])].size
    return [Match(frozenset(m), len(m) >= size[i], confidence[i]) for i, m in members.items() if len(m) > 1]


def score_matches(aligned: Aligned, planted: Planted, examples: int = 3) -> MatchingScore:
    """How the operations of a run were matched."""
    score = MatchingScore(planted=len(planted.instances))
    touching: dict[Member, list[Match]] = defaultdict(list)
    for match in matches_of(aligned, planted):
        for member in match.members:
            touching[member].append(match)
    for truth in planted.instances.values():
        own = list({id(m): m for member in truth for m in touching.get(member, ())}.values())
        if len(own) == 1 and own[0].members == truth:
            score.right += 1
        elif any(not m.members <= truth or m.complete for m in own) or len(own) > 1:
            score.wrong += 1
            score.sure_wrong += any(m.confidence >= SURE for m in own)
            if len(score.examples) < examples:
                score.examples.append({"planted": sorted(truth), "matched": [sorted(m.members) for m in own]})
        elif own:
            score.incomplete += 1
    sets = {frozenset(m[0] for m in truth) for truth in planted.instances.values()}
    score.wrong_communicators = sum(
        g.found_by != "ids" and len(g.ranks) > 1 and g.score >= SURE and not any(frozenset(g.ranks) <= s for s in sets)
        for g in aligned.groups
    )
    return score


@dataclass(frozen=True)
class ClockScore:
    """How one host's clock was found, against the first host's.

    Attributes:
        host: Its number in the program.
        error_ns: The difference from the truth at the run's start.
        worst_ns: The largest difference of any time of the run.
        interval_ns: Half of the 95 % interval that is given; None if none is.
        connected: Whether evidence connects it with the first host.
    """

    host: int
    error_ns: float
    worst_ns: float
    interval_ns: float | None
    connected: bool

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the truth; None if none is given."""
        return None if self.interval_ns is None else abs(self.error_ns) <= self.interval_ns


def score_clocks(aligned: Aligned, reports: Sequence[Any], times: Sequence[int]) -> list[ClockScore]:
    """How the clocks of all hosts but the first were times_of_host.

    Args:
        aligned: The alignment of the run.
        reports: Of each rank a report, with `rank`, `host` (a number) and `at`, which gives the report's time of a true
            time.
        times: True times over the run, in ns; the first is its start.
    """
    run = aligned.run
    times_of_host: dict[int, tuple[np.ndarray, Any]] = {}
    by_rank = {r.rank: r for r in run.ranks}
    clocks = {c.host: c for c in aligned.clocks}
    for report in reports:
        if report.host not in times_of_host and report.rank in by_rank:
            record = by_rank[report.rank]
            own = np.array([report.at(t) for t in times], np.int64)
            times_of_host[report.host] = run.clock(record).apply(own).astype(np.float64), clocks[record.host]
    if not times_of_host:
        return []
    first = min(times_of_host)
    reference, of_first = times_of_host[first]
    scores = []
    for host, (aligned_times, clock) in sorted(times_of_host.items()):
        if host != first:
            errors = aligned_times - reference
            scores.append(
                ClockScore(
                    host, float(errors[0]), float(np.abs(errors).max()), getattr(clock, "error_ns", None),
                    clock.component == of_first.component,
                )
            )  # fmt: skip
    return scores
