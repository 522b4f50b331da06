"""Puts any number of records into order in bounded memory: sorted runs on disk, merged block by block."""

from __future__ import annotations

import bisect
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alltrace.core.text import gather_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from alltrace.export.record_bytes import Records
    from alltrace.trace.arrays import Int64

    Int32 = NDArray[np.int32]
    Bytes = NDArray[np.uint8]

_HELD_BYTES = 8 << 20
_ALONE_RECORDS = 1 << 13
_MERGED_RECORDS = 150_000
_LEAST_RECORDS = 256
_FEW_RUNS = 8
_MOST_RUNS = 4_000


class KeptRuns(NamedTuple):
    """A file of sorted runs that its sorter has left there for another one.

    Attributes:
        path: The file.
        places: Where the runs are in it.
    """

    path: str
    places: list[Any]


class DiskSorter(ABC):
    """A container for any number of records: some are in memory, the rest in sorted runs on disk.

    Args:
        path: A file to keep sorted runs in; it and those that its name is the beginning of are removed at the end of the block.
    """

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
    def _runs_of(self, file: int | str, places: list[Any]) -> list[Any]:
        """The runs at some places of a file, to be read."""

    @staticmethod
    @abstractmethod
    def _ordered(parts: list[Any]) -> Any:
        """The output of `blocks` for records from memory or from runs: all of them, in order."""

    @staticmethod
    def _part(block: Any) -> Any:
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
        if len(level.places) >= _MOST_RUNS:
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
        runs = [run for kept in self._others for run in self._runs_of(*kept)]
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


class Sorter(DiskSorter):
    """Takes records with keys in any order, and returns their bytes in the order of the keys; equal keys stay in input order."""

    def add(self, keys: Int64, records: Records) -> None:
        """Add n records with their int64 keys; many that are in order already are the cheapest."""
        if not len(keys):
            return
        part = keys, records.lengths.astype(np.int32), records.data
        if len(keys) >= _ALONE_RECORDS and np.all(keys[1:] >= keys[:-1]):
            self._flush()
            self._add_run([part])
            return
        self._held.append(part)
        self._size += len(records.data) + 12 * len(keys)
        if self._size >= _HELD_BYTES:
            self._flush()

    def blocks(self, most_bytes: int | None = None) -> Iterator[memoryview]:
        """The bytes of all records, in order, in blocks of whole records.

        Args:
            most_bytes: The greatest size of a block of more than one record; None for as many as come at once.
        """
        for _, lengths, data in self._in_order():
            if most_bytes is None or len(data) <= most_bytes:
                yield data.data
                continue
            ends = np.cumsum(lengths, dtype=np.int64)
            first = 0
            while first < len(data):
                one, fitting = np.searchsorted(ends, (first, first + most_bytes), "right").tolist()
                end = int(ends[max(one, fitting - 1)])
                yield data[first:end].data
                first = end

    def _run_file(self, path: Path) -> RunFile:
        return _RunFile(path)

    def _runs_of(self, file: int | str, places: list[Any]) -> list[_Run]:
        return [_Run(file, first, blocks) for first, blocks in places]

    @staticmethod
    def _ordered(parts: list[tuple[Int64, Int32, Bytes]]) -> tuple[Int64, Int32, Bytes]:
        """Keys, lengths and bytes of all parts, in the order of the keys."""
        if len(parts) == 1 and np.all(parts[0][0][1:] >= parts[0][0][:-1]):
            return parts[0]
        keys, lengths, text = (np.concatenate([p[i] for p in parts]) for i in range(3))
        order = np.argsort(keys, kind="stable")
        out = np.empty(len(text), np.uint8)
        gather_records(text, np.cumsum(lengths, dtype=np.int64) - lengths, lengths, order, out)
        return keys[order], lengths[order], out


class _RunFile(RunFile):
    """A run is one or more blocks of keys, lengths and bytes."""

    def add(self, parts: Iterable[tuple[Int64, Int32, Bytes]]) -> None:
        first, blocks = 0, list[tuple[int, int]]()
        for keys, lengths, data in parts:
            first = first if blocks else int(keys[0])
            blocks.append((len(keys), self.end))
            for part in (np.ascontiguousarray(keys), lengths, data):
                self.write(part.view(np.uint8).data)
        if blocks:
            self.places.append((first, blocks))


