"""What happened on one rank in true time, as integer columns; filled by the engine, read by the writers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_VALUE = -1
ALL_STREAMS = -1
"""The stream of a wait for the whole context."""


class Names:
    """Texts numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


class Rows:
    """Rows of int64 columns, gathered singly or in blocks; the first column is the time they are sorted by."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._singles: list[tuple[int, ...]] = []
        self._blocks: list[NDArray[np.int64]] = []
        self._sorted: NDArray[np.int64] | None = None

    def add(self, *values: int) -> None:
        self._singles.append(values)

    def add_block(self, *values: NDArray[np.int64] | int) -> None:
        """Many rows at once: each value an array of one length, or a number for all rows."""
        length = next(len(value) for value in values if not isinstance(value, int))
        block = np.empty((length, len(self.columns)), np.int64)
        for place, value in enumerate(values):
            block[:, place] = value
        self._blocks.append(block)

    def _table(self) -> NDArray[np.int64]:
        if self._sorted is None or self._singles or self._blocks:
            parts = [np.array(self._singles, np.int64).reshape(-1, len(self.columns)), *self._blocks]
            if self._sorted is not None:
                parts.append(self._sorted)
            whole = np.concatenate(parts)
            self._sorted = whole[np.argsort(whole[:, 0], kind="stable")]
            self._singles, self._blocks = [], []
        return self._sorted

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        return self._made_of(self._table()[mask])

    def changed(self, column: str, values: NDArray[np.int64]) -> Rows:
        table = self._table().copy()
        table[:, self.columns.index(column)] = values
        return self._made_of(table)

    def _made_of(self, table: NDArray[np.int64]) -> Rows:
        rows = Rows(*self.columns)
        rows._blocks.append(table)
        return rows

    def __getitem__(self, column: str) -> NDArray[np.int64]:
        """A column, in the order of the first column's times."""
        return self._table()[:, self.columns.index(column)]

    def __len__(self) -> int:
        return len(self._singles) + sum(map(len, self._blocks)) + (0 if self._sorted is None else len(self._sorted))


# `name` numbers `names`, `kernel` is an index into `ALL_KERNELS`, `thread` is 0 for the main and 1 for the autograd
# thread; `correlation` ties API calls to what they started. A range's `domain` is 0 for the program's and 1 for NCCL's;
# its `payload` numbers `payloads` or is `NO_VALUE`, as a range's `end` is that never ends.
@dataclass
class Timeline:
    """One rank's events, in nanoseconds of true time since the job began."""

    names: Names = field(default_factory=Names)
    payloads: Names = field(default_factory=Names)
    kernels: Rows = field(default_factory=lambda: Rows("start", "end", "stream", "correlation", "kernel"))
    copies: Rows = field(
        default_factory=lambda: Rows("start", "end", "stream", "correlation", "bytes", "kind", "source", "target")
    )
    memsets: Rows = field(default_factory=lambda: Rows("start", "end", "stream", "correlation", "bytes"))
    api: Rows = field(default_factory=lambda: Rows("start", "end", "thread", "correlation", "name"))
    graphs: Rows = field(default_factory=lambda: Rows("start", "end", "stream", "correlation", "graph"))
    syncs: Rows = field(default_factory=lambda: Rows("start", "end", "stream", "correlation", "type"))
    ranges: Rows = field(default_factory=lambda: Rows("start", "end", "thread", "name", "domain", "payload"))
    osrt: Rows = field(default_factory=lambda: Rows("start", "end", "thread", "name"))
    mpi: Rows = field(default_factory=lambda: Rows("start", "end", "thread", "name"))

    @property
    def tables(self) -> dict[str, Rows]:
        return {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if isinstance(getattr(self, f.name), Rows)
        }

    def keep(self, chosen: Callable[[str, Rows], NDArray[np.bool_] | None]) -> Timeline:
        """Another timeline with some of the events."""
        # `chosen`: says for a table, by name, which rows stay; None for all.
        tables: dict[str, Any] = {}
        for name, rows in self.tables.items():
            mask = chosen(name, rows) if len(rows) else None
            tables[name] = rows if mask is None else rows.where(mask)
        return dataclasses.replace(self, **tables)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first start and the last end of any event; 0 and 1 if there is none."""
        tables = [t for t in self.tables.values() if len(t)]
        if not tables:
            return 0, 1
        return min(int(t["start"].min()) for t in tables), max(int(t["end"].max()) for t in tables)


def covered_ns(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """The length of the union of the intervals `[starts, ends)`, in any order."""
    if len(starts) == 0:
        return 0
    order = np.argsort(starts, kind="stable")
    first, last = starts[order], ends[order]
    reached = np.concatenate(([first[0]], np.maximum.accumulate(last)[:-1]))
    return int(np.maximum(last - np.maximum(first, reached), 0).sum())
