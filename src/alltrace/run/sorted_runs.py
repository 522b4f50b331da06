"""Puts any number of records into order in bounded memory: sorted runs on disk, merged block by block.

It sorts the tables of an import (`run/sorting.py`), and the records and rows of exports.
"""

import bisect
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_MERGED_RECORDS = 150_000
_LEAST_RECORDS = 256
_FEW_RUNS = 8


class KeptRuns(NamedTuple):
    """A file of sorted runs that its sorter has left there for another one."""

    path: str
    runs: list[tuple[Any, list[Any]]]  # the first key and the places of each run


class Form(ABC):
    """How records are stored and ordered: a block is some records of a sorted run in memory."""

    @abstractmethod
    def pack(self, block: Any, at: int) -> tuple[Any, Iterable[Any]]:
        """What `read` needs to know of a block that is written `at` a place of a file, and its contiguous arrays."""

    @abstractmethod
    def read(self, file: int | str, place: Any, room: int) -> tuple[Any, Any]:
        """A block of about `room` of the records at a place, and the place of the rest; None if there is none."""

    @abstractmethod
    def key(self, block: Any, record: int) -> Any:
        """What one record of a block is compared by."""

    @abstractmethod
    def count(self, block: Any) -> int:
        """The number of records in a block."""

    @abstractmethod
    def before(self, block: Any, bound: Any) -> int:
        """How many records of a block have keys below `bound`."""

    @abstractmethod
    def cut(self, block: Any, first: int, last: int) -> Any:
        """Some records of a block."""

    @abstractmethod
    def ordered(self, blocks: list[Any]) -> Any:
        """All records of some blocks in order, as the sorter returns them; equal keys in the order of the blocks."""

    def blocks(self, ordered: Any) -> Iterable[Any]:
        """The same as blocks."""
        return [ordered]


class DiskSorter:
    """Any number of records, some in memory, the rest in sorted runs on disk at `path`, removed with the block."""

    most_runs: int = 4_000  # this many runs are merged into one, which bounds memory

    def __init__(self, path: Path, form: Form) -> None:
        self._path = path
        self._form = form
        self._held: list[Any] = []
        self._size = 0
        self._levels: list[RunFile] = []  # runs, then runs of merged runs, and so on
        self._others: list[KeptRuns] = []  # of other sorters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for level in self._levels:
            level.close()

    def keep(self) -> list[KeptRuns]:
        """Write all records to files, for `take` of another sorter, possibly in another process; empties the memory."""
        self._flush()
        runs = [KeptRuns(str(level.path), level.runs) for level in reversed(self._levels)]
        for level in self._levels:
            os.close(level.file)
        self._levels = []
        return runs

    def take(self, runs: Iterable[KeptRuns]) -> None:
        """Add the files of other sorters, before any records added here; the caller removes the files."""
        self._others += runs

    def _taken(self) -> list[Any]:
        """The records in memory, which are then removed from it."""
        records, self._held, self._size = self._held, [], 0
        return records

    def _flush(self) -> None:
        if self._held:
            self._add_run(self._form.blocks(self._form.ordered(self._taken())))

    def _add_run(self, blocks: Iterable[Any], number: int = 0) -> None:
        """Append a run to a level; its runs become one of the next level once they are too many to be read at once."""
        if number == len(self._levels):
            self._levels.append(RunFile(self._path.with_name(f"{self._path.name}.{number}")))
        level = self._levels[number]
        first: Any = None
        places: list[Any] = []
        for block in blocks:
            first = first if places else self._form.key(block, 0)
            place, arrays = self._form.pack(block, level.end)
            places.append(place)
            for array in filter(len, arrays):
                level.write(memoryview(array).cast("B"))
        if places:
            level.runs.append((first, places))
        if len(level.runs) >= self.most_runs:
            merged = self._merged(self._runs_of(level.file, level.runs))
            self._add_run((block for ordered in merged for block in self._form.blocks(ordered)), number + 1)
            level.clear()

    def _runs_of(self, file: int | str, runs: Iterable[tuple[Any, list[Any]]]) -> "list[Run]":
        return [Run(self._form, file, first, places) for first, places in runs]

    def _in_order(self) -> Iterator[Any]:
        """What `Form.ordered` makes of all records, block by block."""
        if not self._levels and not self._others:
            if self._held:
                yield self._form.ordered(self._taken())
            return
        self._flush()
        runs = [run for other in self._others for run in self._runs_of(*other)]
        runs += [run for level in reversed(self._levels) for run in self._runs_of(level.file, level.runs)]
        yield from self._merged(runs)

    def _merged(self, runs: "list[Run]") -> Iterator[Any]:
        """What `Form.ordered` makes of the records of all runs, block by block.

        Equal keys are in one block, in the order of the runs.

        A run is opened when its first key is near, as most cover a short time: so few are open at once, and each is
        read in large pieces.
        """
        waiting = sorted(enumerate(runs), key=lambda r: (r[1].first, r[0]), reverse=True)
        runs.clear()
        opened: list[tuple[int, Run]] = []  # with their places among the runs, which is the order of equal keys
        while opened or waiting:
            room = max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened)))
            for _, run in opened:
                if run.unread and 2 * run.count <= room:
                    run.read(room)
            bound = min((run.last for _, run in opened if run.unread), default=None)
            count = sum(run.count for _, run in opened)
            lowest = min((run.head for _, run in opened), default=None)
            while waiting:
                first = waiting[-1][1].first
                near = bound if bound is not None else lowest if count >= _MERGED_RECORDS else first
                if lowest is not None and first > near:
                    break
                number, run = waiting.pop()
                bisect.insort(opened, (number, run), key=itemgetter(0))
                run.read(max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened))))
                count += run.count
                lowest = first if lowest is None else min(lowest, first)
                if run.unread:
                    bound = run.last if bound is None else min(bound, run.last)
            # all open runs are in memory; up to the next run's first key they are complete
            if bound is None and waiting:
                bound = waiting[-1][1].first
            taken = [block for _, run in opened for block in run.take(bound)]
            if taken:
                yield self._form.ordered(taken)
            else:
                for _, run in opened:  # more equal keys than fit
                    if run.unread and run.last == bound:
                        run.read(run.count + room)
            opened = [(number, run) for number, run in opened if run.unread or run.count]


