"""What the record of steps says of a job that stopped: the phase in which each rank is, and which process no longer runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from alltrace.hang.evidence import Death, Evidence, Stack
from alltrace.trace.step_records import PAGE_BYTES, RankSteps, read_ranks

_STEPS = 56
_LEAST_NS = 5_000_000_000
_STEPS_LONG = 3.0
"""A job stopped if no step ended for this many times its longest step."""
_SILENT_NS = 12_000_000_000
"""A process writes every 5 s; one that did not for this long, while others did, no longer runs."""


def read_steps(path: Path, evidence: Evidence) -> bool:
    """Read a record or a page into the evidence; whether it says anything."""
    ranks = read_ranks(path, _STEPS)
    beats = path.stat().st_size > PAGE_BYTES  # a page changes when a step ends, a record also while none does
    for rank in ranks:
        before = evidence.steps.get(rank.rank)
        newest = rank if before is None or before.since_ns <= rank.since_ns else before
        written_ns = max(rank.written_ns if beats else 0, before.written_ns if before is not None else 0)
        evidence.steps[rank.rank] = newest._replace(written_ns=written_ns)
        if rank.host:
            evidence.hosts.setdefault(rank.rank, rank.host)
        evidence.world = max(evidence.world, rank.world)
    return bool(ranks)


def judge_steps(evidence: Evidence) -> None:
    """Where no step ends any more, say what each rank does, and who died."""
    ranks = evidence.steps
    steps = [step for rank in ranks.values() for step in rank.steps]
    newest_ns = max((max(rank.written_ns, rank.since_ns) for rank in ranks.values()), default=0)
    last_ns = max((step.begin_ns + 1000 * step.total_us for step in steps), default=0)
    longest_ns = max((1000 * step.total_us for step in steps), default=0)
    if not ranks or newest_ns - last_ns < max(_LEAST_NS, _STEPS_LONG * longest_ns):
        return
    for number, rank in ranks.items():
        if 0 < rank.written_ns < newest_ns - _SILENT_NS:
            how = f"its process no longer runs since {_time(rank.written_ns)}, in {rank.phase} of step {rank.step}"
            evidence.deaths[number].append(Death(number, how, "the record of steps"))
        elif number not in evidence.stacks:
            doing = "communicates" if rank.phase in rank.waits else "data" if rank.phase == "data" else "computes"
            evidence.stacks[number] = Stack(number, doing, place_of(rank), "the record of steps")


def place_of(rank: RankSteps) -> str:
    return f"phase {rank.phase} of step {rank.step} since {_time(rank.since_ns)}"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%H:%M:%S UTC") if 0 <= at_ns < 1 << 61 else "an impossible time"
