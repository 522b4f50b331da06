"""Puts any number of records into order in bounded memory: sorted runs on disk, merged block by block.

It sorts the tables of an import (`run/sorting.py`), and the records and rows of exports.
"""

from __future__ import annotations

import bisect
import os
from abc import ABC, abstractmethod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

_MERGED_RECORDS = 150_000
_LEAST_RECORDS = 256
_FEW_RUNS = 8


class KeptRuns(NamedTuple):
    """A file of sorted runs that its sorter has left there for another one.

    Attributes:
        path: The file.
        places: Where the runs are in it.
    """

    path: str
    places: list[Any]


class SortedRun(Protocol):
    """A sorted run, and its records that are in memory; keys are of any type that compares."""

    @property
    def first(self) -> Any:
        """The key of its first record of all."""
        ...

    @property
    def unread(self) -> bool:
        """Whether there are more records than those in memory."""
        ...

    @property
    def head(self) -> Any:
        """The first key in memory."""
        ...

    @property
    def last(self) -> Any:
        """The last key in memory."""
        ...

    def __len__(self) -> int:
        """How many records are in memory."""
        ...

    def read(self, room: int) -> None:
        """Read until about `room` records are in memory."""
        ...

    def take(self, bound: Any) -> Any:
        """The records in memory with keys below `bound`, which are then removed; all of them for None."""
        ...


class DiskSorter(ABC):
    """A container for any number of records: some are in memory, the rest in sorted runs on disk.

    Args:
        path: A file to keep sorted runs in; it and those that its name is the beginning of are removed at the end of the block.

    Attributes:
        most_runs: Of so many runs one is made, which bounds memory.
    """

    most_runs: int = 4_000

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: list[Any] = []
        self._size = 0
        self._levels: list[RunFile] = []  # runs, then runs of merged runs, and so on
        self._others: list[KeptRuns] = []  # of other sorters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for level in self._levels:
            level.close()

    def keep(self) -> list[KeptRuns]:
        """Write all records to files, for `take` of another sorter, possibly in another process; empties the memory."""
        self._flush()
        kept = [KeptRuns(str(level.path), level.places) for level in reversed(self._levels)]
        for level in self._levels:
            os.close(level.file)
        self._levels = []
        return kept

    def take(self, kept: Iterable[KeptRuns]) -> None:
        """Add the files of other sorters, before any records added here; the caller removes the files."""
        self._others += kept

    @abstractmethod
    def _run_file(self, path: Path) -> RunFile:
        """A new file of runs."""

    @abstractmethod
    def _runs_of(self, file: int | str, places: list[Any]) -> Sequence[SortedRun]:
        """The runs at some places of a file, to be read."""

    @abstractmethod
    def _ordered(self, parts: list[Any]) -> Any:
        """The output of `blocks` for records from memory or from runs: all of them, in order."""

    def _part(self, block: Any) -> Any:
        """What a run holds of what `_ordered` made."""
        return block

    def _taken(self) -> list[Any]:
        """The records in memory, which are then removed from it."""
        held, self._held, self._size = self._held, [], 0
        return held

    def _flush(self) -> None:
        """Write a run of the records in memory."""
        if self._held:
            self._add_run([self._part(self._ordered(self._taken()))])

    def _add_run(self, parts: Iterable[Any], number: int = 0) -> None:
        """Append a run to a level; its runs become one of the next level once they are too many to be read at once."""
        if number == len(self._levels):
            self._levels.append(self._run_file(self._path.with_name(f"{self._path.name}.{number}")))
        level = self._levels[number]
        level.add(parts)
        if len(level.places) >= self.most_runs:
            runs = self._runs_of(level.file, level.places)
            self._add_run((self._part(block) for block in merged(runs, self._ordered)), number + 1)
            level.clear()

    def _in_order(self) -> Iterator[Any]:
        """What `_ordered` makes of all records, block by block."""
        if not self._levels and not self._others:
            if self._held:
                yield self._ordered(self._taken())
            return
        self._flush()
        runs: list[SortedRun] = [run for kept in self._others for run in self._runs_of(*kept)]
        runs += [run for level in reversed(self._levels) for run in self._runs_of(level.file, level.places)]
        yield from merged(runs, self._ordered)


class RunFile(ABC):
    """A file of sorted runs.

    Attributes:
        path: Where it is.
        file: Its descriptor.
        places: For each run its first key and its location.
        end: Bytes that were written.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.file: int = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.end: int = 0
        self.places: list[Any] = []

    @abstractmethod
    def add(self, parts: Iterable[Any]) -> None:
        """Append a run that is given in parts."""

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self.end += len(data)
        while len(data):
            data = data[os.write(self.file, data) :]

    def clear(self) -> None:
        """Forget all runs."""
        self.places = []
        self.end = 0
        os.ftruncate(self.file, 0)
        os.lseek(self.file, 0, os.SEEK_SET)

    def close(self) -> None:
        """Remove the file."""
        os.close(self.file)
        self.path.unlink(missing_ok=True)


def merged(runs: Sequence[SortedRun], ordered: Callable[[list[Any]], Any]) -> Iterator[Any]:
    """What `ordered` makes of the records of all runs, block by block; equal keys are in one block.

    Args:
        runs: The runs; of equal keys those of the first run come first.
        ordered: Sorts the records of the runs in a block.

    A run is opened when its first key is near, as most cover a short time: so few are open at once, and each is read in
    large pieces.
    """
    waiting = sorted(enumerate(runs), key=lambda r: (r[1].first, r[0]), reverse=True)
    opened: list[tuple[int, SortedRun]] = []  # with their places among the runs, which is the order of equal keys
    while opened or waiting:
        room = max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened)))
        for _, run in opened:
            if run.unread and 2 * len(run) <= room:
                run.read(room)
        bound = min((run.last for _, run in opened if run.unread), default=None)
        held = sum(len(run) for _, run in opened)
        lowest = min((run.head for _, run in opened), default=None)
        while waiting:
            first = waiting[-1][1].first
            if lowest is not None and first > (bound if bound is not None else lowest if held >= _MERGED_RECORDS else first):
                break
            number, run = waiting.pop()
            bisect.insort(opened, (number, run), key=itemgetter(0))
            run.read(max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened))))
            held += len(run)
            lowest = first if lowest is None else min(lowest, first)
            if run.unread:
                bound = run.last if bound is None else min(bound, run.last)
        if bound is None and waiting:  # all open runs are in memory; records up to the next run's first key are complete
            bound = waiting[-1][1].first
        taken = [run.take(bound) for _, run in opened if bound is None or run.head < bound]
        if taken:
            yield ordered(taken)
        else:
            for _, run in opened:  # more equal keys than fit
                if run.unread and run.last == bound:
                    run.read(len(run) + room)
        opened = [(number, run) for number, run in opened if run.unread or len(run)]


def read_bytes(file: int | str, size: int, at: int) -> NDArray[np.uint8]:
    """A piece of a temporary file, by its descriptor or its path: of very many files not all can be open at once."""
    if isinstance(file, str):
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_bytes(opened, size, at)
        finally:
            os.close(opened)
    found = np.empty(size, np.uint8)
    view = found.data
    done = 0
    while done < size:
        part = os.preadv(file, [view[done:]], at + done)
        if not part:
            raise OSError(f"a temporary file ended {size - done} bytes early")
        done += part
    return found
