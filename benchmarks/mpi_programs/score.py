"""Compares what alltrace makes of recordings of MPI programs with the programs' own records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import alltrace
from alltrace.run.importer import import_reports
from benchmarks.mpi_programs.truth import instances, looks_like_another, message_bytes, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.mpi_programs.truth import Instance, Key, Record

WAIT_SHARE, WAIT_NS = 0.05, 200_000
"""A wait is right within this share of the record's or this time."""


@dataclass
class Judgement:
    """How many operations, waits and sizes are as in the record.

    Of the other operations `partial` are seen in part, and `split` in several parts. `sizes_ambiguous` of the messages
    have sizes that the recording cannot tell: of all-reduces and all-gathers in place that look like others.
    """

    planted: int = 0
    right: int = 0
    partial: int = 0
    split: int = 0
    wait_ns: int = 0
    record_wait_ns: int = 0
    waits: int = 0
    waits_right: int = 0
    sizes: int = 0
    sizes_right: int = 0
    sizes_ambiguous: int = 0

    def add(self, other: Judgement) -> None:
        """Add the counts of `other`."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Score:
    """The judgements of one recording, by part (a communicator, operations that only begin, messages) and operation.

    `wrong` is the number of groups of calls that no operation consists of, `clock_error_ns` the largest difference
    between aligned clocks of two ranks, which the records write on one.
    """

    name: str
    parts: dict[tuple[str, str], Judgement] = field(default_factory=lambda: defaultdict(Judgement))
    wrong: int = 0
    clock_error_ns: int = 0
    notes: tuple[str, ...] = ()

    def total(self, *parts: str) -> Judgement:
        """The sum over the named parts; over all if none is named."""
        whole = Judgement()
        for (part, _kind), judgement in self.parts.items():
            if not parts or part in parts:
                whole.add(judgement)
        return whole


@dataclass(frozen=True)
class Recorded:
    """What alltrace made of a recording: by the number of each call, its match, its wait, and its size."""

    groups: tuple[Key, ...]
    wait_ns: dict[tuple[Key, int], int]
    sizes: dict[tuple[int, int], int | None]
    clock_error_ns: int
    notes: tuple[str, ...]


def imported(folder: Path, run_folder: Path, records: dict[int, Record]) -> Recorded:
    """Import the reports in `folder` and align them."""
    if not run_folder.exists():
        import_reports([str(p) for p in sorted(folder.glob("rank*.sqlite*"))], run_folder, jobs=1)
    run = alltrace.open(run_folder)
    aligned = run.aligned()
    numbers = {rank: _numbers(aligned.run.rank(rank), record) for rank, record in records.items()}
    members: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    rows = aligned.members.select(["instance", "rank", "arrival_ns", "wait_ns", "op"])
    for instance, rank, start, wait, op in zip(*(rows.column(c).to_pylist() for c in rows.column_names), strict=True):
        members[instance].append((rank, numbers[rank][start], (op == "Send") - (op == "Recv"), wait))
    groups, waits = [], {}
    for group in members.values():
        key = frozenset((rank, number, way) for rank, number, way, _wait in group)
        groups.append(key)
        waits.update({(key, rank): wait for rank, _number, _way, wait in group})
    sizes = {}
    for rank in records:
        table = aligned.collectives(rank)
        for start, size in zip(table.column("api_start").to_pylist(), table.column("bytes").to_pylist(), strict=True):
            sizes[rank, numbers[rank][start]] = size
    return Recorded(tuple(groups), waits, sizes, _clock_error_ns(numbers, records), aligned.notes)


def _clock_error_ns(numbers: dict[int, dict[int, int]], records: dict[int, Record]) -> int:
    """The largest difference between ranks of what aligned calls are ahead of the records', by each rank's median."""
    ahead = []
    for rank, found in numbers.items():
        calls = records[rank].calls
        ahead.append(
            int(
                np.median([start - calls[number].start_ns for start, number in found.items() if calls[number].start_ns])
            )
        )
    return max(ahead) - min(ahead)


def _numbers(rank: Any, record: Record) -> dict[int, int]:
    """The number in the record of the call that starts at a time: both list the calls of one thread in order.

    Some calls are not recorded, and one call may be several rows of equal start.
    """
    table = rank.table("mpi", ["start", "end", "name"])
    ids = table.column("name").combine_chunks().dictionary_encode()
    texts = np.array(rank.texts(ids.dictionary).to_pylist(), object)
    names = texts[ids.indices.to_numpy()]
    known = {c.name for c in record.calls}
    starts = {(s, n) for s, n in zip(table.column("start").to_pylist(), names.tolist(), strict=True) if n in known}
    ordered = sorted(starts)
    recorded = {n for _start, n in ordered}
    calls = [c for c in record.calls if c.name in recorded]
    if [n for _start, n in ordered] != [c.name for c in calls]:
        raise ValueError(f"rank {record.rank}: the calls of the report are not those of the program's record")
    return {start: call.number for (start, _name), call in zip(ordered, calls, strict=True)}


def scored(folder: Path, run_folder: Path) -> Score:
    """The score of the recording in `folder`."""
    records = read_records(folder)
    truth = instances(records)
    found = imported(folder, run_folder, records)
    score = Score(folder.name, clock_error_ns=found.clock_error_ns, notes=found.notes)
    planted = {i.key for i in truth}
    members = {member for key in planted for member in key}
    whole = set(found.groups)
    halves = {i.key: [g for g in whole if g < i.key] for i in truth if i.key not in whole}
    subsets = {g for parts in halves.values() for g in parts}
    score.wrong = sum(1 for g in found.groups if g not in planted and g not in subsets and len(g) > 1 and g & members)
    for instance in truth:
        score.parts[part_of(instance), instance.kind].add(
            _judged(instance, found, whole, len(halves.get(instance.key, [])))
        )
    return score


def part_of(instance: Instance) -> str:
    """The part of a score that an operation counts in."""
    if instance.message:
        return "messages"
    if instance.begins_only:
        return "non-blocking"
    return {"even": "halves", "odd": "halves"}.get(instance.communicator, instance.communicator)


def _judged(instance: Instance, found: Recorded, whole: set[Key], pieces: int) -> Judgement:
    judgement = Judgement(planted=1, right=instance.key in whole, partial=pieces > 0, split=pieces > 1)
    for rank, call in instance.members.items():
        if rank not in instance.unclear:
            expected, measured = instance.wait_ns(rank), found.wait_ns.get((instance.key, rank), 0)
            judgement.record_wait_ns += expected
            judgement.wait_ns += measured
            judgement.waits += 1
            near = abs(measured - expected) <= max(WAIT_NS, WAIT_SHARE * expected)
            judgement.waits_right += judgement.right and near
        size = message_bytes(call, instance.ranks)
        if size is not None and looks_like_another(call, size, len(instance.ranks)):
            judgement.sizes_ambiguous += 1
        elif size is not None:
            judgement.sizes += 1
            judgement.sizes_right += found.sizes.get((rank, call.number)) == size
    return judgement
