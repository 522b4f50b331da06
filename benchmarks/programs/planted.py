"""Which kernels are one operation: the truth about matching, of what the reports hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.programs.machine import Timeline
    from benchmarks.programs.model import Program

Member = tuple[int, int, int]
"""Rank of the process, place of the device among those of the process, number of the operation there, by start and
stream."""

_ALWAYS = 1 << 62


class Window(NamedTuple):
    """What is captured of a rank, in ns of true time: from `begin` to `end`, without what the profiler lost.

    Attributes:
        begin: The first instant.
        end: The first instant after it.
        lost: Intervals whose records of kernels, copies and calls were dropped.
    """

    begin: int = -_ALWAYS
    end: int = _ALWAYS
    lost: tuple[tuple[int, int], ...] = ()

    def contains(self, start: int) -> bool:
        """Whether an event that began then was captured."""
        return self.begin <= start < self.end

    def keeps(self, start: int) -> bool:
        """Whether it was captured and its record was not dropped."""
        return self.begin <= start < self.end and not any(a <= start < b for a, b in self.lost)


class Seen(NamedTuple):
    """A kernel of communication in a report.

    Attributes:
        rank: Of the process.
        device: Its place among the devices of the process, by their numbers.
        start: As in the report, ns.
        stream: As in the report.
        communicator: Its index in the program.
        number: Of the operation in the communicator.
    """

    rank: int
    device: int
    start: int
    stream: int
    communicator: int
    number: int


@dataclass(frozen=True)
class Planted:
    """The truth.

    Attributes:
        instances: The members of each operation of which at least two are recorded, by communicator and number.
        numbers: The member of each kernel, by rank, device, start and stream in the report.
        communicators: The communicator of each member.
    """

    instances: dict[tuple[int, int], frozenset[Member]]
    numbers: dict[tuple[int, int, int, int], Member]
    communicators: dict[Member, int]


def planted(seen: Iterable[Seen]) -> Planted:
    """The truth about the kernels of all reports."""
    by_device: dict[tuple[int, int], list[Seen]] = defaultdict(list)
    for kernel in seen:
        by_device[kernel.rank, kernel.device].append(kernel)
    numbers: dict[tuple[int, int, int, int], Member] = {}
    communicators: dict[Member, int] = {}
    members: dict[tuple[int, int], set[Member]] = defaultdict(set)
    for (rank, device), kernels in by_device.items():
        kernels.sort(key=lambda k: (k.start, k.stream))
        for number, kernel in enumerate(kernels):
            member = rank, device, number
            numbers[rank, device, kernel.start, kernel.stream] = member
            communicators[member] = kernel.communicator
            members[kernel.communicator, kernel.number].add(member)
    instances = {key: frozenset(members_of) for key, members_of in members.items() if len(members_of) > 1}
    return Planted(instances, numbers, communicators)


def windows_of(program: Program, timeline: Timeline) -> list[Window]:
    """What is captured of each rank."""
    view = program.view
    ends = {step: max(rank[step] for rank in timeline.ends) for step in range(program.steps)}

    def instant(steps: float) -> int:
        step, part = divmod(steps, 1)
        before = ends[int(step) - 1] if step >= 1 else 0
        return int(before + part * (ends[min(int(step), program.steps - 1)] - before))

    windows = [Window() for _ in range(program.grid.ranks)]
    for rank, begin in view.late:
        windows[rank] = Window(instant(begin))
    for rank, begin, end in view.windows:
        windows[rank] = Window(instant(begin), instant(end) if end < program.steps else _ALWAYS)
    for rank, begin, end in view.dropped:
        windows[rank] = windows[rank]._replace(lost=(*windows[rank].lost, (instant(begin), instant(end))))
    return windows
