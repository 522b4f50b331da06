"""The tables of an alignment, and its facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from alltrace.trace.schema import Column, Table

if TYPE_CHECKING:
    from alltrace.run.manifest import Clock, LogMatch

SOURCES = ("kernels", "api", "ranges", "marks", "collectives", "mpi")
"""The event tables that an alignment is made from."""

MEMBERS = Table(
    "members",
    "One rank's operation within a matched instance; an instance has at least two rows, of different ranks.",
    (
        Column("instance", "int64", None, "number of the instance, 0-based, in order of its first end"),
        Column("communicator", "int64", None, "number of the communicator over all ranks, row of `groups` in alignment.json"),
        Column("ordinal", "int64", None, "place of the instance among those of its communicator"),
        Column("rank", "int32", None, "rank"),
        Column("row", "int64", None, "row of the rank's `collectives`"),
        Column("start", "time", "ns", "start on the device, or of the call where only that is known; time of the rank's files"),
        Column("end", "time", "ns", "end, likewise"),
        Column("confidence", "float64", None, "1 for an identity from the profiler; less for an inferred match"),
    ),
    (),
    None,
)

STEPS = Table(
    "steps",
    "One training step of one rank.",
    (
        Column("rank", "int32", None, "rank"),
        Column("step", "int64", None, "number of the step, equal on all ranks; from the program's name of it where it has one"),
        Column("start", "time", "ns", "start on the host, time of the rank's files"),
        Column("end", "time", "ns", "end on the host"),
        Column("device_start", "time", "ns", "first start of the device work launched in it; null without any"),
        Column("device_end", "time", "ns", "last end of that work"),
        Column("kind", "enum", None, "step, warm-up or checkpoint"),
        Column("source", "enum", None, "what it was found by: range, kernels, collectives, or log for the training log"),
    ),
    (),
    None,
)


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
