"""The facts of an alignment, and what came of the logs that were joined with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from alltrace.align.constants import WRONG_SHARE
from alltrace.run.manifest import Clock, LogMatch

SOURCES = ("kernels", "api", "ranges", "marks", "collectives", "mpi")
"""The event tables that an alignment is made from."""

NOTHING_TO_ALIGN = "the run has one rank with one device, so there is nothing to align"
NEARLY_ALL = 1 - WRONG_SHARE
LEAST_MATCHING_SCORE = 1 / 2
"""Below it nothing should be computed from which ranks communicate."""


@dataclass(frozen=True)
class Group:
    """A communicator over all ranks.

    Attributes:
        number: Its number.
        name: What the profiler calls it (a hash, a handle), or how it was inferred.
        ranks: Its member ranks, ascending, as far as reports are there.
        size: Its size as the profiler reports, or the number of members seen.
        found_by: `ids` if the profiler names it, `logs` if NCCL's logs do, `structure` if it was inferred.
        score: How well it explains its operations, from 0 to 1.
        messages: Whether it has sends and receives and nothing else.
        all_to_all: Whether most of its operations are exchanges of each member with every other, as experts have them.
    """

    number: int
    name: str
    ranks: tuple[int, ...]
    size: int
    found_by: str = "ids"
    score: float = 1.0
    messages: bool = False
    all_to_all: bool = False


@dataclass(frozen=True)
class Alignment:
    """The facts of an alignment.

    Attributes:
        signature: Its inputs; with other ranks, rows or another version, the alignment is computed again.
        groups: The communicators.
        clocks: One per host.
        stamp_errors_ns: For each rank what its own UTC stamp is ahead of its host's clock.
        unmatched: For each rank the number of operations that found no partner.
        notes: What a reader must know, each one sentence.
        components: For each rank the number of its component: ranks of equal number are connected by evidence.
        errors_ns: For each rank half of the 95 % interval of its clock, or None with too little evidence.
        shared: For each rank the number of its clock: ranks with one number have no error against each other.
        rooted: Whether there are operations whose members do not all wait for the last to arrive, or not from their own arrival on.
        rows: For each rank the rows of its `collectives`.
        steps_notes: What a reader of the steps must know.
        log_matches: How NCCL's logs fit each rank.
        matching_score: How sure it is which ranks communicate, from 0 to 1; None if there is no communication.
        matching_reason: One sentence why it is not sure; None if it is.
        doubted: For each rank whose times are in doubt, and that is therefore not matched, the reason.
    """

    signature: str
    groups: tuple[Group, ...]
    clocks: tuple[Clock, ...]
    stamp_errors_ns: dict[int, int]
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    components: dict[int, int] = field(default_factory=dict)
    errors_ns: dict[int, int | None] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    rooted: bool = False
    rows: dict[int, int] = field(default_factory=dict)
    steps_notes: tuple[str, ...] = ()
    log_matches: tuple[LogMatch, ...] = ()
    matching_score: float | None = None
    matching_reason: str | None = None
    doubted: dict[int, str] = field(default_factory=dict)


@dataclass
class Joined:
    """What came of the logs of a run."""

    texts: set[str] = field(default_factory=set)  # that the tables refer to now
    matches: list[LogMatch] = field(default_factory=list)
    named: int = 0  # operations of which a log names the communicator

    @property
    def complete(self) -> bool:
        """Whether the logs name the communicator of nearly every operation of every rank."""
        operations = sum(m.operations for m in self.matches)
        lacking = any(m.operations and m.reason is not None for m in self.matches)
        return operations > 0 and not lacking and self.named >= NEARLY_ALL * operations
