"""Why a rank is late: what it did from its arrival at a communicator's operation to that at the next, against its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.analysis.device_intervals import device_activity
from alltrace.recipes.analysis.range_stems import stems_of
from alltrace.run.clock import ClockMap
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.intervals import Merged, difference, exclusive, intersection, merge, overlap_ns, union

CAUSES = ("compute", "communication", "copy", "host")
"""What a rank does before it arrives: kernels run; none, but other communication; neither, but copies; its device is idle.

Kernels without a rule in which ranks meet are communication here.
"""

_ROUNDING_NS = 4
"""Of an operation: its time and its peers' are differences of times in whole ns, on clocks of different rates."""


@dataclass(frozen=True)
class Lateness:
    """What a rank did before each of its matched operations; arrays of k operations."""

    row: Int64  # rows of its `collectives`
    # int64 array (k, 4): time in each of `CAUSES` since the rank arrived at the communicator's previous operation, or
    # since the rank's first event
    before_ns: Int64
    compute: Merged  # when compute kernels ran while one of the operations did

    def placed(self, clock: ClockMap) -> Lateness:
        """What a rank in the time of its files did, on the run's clock."""
        return Lateness(self.row, clock.lengths(self.before_ns), Merged(*(clock.apply(times) for times in self.compute)))


def lateness(rank: Rank) -> Lateness:
    """What a rank did before each of its matched operations."""
    members = rank.shared("members")
    activity = device_activity(rank)
    compute, copies = (union([getattr(a, name) for a in activity]) for name in ("compute", "copies"))
    talk = union([part for a in activity for part in (a.communication, a.meeting)])
    if members is None or not members.num_rows:
        nothing = np.empty(0, np.int64)
        return Lateness(nothing, nothing.reshape(0, 4), merge(nothing, nothing))
    row, start, end, group = (members.column(c).to_numpy().astype(np.int64) for c in ("row", "start", "end", "communicator"))
    end = np.maximum(start, end)
    order = np.lexsort((end, start, group))
    row, start, end, group = row[order], start[order], end[order], group[order]
    first = min(int(start.min()), *(a.start_ns for a in activity)) if activity else int(start.min())
    again = np.concatenate(([False], group[1:] == group[:-1]))
    # from arrival to arrival: from the end on, ranks that had worked while they waited would seem to have less to do
    before = np.where(again, np.concatenate(([first], start[:-1])), first)
    before = np.minimum(before, start)
    spent = [overlap_ns(before, start, part) for part in exclusive([compute, talk, copies])]
    unknown = difference(rank.unrecorded(), union([compute, talk, copies]))
    host = start - before - sum(spent) - overlap_ns(before, start, unknown)
    if not activity and not rank.has("mpi"):
        host = np.zeros_like(host)  # what the devices did is not known
    return Lateness(row, np.stack([*spent, host], axis=1), intersection(compute, merge(start, end)))


@dataclass(frozen=True)
class Cause:
    """Why a rank is late."""

    name: str | None  # one of `CAUSES`, `mixed` if none has four fifths of the excess, or None if there is no excess
    share: float  # the share of the excess that the greatest class has
    # time beyond the peers' median in each of `CAUSES`, summed over the operations at which the rank was last
    excess_ns: tuple[int, ...]


def causes(instance: Int64, rank: Int64, last: Int64, before_ns: Int64) -> dict[int, Cause]:
    """The cause of each rank's lateness; `last`: the last rank of each member's instance, -1 if no wait counts."""
    if not len(instance):
        return {}
    firsts = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
    size = np.diff(np.concatenate((firsts, [len(instance)])))
    number = np.repeat(np.arange(len(firsts)), size)
    own = rank == last[firsts][number]
    others = size - np.bincount(number, own, len(firsts)).astype(np.int64)
    row = np.full(len(firsts), len(rank))
    np.minimum.at(row, number[own], np.flatnonzero(own))
    judged = np.flatnonzero((last[firsts] >= 0) & (others > 0) & (others < size))
    # the others' values of each instance in order, so that their median is at the middle
    peers = np.flatnonzero(~own)
    begin = (np.cumsum(others) - others)[judged]
    late_ns = before_ns[row[judged]].astype(np.float64)
    for column, values in enumerate(before_ns[peers].T):
        ordered = values[np.lexsort((values, number[peers]))]
        low, high = ordered[begin + (others[judged] - 1) // 2], ordered[begin + others[judged] // 2]
        late_ns[:, column] -= (low + high) / 2
    ranks, place = np.unique(last[firsts][judged], return_inverse=True)
    excess = np.stack([np.bincount(place, column, len(ranks)) for column in late_ns.T], axis=1)
    rounding_ns = _ROUNDING_NS * np.bincount(place, minlength=len(ranks))
    by_rank = {}
    for late, values, least in zip(ranks.tolist(), excess, rounding_ns.tolist(), strict=True):
        above = np.where(values > least, values, 0)
        whole = float(above.sum())
        share = float(above.max() / whole) if whole else 0.0
        name = None if not whole else CAUSES[int(above.argmax())] if share >= 0.8 else "mixed"
        by_rank[late] = Cause(name, share, tuple(int(v) for v in values))
    return by_rank


def host_range(rank: Any, begin: Int64, end: Int64) -> str | None:
    """The innermost range with half of the host's time while the rank's device was idle; None if there is none."""
    ranges = rank.table("ranges", ("start", "end", "name", "depth"))
    if not ranges.num_rows or not len(begin):
        return None
    busy = union([part for a in device_activity(rank) for part in (a.compute, a.communication, a.meeting, a.copies)])
    idle = difference(merge(begin, end), union([busy, rank.unrecorded()]))
    start, finish = (ranges.column(c).fill_null(0).to_numpy().astype(np.int64) for c in ("start", "end"))
    depth = ranges.column("depth").fill_null(0).to_numpy().astype(np.int64)
    idle_ns = overlap_ns(start, np.maximum(finish, start), idle)
    code, names = stems_of(rank, integers(ranges.column("name"), -1))
    named = np.array([name is not None for name in names], np.bool_)
    some = np.flatnonzero((idle_ns > 0) & named[code])
    if not len(some) or not idle.total_ns:
        return None
    keys, at = np.unique(np.stack([depth[some], code[some]]), axis=1, return_inverse=True)
    time = np.bincount(at.reshape(-1), idle_ns[some])
    enough = np.flatnonzero(time >= 0.5 * idle.total_ns)
    if not len(enough):
        return None
    best = enough[np.lexsort((time[enough], keys[0, enough]))[-1]]
    return names[int(keys[1, best])]
