"""What each cause costs: the program is executed again without it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from benchmarks.programs.machine import Recorded
from benchmarks.programs.model import NATURAL, Without
from benchmarks.programs.training import Lowered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.programs.machine import Timeline
    from benchmarks.programs.model import Program

KIND_OF_NATURAL = {
    "communication": "exposed-communication",
    "host": "launch-bound",
    "copies": "exposed-transfer",
    "sync": "sync",
    "noise": "jitter",
}
"""The diagnosis' names for a program's own losses."""

FAMILIES = (
    {"exposed-communication", "slow-communicator", "low-bandwidth", "serialized-communication"},
    {"launch-bound", "sync", "host-pause", "allocation", "module-loading", "recompilation", "data-stall", "sync-copy",
     "pageable-copy", "late-rank"},
    {"exposed-transfer", "pageable-copy", "sync-copy"},
)  # fmt: skip
"""Kinds that remove each other's time: a program's own loss of one kind is measured without planted causes of the
others."""


LEAST_TRACE_NS = 20_000
"""As long as it takes to ask for a batch that is ready."""


@dataclass(frozen=True)
class Truth:
    """The truth about a program.

    Attributes:
        judged_ns: Time of the judged steps, with all causes.
        causes: For each planted cause, the share of that time gained by removing only it.
        together: The share gained by removing all of them.
        natural: The share that a kind costs without a planted cause, by kind.
        kinds: The share that a kind costs, planted and natural, by kind.
    """

    judged_ns: int
    causes: tuple[float, ...]
    together: float
    natural: dict[str, float]
    kinds: dict[str, float]

    def right(self, least: float, tie: float = 0.9) -> set[str]:
        """The kinds that a first finding may have: the costliest, and others within a tenth; empty below `least`."""
        best = max(self.kinds.values(), default=0.0)
        return {k for k, share in self.kinds.items() if share >= tie * best} if best >= least else set()


def judged_ns(program: Program, timeline: Timeline) -> int:
    """Time of the judged steps: for each, from the end of the previous step to its own end, on the last rank."""
    ends = {step: max(rank[step] for rank in timeline.ends) for step in timeline.ends[0]}
    return sum(ends[s] - ends[s - 1] for s in program.judged)


def measure(program: Program, without: Without | None = None) -> int:
    """Time of the judged steps of an execution, in ns."""
    lowered = Lowered(program, without)
    return judged_ns(program, lowered.execute())


def leaves_a_trace(program: Program, cause: int) -> bool:
    """Whether the judged steps record other events without a cause, or some `LEAST_TRACE_NS` longer or shorter.

    What they do not show, nobody can tell from reports: a loader, say, of which batches are always ready.

    Args:
        program: The program.
        cause: The place of the cause.
    """
    with_it, without = (Lowered(program, w).execute(record=True) for w in (Without(), Without(frozenset([cause]))))
    before = min(program.judged) - 1
    for rank, records in enumerate(zip(with_it.recorded or (), without.recorded or (), strict=True)):
        begun = with_it.ends[rank][before], without.ends[rank][before]
        for table in fields(Recorded):
            lasting = [
                [row[1] - row[0] for row in getattr(record, table.name) if row[0] >= begin]
                for record, begin in zip(records, begun, strict=True)
            ]
            if len(lasting[0]) != len(lasting[1]):
                return True
            if any(abs(a - b) >= LEAST_TRACE_NS for a, b in zip(*lasting, strict=True)):
                return True
    return False


def truth_of(program: Program, base_ns: int | None = None) -> Truth:
    """Execute a program with and without its causes.

    Args:
        program: The program.
        base_ns: Its judged time with all causes, if known.
    """
    base = base_ns or measure(program)
    every = range(len(program.causes))
    times: dict[Without, int] = {Without(): base}
    loses = {
        **KIND_OF_NATURAL,
        **({"copies": "sync-copy"} if program.mpi else {}),
    }  # hosts wait for what MPI is to send

    def time_of(causes: Iterable[int], natural: Iterable[str] = ()) -> int:
        without = Without(frozenset(causes), frozenset(natural))
        if without not in times:
            times[without] = measure(program, without)
        return times[without]

    alone = tuple((base - time_of([i])) / base for i in every)
    natural = {}
    kinds: dict[str, float] = {}
    for name in NATURAL:
        kind = loses[name]
        family = set().union(*(f for f in FAMILIES if kind in f)) - {kind}
        others = [i for i in every if program.causes[i].kind in family]
        same = [i for i in every if program.causes[i].kind == kind]
        natural[kind] = (time_of([*others, *same]) - time_of([*others, *same], [name])) / base
        kinds[kind] = (time_of(others) - time_of([*others, *same], [name])) / base
    for i in every:
        kind = program.causes[i].kind
        kinds[kind] = max(kinds.get(kind, 0.0), alone[i])
    return Truth(base, alone, (base - time_of(every)) / base, natural, kinds)


def without_causes(program: Program) -> Program:
    """The program with nothing planted, and all ranks captured from the start."""
    return replace(program, causes=(), view=replace(program.view, late=(), missing=()))
