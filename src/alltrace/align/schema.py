"""The facts of an alignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alltrace.run.manifest import Clock, LogMatch

SOURCES = ("kernels", "api", "ranges", "marks", "collectives", "mpi")
"""The event tables that an alignment is made from."""


@dataclass(frozen=True)
class Group:
    """A communicator over all ranks.

    Attributes:
        number: Its number.
        name: What the profiler calls it (a hash, a handle), or how it was inferred.
        ranks: Its member ranks, ascending, as far as reports are there.
        size: Its size as the profiler tells, or the number of members seen.
    """

    number: int
    name: str
    ranks: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Alignment:
    """The facts of an alignment.

    Attributes:
        signature: What it was made from; an alignment of other ranks, rows or another version is made anew.
        groups: The communicators.
        clocks: One per host.
        stamp_errors_ns: For each rank what its own UTC stamp is ahead of its host's clock.
        unmatched: For each rank the number of operations that found no partner.
        notes: What a reader must know, each one sentence.
        components: For each rank the number of its component: ranks of equal number are connected by evidence.
        residuals_ns: For each rank the typical error that remains, or None where there is too little evidence to tell.
        rows: For each rank the rows of its `collectives`.
        steps_notes: What a reader of the steps must know.
        log_matches: How NCCL's logs fit each rank.
    """

    signature: str
    groups: tuple[Group, ...]
    clocks: tuple[Clock, ...]
    stamp_errors_ns: dict[int, int]
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    components: dict[int, int] = field(default_factory=dict)
    residuals_ns: dict[int, int | None] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    steps_notes: tuple[str, ...] = ()
    log_matches: tuple[LogMatch, ...] = ()
