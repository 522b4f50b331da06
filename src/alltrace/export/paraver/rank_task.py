"""One rank of a Paraver trace as a separate task: it packs the lines, and the process that merges them writes them."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from alltrace.export.paraver.lines import Form
from alltrace.export.paraver.pairing import Ends
from alltrace.export.paraver.records import RecordWriter
from alltrace.export.paraver.survey import Survey
from alltrace.export.paraver.task import Task
from alltrace.export.selection import SentSelection
from alltrace.export.sorted_rows import RowSorter
from alltrace.export.tracks import Tracks
from alltrace.readers.paraver.labels import Profile
from alltrace.run.sorted_runs import KeptRuns
from alltrace.trace.arrays import Int64


class PackedTask(NamedTuple):
    """The lines of a rank, packed."""

    runs: list[KeptRuns]
    shapes: list[tuple[int, Form]]  # their shapes, by number
    counts: dict[str, int]  # how many states, events and communications there are
    types: set[int]  # the types of the events
    mpi: list[tuple[bool, Ends]]  # the sends and receives of MPI, to pair with those of other ranks


@dataclass(frozen=True)
class RankTask:
    """Packs the lines of single ranks; goes to each process once."""

    sent: SentSelection  # what is exported
    survey: Survey  # the values of names
    profile: Profile  # the numbers of types
    objects: int  # how many objects the trace has
    folder: Path  # where to put the lines
    details: bool  # also the geometry and correlation of launches
    demangled: bool  # whether kernels have their full name

    def __call__(self, item: tuple[Tracks, Int64], advance: Callable[[int], None]) -> PackedTask:
        """The lines of a rank, by its tracks and their objects."""
        tracks, objects = item
        # a task may run again elsewhere while what is left of its first worker still writes
        name = f"rank-{tracks.rank.rank}-{platform.node()}-{os.getpid()}"
        scratch = self.folder / f"{name}-sorting"
        scratch.mkdir(exist_ok=True)
        try:
            with RowSorter(self.folder / name, 2) as sorter:
                writer = RecordWriter(sorter, self.objects)
                task = Task(
                    self.sent.selection, tracks, objects, self.survey, self.profile, writer, scratch,
                    details=self.details, demangled=self.demangled,
                )  # fmt: skip
                task.write()
                advance(1)
                return PackedTask(sorter.keep(), writer.lines.shapes, writer.counts, writer.types, task.mpi)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