class RunFile:
    """A file of sorted runs, in a folder that is there: a task that ends late makes none that was removed."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.file: int = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)  # its descriptor
        self.runs: list[tuple[Any, list[Any]]] = []  # for each run its first key and the places of its blocks
        self.end: int = 0  # bytes that were written

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self.end += len(data)
        while len(data):
            data = data[os.write(self.file, data) :]

    def clear(self) -> None:
        """Forget all runs."""
        self.runs = []
        self.end = 0
        os.ftruncate(self.file, 0)
        os.lseek(self.file, 0, os.SEEK_SET)

    def close(self) -> None:
        """Remove the file."""
        os.close(self.file)
        self.path.unlink(missing_ok=True)


class Run:
    """A sorted run, and its records that are in memory."""

    def __init__(self, form: Form, file: int | str, first: Any, places: Iterable[Any]) -> None:
        self.first = first  # the key of its first record of all
        self.count = 0  # how many records are in memory
        self._form, self._file = form, file
        self._places = deque(places)
        self._blocks: deque[Any] = deque()

    @property
    def unread(self) -> bool:
        """Whether there are more records than those in memory."""
        return bool(self._places)

    @property
    def head(self) -> Any:
        """The first key in memory."""
        return self._form.key(self._blocks[0], 0)

    @property
    def last(self) -> Any:
        """The last key in memory."""
        return self._form.key(self._blocks[-1], -1)

    def read(self, room: int) -> None:
        """Read until about `room` records are in memory."""
        while self.count < room and self._places:
            block, rest = self._form.read(self._file, self._places.popleft(), room - self.count)
            if rest is not None:
                self._places.appendleft(rest)
            self._blocks.append(block)
            self.count += self._form.count(block)

    def take(self, bound: Any) -> Iterator[Any]:
        """The records in memory with keys below `bound`, which are then removed; all of them for None."""
        while self._blocks:
            block = self._blocks.popleft()
            count = self._form.count(block)
            before = count if bound is None or self._form.key(block, -1) < bound else self._form.before(block, bound)
            self.count -= before
            if before < count:
                self._blocks.appendleft(self._form.cut(block, before, count) if before else block)
                if before:
                    yield self._form.cut(block, 0, before)
                return
            yield block


def read_bytes(file: int | str, size: int, at: int) -> NDArray[np.uint8]:
    """A piece of a temporary file, by its descriptor or its path: of very many files not all can be open at once."""
    if isinstance(file, str):
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_bytes(opened, size, at)
        finally:
            os.close(opened)
    content = np.empty(size, np.uint8)
    view = content.data
    done = 0
    while done < size:
        part = os.preadv(file, [view[done:]], at + done)
        if not part:
            raise OSError(f"a temporary file ended {size - done} bytes early")
        done += part
    return content
