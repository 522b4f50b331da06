"""What the order of launches shows: ids without meaning, a clock that steps back, calls after their kernel.

Ids rise from call to call of a thread, and kernels of a stream run in the order of their launches. So one with a higher
id and an earlier time comes after a step of the clock.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.run.pieces import Piece
from alltrace.trace.arrays import Flags, Int64, blocks, integers
from alltrace.trace.distinct import distinct_rows

_MANY = 50
_SHARE_IN_ORDER = 0.9
_SHARED_IDS = 4
"""A call of the runtime and those of the driver within it may share an id."""
_BITS = 40
"""Where the process begins in a process and correlation id as one number."""
_BLOCK_IDS = 1 << 22
_PLACES = 16
"""How many places in a table of ids cost as much as the search for one."""
_STEP_NS = 1_000_000
"""Clocks of a host and its devices are less than this apart, and so are the stamp of a call and its id."""
_WRAP_NS, _NEAR_WRAP_NS = 1 << 32, 10**9  # where times of 32 bits begin again
_FEW, _FEW_SHARE = 3, 0.01
_WINDOW = 5
_SERIAL = {"api": ("process", "thread"), "kernels": ("process", "device", "stream")}
_UNKNOWN = np.iinfo(np.int64).max


class LaunchOrder(NamedTuple):
    """What is wrong with the launches of a report."""

    unjoined: bool = False  # whether calls share their ids with many others, which leaves none of them a meaning
    back_ns: int = 0  # by how much its clock steps back, at most; 0 if it does not
    late: Flags | None = (
        None  # the calls that begin long after what they launched or the call behind them, if few; None for none
    )


def launch_order(piece: Piece, tables: Container[str], suspect: Mapping[str, Flags]) -> LaunchOrder:
    """What is wrong with the launches of a report.

    `piece`: its tables. `tables`: those in which every row has a time. `suspect`: the rows of tables that have wrong
    times.
    """
    if "api" not in tables or piece.rows["api"] < _MANY:
        return LaunchOrder()
    own = _Launches(piece, "api", suspect)
    if own.known < _MANY:
        return LaunchOrder()
    apart = own.high - own.low
    in_order = own.rising > _SHARE_IN_ORDER * (own.rows - 1)
    if not (in_order and _SHARED_IDS * apart > own.rows) and _SHARED_IDS * len(np.unique(own.all())) < own.rows:
        return LaunchOrder(unjoined=True)
    numbers = None
    if apart > _PLACES * own.rows:  # several processes, or ids far apart
        numbers = np.unique(own.all())
        numbers = numbers[numbers >= 0]
        own = _Launches(piece, "api", suspect, numbers)
    back_ns, late = _order(piece, own)
    if "kernels" in tables:
        others = _Launches(piece, "kernels", suspect, numbers)
        back_ns = max(back_ns, _order(piece, others)[0])
        late = np.union1d(late, _behind_kernels(own, others))
    if back_ns or not len(late) or len(late) > max(_FEW, _FEW_SHARE * own.rows):
        return LaunchOrder(back_ns=back_ns)
    flags = np.zeros(own.rows, np.bool_)
    flags[late] = True
    return LaunchOrder(late=flags)


class _Launches:
    """The ids of a table, each as one number with its process where there are several; -1 for none or a suspect row.

    `numbers`: ascending ids; the place among them is then what an id is.
    """

    def __init__(self, piece: Piece, name: str, suspect: Mapping[str, Flags], numbers: Int64 | None = None) -> None:
        self.name, self.rows = name, piece.rows[name]
        self.known = self.rising = 0  # how many rows have an id, and how many a higher one than the row before
        self.low, self.high = _UNKNOWN, -1  # of the ids
        self._piece, self._wrong, self._numbers = piece, suspect.get(name), numbers
        self._parts: list[tuple[int, int, int]] = []  # of each part the first row, and the lowest and the highest id
        falls, row, before = [], 0, -1
        for ids, _ in self._read():
            has_id = ids >= 0
            low, high = int(ids.min(where=has_id, initial=_UNKNOWN)), int(ids.max())
            step = np.diff(ids, prepend=before)
            self.known += int(np.count_nonzero(has_id))
            self.rising += int(np.count_nonzero(step[0 if row else 1 :] > 0))
            self.low, self.high = min(self.low, low), max(self.high, high)
            falls.append(row + np.flatnonzero((step < 0) & has_id))
            self._parts.append((row, low, high))
            before, row = int(ids[-1]), row + len(ids)
        self.falls: Int64 = np.concatenate(falls)  # the rows with a lower id than the row before

    def all(self) -> Int64:
        """The ids of all rows."""
        return np.concatenate([ids for ids, _ in self._read()])

    def between(self, low: int, behind: int) -> Iterator[tuple[Int64, Int64, Int64]]:
        """Rows, ids and starts of those with an id from `low` to before `behind`, some at a time, in order."""
        chosen = [n for n, (_, least, most) in enumerate(self._parts) if least < behind and most >= low]
        for number, (ids, part) in zip(chosen, self._read(chosen), strict=True):
            rows = np.flatnonzero((ids >= low) & (ids < behind))
            yield self._parts[number][0] + rows, ids[rows], integers(part.column("start"))[rows]

    def _read(self, chosen: Sequence[int] | None = None) -> Iterator[tuple[Int64, pa.Table]]:
        """The ids of each part, and what was read for them; of `chosen` parts with the starts."""
        columns = [
            "correlation",
            *(["process"] if self._piece.processes != 1 else []),
            *(["start"] if chosen is not None else []),
        ]
        row = 0
        for at, part in enumerate(self._piece.parts(self.name, columns, chosen=chosen)):
            ids = integers(part.column("correlation"), -1)
            if self._wrong is not None:
                first = row if chosen is None else self._parts[chosen[at]][0]
                ids = np.where(self._wrong[first : first + len(ids)], -1, ids)
            if "process" in columns:
                ids = np.where(ids > 0, integers(part.column("process"), 0) << _BITS | ids, ids)
            yield ids if self._numbers is None else _places(self._numbers, ids), part
            row += len(ids)


def _behind_kernels(own: _Launches, others: _Launches) -> Int64:
    """The rows of the calls that begin long after a kernel that they launched, found for some ids at a time."""
    late = [np.empty(0, np.int64)]
    first = np.empty(min(_BLOCK_IDS, own.high + 1 - own.low), np.int64)
    for low in range(own.low, own.high + 1, _BLOCK_IDS):
        behind = low + len(first)
        first.fill(_UNKNOWN)
        for _, ids, starts in own.between(low, behind):
            fresh = np.flatnonzero(first[ids - low] == _UNKNOWN)[::-1]
            first[ids[fresh] - low] = starts[fresh]  # of calls with one id the outer one is the first of its thread
        early = [np.empty(0, np.int64)]
        for _, ids, starts in others.between(low, behind):
            launched = first[ids - low]
            early.append(ids[(launched != _UNKNOWN) & (launched > starts + _STEP_NS)])
        if len(wrong := np.concatenate(early)):
            late += [rows[np.isin(ids, wrong)] for rows, ids, _ in own.between(low, behind)]
    return np.concatenate(late)


def _places(numbers: Int64, ids: Int64) -> Int64:
    """The place of each id among ascending numbers; -1 for an id that is not among them."""
    at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
    return np.where(numbers[at] == ids, at, -1)


def _order(piece: Piece, launches: _Launches) -> tuple[int, Int64]:
    """By how much the starts of calls of a thread, or of kernels of a stream, step back in the order of ids, at most.

    0 if they do not, or few are before or after the step. And the rows of single ones that begin after those behind
    them. The table is in order of threads or streams, and of starts in each.
    """
    none = np.empty(0, np.int64)
    if not len(launches.falls):
        return 0, none
    columns = _SERIAL[launches.name]
    rows = np.union1d(launches.falls - 1, launches.falls)
    at = np.searchsorted(rows, launches.falls)
    tracks = [integers(column, -1) for column in piece.take(launches.name, columns, rows).columns]
    inside = launches.falls[np.logical_and.reduce([track[at] == track[at - 1] for track in tracks])]
    if not len(inside):  # as in most reports: ids are lower only where the next thread or stream begins
        return 0, none
    ids, starts = launches.all(), piece.numbers(launches.name, "start")
    tracks = [
        track
        for column in columns
        if len(track := piece.numbers(launches.name, column, -1)) and (track != track[0]).any()
    ]
    track = distinct_rows(*tracks)[1] if tracks else np.zeros(len(ids), np.int8)
    back, late = 0, [none]
    for number in np.unique(track[inside]).tolist():
        rows = np.flatnonzero((track == number) & (ids >= 0))
        rows = rows[np.argsort(ids[rows], kind="stable")]
        its = starts[rows]
        if len(its) < 2 * _MANY:
            continue
        for some in blocks(len(its) - 2):
            before, own, behind = (its[some.start + n : some.stop + n] for n in range(3))
            late.append(rows[some.start + 1 + np.flatnonzero((own > behind + _STEP_NS) & (before <= behind))])
        windows = np.lib.stride_tricks.sliding_window_view(its, _WINDOW)
        steady = np.empty(len(windows), np.int64)  # without single ones
        for some in blocks(len(windows)):
            steady[some] = np.median(windows[some], axis=1)
        drops = np.flatnonzero(np.diff(steady) < -_STEP_NS) + 1
        drops = drops[(drops >= _MANY) & (drops <= len(steady) - _MANY)]
        if not len(drops):
            continue
        highest, later = np.maximum.accumulate(steady), np.maximum.accumulate(steady[::-1])[::-1]
        # the clock goes on, or began again at 0; ids of other calls would not
        wraps = np.abs(steady[drops - 1] - steady[drops] - _WRAP_NS) < _NEAR_WRAP_NS
        drops = drops[wraps | (later[drops] > highest[drops - 1])]
        back = max([back, *(int(-np.diff(its[drop - 1 : drop + _WINDOW + 1]).min()) for drop in drops.tolist())])
    return back, np.concatenate(late)
