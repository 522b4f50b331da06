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
    """A communicator over all ranks."""

    number: int
    name: str  # what the profiler calls it (a hash, a handle), or how it was inferred
    ranks: tuple[int, ...]  # ascending, as far as reports are there
    size: int  # as the profiler reports, or the number of members seen
    found_by: str = "ids"  # `ids` if the profiler names it, `logs` if NCCL's logs do, `structure` if it was inferred
    score: float = 1.0  # how well it explains its operations, from 0 to 1
    messages: bool = False  # it has sends and receives and nothing else
    all_to_all: bool = False  # most operations are exchanges of each member with every other, as of experts


@dataclass(frozen=True)
class Alignment:
    signature: str  # of its inputs; with other ranks, rows or another version, it is computed again
    groups: tuple[Group, ...]
    clocks: tuple[Clock, ...]  # one per host
    stamp_errors_ns: dict[int, int]  # for each rank what its own UTC stamp is ahead of its host's clock
    unmatched: dict[int, int]  # for each rank the number of operations without a partner
    notes: tuple[str, ...]  # what a reader must know, each one sentence
    components: dict[int, int] = field(default_factory=dict)  # ranks of equal number are connected by evidence
    errors_ns: dict[int, int | None] = field(default_factory=dict)  # half of the 95 % interval of a clock
    shared: dict[int, int] = field(default_factory=dict)  # ranks with one number have no error against each other
    rooted: bool = False  # members of some operations do not wait for the last, or not from their own arrival on
    rows: dict[int, int] = field(default_factory=dict)  # of `collectives` of each rank
    steps_notes: tuple[str, ...] = ()
    log_matches: tuple[LogMatch, ...] = ()
    matching_score: float | None = None  # how sure it is which ranks communicate, 0 to 1; None without communication
    matching_reason: str | None = None  # why it is not sure
    doubted: dict[int, str] = field(default_factory=dict)  # for ranks that are not matched the reason


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