class _Run:
    """A sorted run with the first key `first`, and its records that are in memory."""

    def __init__(self, file: int | str, first: int, blocks: list[tuple[int, int]]) -> None:
        self.first = first
        self._file, self._blocks = file, blocks
        self._block = self._next = self._data = 0
        self.keys = np.empty(0, np.int64)
        self.lengths = np.empty(0, np.int32)
        self.text = np.empty(0, np.uint8)

    @property
    def unread(self) -> bool:
        return self._block < len(self._blocks)

    @property
    def last(self) -> int:
        """The last key in memory."""
        return int(self.keys[-1])

    def read(self, room: int) -> None:
        """Read until `room` records are in memory."""
        while len(self.keys) < room and self.unread:
            whole, start = self._blocks[self._block]
            count = min(room - len(self.keys), whole - self._next)
            keys = read_bytes(self._file, 8 * count, start + 8 * self._next).view(np.int64)
            lengths = read_bytes(self._file, 4 * count, start + 8 * whole + 4 * self._next).view(np.int32)
            size = int(lengths.sum())
            text = read_bytes(self._file, size, start + 12 * whole + self._data)
            self._next += count
            self._data += size
            if self._next == whole:
                self._block, self._next, self._data = self._block + 1, 0, 0
            if len(self.keys):
                keys, lengths = np.concatenate((self.keys, keys)), np.concatenate((self.lengths, lengths))
                text = np.concatenate((self.text, text))
            self.keys, self.lengths, self.text = keys, lengths, text

    def take(self, bound: int | None) -> tuple[Int64, Int32, Bytes]:
        """The records in memory with keys below `bound`, which are then removed; all of them for None."""
        count = len(self.keys) if bound is None else int(np.searchsorted(self.keys, bound))
        size = int(self.lengths[:count].sum())
        taken = self.keys[:count], self.lengths[:count], self.text[:size]
        self.keys, self.lengths, self.text = self.keys[count:], self.lengths[count:], self.text[size:]
        return taken


def merged(runs: list[Any], ordered: Callable[[list[Any]], Any]) -> Iterator[Any]:
    """What `ordered` makes of the records of all runs, block by block; equal keys are in one block.

    Args:
        runs: Sorted runs, as `_Run`; of equal keys those of the first run come first.
        ordered: Sorts the records of the runs in a block.

    A run is opened when its first key is near, as most cover a short time: so few are open at once, and each is read in
    large pieces.
    """
    waiting = sorted(enumerate(runs), key=lambda r: (-r[1].first, -r[0]))
    runs.clear()
    opened: list[tuple[int, Any]] = []  # with their places among the runs, which is the order of equal keys
    while opened or waiting:
        room = max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened)))
        for _, run in opened:
            if run.unread and 2 * len(run.keys) <= room:
                run.read(room)
        bound = min((run.last for _, run in opened if run.unread), default=None)
        held = sum(len(run.keys) for _, run in opened)
        lowest = min((int(run.keys[0]) for _, run in opened), default=None)
        while waiting:
            first = waiting[-1][1].first
            if lowest is not None and first > (bound if bound is not None else lowest if held >= _MERGED_RECORDS else first):
                break
            number, run = waiting.pop()
            bisect.insort(opened, (number, run), key=_place)
            run.read(max(_LEAST_RECORDS, _MERGED_RECORDS // max(_FEW_RUNS, len(opened))))
            held += len(run.keys)
            lowest = first if lowest is None else min(lowest, first)
            if run.unread:
                bound = run.last if bound is None else min(bound, run.last)
        if bound is None and waiting:  # all open runs are in memory; records up to the next run's first key are complete
            bound = waiting[-1][1].first
        taken = [run.take(bound) for _, run in opened if bound is None or run.keys[0] < bound]
        if taken:
            yield ordered(taken)
        else:
            for _, run in opened:  # more equal keys than fit
                if run.unread and run.last == bound:
                    run.read(len(run.keys) + room)
        opened = [(number, run) for number, run in opened if run.unread or len(run.keys)]


def _place(run: tuple[int, Any]) -> int:
    return run[0]


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
