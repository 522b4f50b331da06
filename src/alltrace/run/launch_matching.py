"""Which API call launched which GPU operation: of one process, and with one correlation id."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from alltrace.run.collecting import Growing
from alltrace.trace.arrays import Int64, integers

CALLS = ("start", "end", "process", "thread", "correlation")  # the columns of `api` that `match_launches` reads

_INT64_MAX = np.iinfo(np.int64).max
_PLACES = 16  # how many places in a table of all keys cost as much as the search for one operation


@dataclass(frozen=True)
class Launches:
    """The pairs of a GPU operation and an API call that launched it, grouped by call."""

    thread: Int64  # thread of each call that launched something
    start: Int64  # its start
    end: Int64  # its end
    correlation: Int64  # its correlation id
    row: Int64  # its row in the table `api`
    op: Int64  # rows of the operations, pair by pair
    many: Int64 | None  # how many operations each call launched; None if each launched one, so that pairs are calls

    def first_op(self) -> Int64:
        """For each call, the first of its pairs in `op`."""
        return np.arange(len(self.row), dtype=np.int64) if self.many is None else np.cumsum(self.many) - self.many

    def one_call_each(self) -> bool:
        """Whether no operation was launched by several calls: then no two calls of a process have one id."""
        launched = np.zeros(int(self.op.max(initial=-1)) + 1, np.bool_)
        launched[self.op] = True
        return bool(np.count_nonzero(launched) == len(self.op))

    def call_of_pair(self) -> Int64:
        """The call of each pair."""
        calls = np.arange(len(self.row), dtype=np.int64)
        return calls if self.many is None else np.repeat(calls, self.many)


def match_launches(calls: Iterable[Any], process: Int64, correlation: Int64) -> Launches:
    """Match operations with API calls, pieces of `api` with the columns `CALLS`; negative ids match none.

    Pairs of one call are in the order of the operations. An operation without a recorded call is in none.
    """
    operations = Operations(process, correlation)
    columns, pairs = Growing(5, operations.count), Growing(1, operations.count)
    counts: list[Int64 | int] = []  # of operations, of the calls of each piece; one number if each has one
    before = 0
    for piece in calls if operations.count else ():
        several, many, op = _matches(piece, before, operations)
        columns.add(*several)
        pairs.add(op)
        counts.append(len(op) if many is None else many)
        before += piece.num_rows
    many = None
    if not all(isinstance(count, int) for count in counts):
        many = np.concatenate([np.ones(c, np.int64) if isinstance(c, int) else c for c in counts])
    thread, start, end, ids, row = columns.columns()
    return Launches(thread, start, end, ids, row, pairs.columns()[0], many)


def _matches(calls: Any, before: int, operations: "Operations") -> tuple[tuple[Int64, ...], Int64 | None, Int64]:
    """The calls of a piece with operations, as the first columns of `Launches`, their numbers, and their operations.

    `before`: How many rows of `api` come before it.
    """
    ids = integers(calls.column("correlation"), -1)
    if calls.column("thread").null_count:
        ids = np.where(pc.is_valid(calls.column("thread")).to_numpy(), ids, -1)
    rows, many, op = operations.of(integers(calls.column("process")), ids)
    thread, start, end = (integers(calls.column(c), -1)[rows] for c in ("thread", "start", "end"))
    return (thread, start, end, ids[rows], rows + before), many, op


def correlations(table: Any, *, several: bool) -> Int64:
    """The correlation id of each row, -1 without one; with its process in it where several have their own counters."""
    ids = integers(table.column("correlation"), -1)
    return np.where(ids >= 0, ((integers(table.column("process"), -1) + 1) << 33) + ids, -1) if several else ids


class Operations:
    """Operations, to be found by process and correlation id of a call (negative for none); `count`: how many can be."""

    def __init__(self, process: Int64, correlation: Int64) -> None:
        rows = np.flatnonzero((correlation >= 0) & (process >= 0))
        self.count = len(rows)
        ids, of = (correlation, process) if self.count == len(process) else (correlation[rows], process[rows])
        self._processes = int(of.max(initial=0)) + 1
        self._width = int(ids.max(initial=0)) + 1
        self._distinct: Int64 | None = None
        if self._width > _INT64_MAX // self._processes:
            self._distinct = np.unique(ids)
            self._width = len(self._distinct)
        keys = self._keys(of, ids)
        places = self._width * self._processes
        self._place: Int64 | None = None  # of the one operation of each key
        self._first: Int64 | None = None  # of each key, in the operations by key
        if places <= _PLACES * len(rows):
            self._place = np.full(places + 1, -1, np.int64 if len(process) > np.iinfo(np.int32).max else np.int32)
            self._place[keys] = rows
            if np.count_nonzero(self._place >= 0) < len(rows):
                self._place = None
                self._count = np.bincount(keys, minlength=places + 1)
                self._first = np.cumsum(self._count) - self._count
        order = rows[:0] if self._place is not None else np.argsort(keys, kind="stable")
        self._sorted, self._by_key = keys[order], rows[order]

    def of(self, process: Int64, correlation: Int64) -> tuple[Int64, Int64 | None, Int64]:
        """The rows of calls that have operations, how many each has, None if all have one, and these, call by call."""
        keys = self._keys(process, correlation)
        if self._place is not None:
            place = self._place[keys]  # what has no key looks at the last place, which is empty
            rows = np.flatnonzero(place >= 0)
            return rows, None, place[rows].astype(np.int64)
        if self._first is not None:
            low, many = self._first[keys], self._count[keys]
        else:
            low = np.searchsorted(self._sorted, keys, side="left")
            many = np.searchsorted(self._sorted, keys, side="right") - low
        rows = np.flatnonzero(many)
        low, many = low[rows], many[rows]
        at = np.repeat(low - (np.cumsum(many) - many), many) + np.arange(int(many.sum()))
        return rows, many if len(at) > len(rows) else None, self._by_key[at]

    def _keys(self, process: Int64, correlation: Int64) -> Int64:
        """A number for each pair of a process and a correlation id that an operation can have; -1 for all others."""
        ids, have = correlation, correlation >= 0
        if self._distinct is not None:
            ids = np.searchsorted(self._distinct, correlation)
            have &= self._distinct[np.minimum(ids, self._width - 1)] == correlation
        have &= (ids < self._width) & (process >= 0) & (process < self._processes)
        keys = ids if self._processes == 1 else process * self._width + np.where(have, ids, 0)
        return keys if have.all() else np.where(have, keys, -1)
