"""What the order of launches shows: ids without meaning, a clock that steps back, calls after their kernel.

Ids rise from call to call of a thread, and kernels of a stream run in the order of their launches. So one with a higher
id and an earlier time comes after a step of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.run.pieces import Piece
from alltrace.trace.arrays import Int64, blocks, integers
from alltrace.trace.distinct import distinct_rows

Flags = NDArray[np.bool_]

_MANY = 50
_SHARE_IN_ORDER = 0.9
_SHARED_IDS = 4  # a call of the runtime and those of the driver within it may share an id
_BITS = 40  # where the process begins in a process and correlation id as one number
_PLACES = 16  # how many places in a table of ids cost as much as the search for one
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
    late: Flags | None = None  # the calls that begin long after what they launched or the call behind them, if few; None for none


def launch_order(piece: Piece, calls: Int64 | None, kernels: Int64 | None, suspect: Mapping[str, Flags]) -> LaunchOrder:
    """What is wrong with the launches of a report; `suspect`: the rows that have other times than they should."""
    if calls is None or len(calls) < _MANY:
        return LaunchOrder()
    own = _ids(piece, "api", suspect)
    known = own >= 0
    if np.count_nonzero(known) < _MANY:
        return LaunchOrder()
    low, high = int(own.min(where=known, initial=_UNKNOWN)), int(own.max())
    in_order = (np.diff(own) > 0).mean() > _SHARE_IN_ORDER
    if not (in_order and _SHARED_IDS * (high - low) > len(own)) and _SHARED_IDS * len(np.unique(own)) < len(own):
        return LaunchOrder(unjoined=True)
    if high - low > _PLACES * len(own):  # several processes, or ids far apart
        numbers = np.unique(own)
        own = np.searchsorted(numbers, own)
        others = None if kernels is None else _places(numbers, _ids(piece, "kernels", suspect))
        low, high = 0, len(numbers) - 1
    else:
        others = None if kernels is None else _ids(piece, "kernels", suspect)
    back_ns, late_rows = _order(piece, "api", own, calls)
    late = np.zeros(len(own), np.bool_)
    if others is not None and kernels is not None:
        back_ns = max(back_ns, _order(piece, "kernels", others, kernels)[0])
        first = np.full(high - low + 1, _UNKNOWN)
        rows = slice(None, None, -1) if known.all() else np.flatnonzero(known)[::-1]
        first[own[rows] - low] = calls[rows]  # of calls with one id the outer one is the first of its thread
        inside = (others >= low) & (others <= high)
        launched = first[np.where(inside, others - low, 0)]
        behind = inside & (launched != _UNKNOWN) & (launched > kernels + _STEP_NS)
        if behind.any():
            late = np.isin(own, others[behind])
    late[late_rows] = True
    number = np.count_nonzero(late)
    if back_ns or not number or number > max(_FEW, _FEW_SHARE * len(own)):
        return LaunchOrder(back_ns=back_ns)
    return LaunchOrder(late=late)


def _ids(piece: Piece, name: str, suspect: Mapping[str, Flags]) -> Int64:
    """A table's correlation ids, in one number with the process where there are several; -1 for none or suspect."""
    ids = integers(piece.read(name, ["correlation"]).column("correlation"), -1)
    if name in suspect:
        ids = np.where(suspect[name], -1, ids)
    if piece.processes == 1:
        return ids
    return np.where(ids > 0, integers(piece.read(name, ["process"]).column("process"), 0) << _BITS | ids, ids)


def _places(numbers: Int64, ids: Int64) -> Int64:
    """The place of each id among ascending numbers; -1 for an id that is not among them."""
    at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
    return np.where(numbers[at] == ids, at, -1)


def _order(piece: Piece, name: str, ids: Int64, starts: Int64) -> tuple[int, Int64]:
    """By how much the starts of calls of a thread, or of kernels of a stream, step back in the order of their ids, at most.

    0 if they do not, or few are before or after the step. And the rows of single ones that begin after those behind
    them. The table is in order of threads or streams, and of starts in each.
    """
    none = np.empty(0, np.int64)
    back_rows = np.flatnonzero((ids[1:] < ids[:-1]) & (ids[1:] >= 0))
    if not len(back_rows):
        return 0, none
    table = piece.read(name, _SERIAL[name])
    here, behind = (table.take(pa.array(rows)).columns for rows in (back_rows, back_rows + 1))
    same = [integers(a, -1) == integers(b, -1) for a, b in zip(here, behind, strict=True)]
    inside = back_rows[np.logical_and.reduce(same)]
    if not len(inside):  # as in most reports: ids are lower only where the next thread or stream begins
        return 0, none
    columns = [column for column in table.columns if len(pc.unique(column)) > 1]
    track = distinct_rows(*(integers(column, -1) for column in columns))[1] if columns else np.zeros(len(ids), np.int8)
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
