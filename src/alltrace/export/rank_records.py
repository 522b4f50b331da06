"""The records of each rank, made by a separate task in any process; the exporter merges the files of the tasks."""

import os
import platform
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from alltrace.align.aligned import Aligned
from alltrace.export.selection import Selection, SentSelection
from alltrace.export.slices import Flow, Members, flow_of, members_across
from alltrace.export.sorted_records import Sorter
from alltrace.export.tasks import results_of
from alltrace.export.tracks import Tracks, tracks_of
from alltrace.export.viewer_tracks import Track, ViewerTracks
from alltrace.run.sorted_runs import KeptRuns


class WrittenRank(NamedTuple):
    placed: ViewerTracks  # the viewer's tracks
    slices: int  # how many slices there are
    counters: dict[str, int]  # the counters by label, with their numbers among the tracks
    head: bytes = b""  # what the file has of the rank ahead of its records


class RankWriter(Protocol):
    def rank(self, tracks: Tracks, across: Flow | None, sorter: Sorter) -> WrittenRank:
        """Give the sorter all records of a rank; `across` are its members of collectives."""


class RankRecords(NamedTuple):
    tracks: Tracks
    placed: list[tuple[int, Track]]  # the viewer's tracks by number, in the order in which they are shown
    slices: int  # how many slices there are
    beside: int  # how many of them crossed others
    counters: dict[str, int]  # as in `WrittenRank`
    runs: list[KeptRuns]
    head: bytes  # as in `WrittenRank`


def rank_records(
    selection: Selection,
    writer: Callable[[Selection], RankWriter],
    folder: Path,
    aligned: Aligned | None,
    jobs: int | None,
) -> list[RankRecords]:
    # `writer`: makes a writer, once in each process; a class, or a `functools.partial` of one. `folder`: where to put
    # the records; workers of a cluster must see it. `aligned`: the alignment, for what connects ranks; None for none.
    members = {} if aligned is None else members_across(selection, aligned)
    sent = SentSelection(selection)
    work = _Work(writer, sent, folder.absolute())
    items = [(rank.rank, members.get(rank.rank)) for rank in selection.ranks]
    return results_of(work, items, sent, jobs, folder)


class _Work:
    """The task of one rank; goes to each process once."""

    def __init__(self, writer: Callable[[Selection], RankWriter], sent: SentSelection, folder: Path) -> None:
        self._make = writer
        self._sent = sent
        self._folder = folder

    @cached_property
    def _writer(self) -> RankWriter:
        return self._make(self._sent.selection)

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_sent": self._sent, "_folder": self._folder}

    def __call__(self, item: tuple[int, Members | None], advance: Callable[[int], None]) -> RankRecords:
        number, members = item
        selection = self._sent.selection
        tracks = tracks_of(selection, selection.run.rank(number).record)
        across = None if members is None else flow_of(members, tracks, selection.zero_ns)
        # a task may run again elsewhere while what is left of its first worker still writes
        name = f"rank-{number}-{platform.node()}-{os.getpid()}"
        with Sorter(self._folder / name) as sorter:
            written = self._writer.rank(tracks, across, sorter)
            numbered = [(n, written.placed.tracks[n]) for n in written.placed.in_order()]
            advance(1)
            return RankRecords(
                tracks, numbered, written.slices, written.placed.beside, written.counters, sorter.keep(), written.head
            )
