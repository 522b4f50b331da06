"""Which operations of a communicator are one instance: all members call its operations in the same order.

The n-th operation of one member is the n-th of every other, unless a recording begins or ends elsewhere or lost some.
So each member is laid along the one with most operations: a path of shifts, on which kinds agree and no member ends
before another has started. That law holds for operations that no member can leave before the last has arrived; ends
only decide between paths that it leaves. What finds no place there is laid along each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.align.constants import SHORTEST_NS
from alltrace.core import sequences
from alltrace.trace.arrays import Flags, Floats, Int64, nearest
from alltrace.trace.distinct import distinct_rows, occurrences, rows_by

_SHIFTS = 32
_ALONE, _LATE, _CHANGE = 4.0, 3.0, 6.0
"""What an operation without a partner costs, one that ends far from its partner, and another shift."""
_FEW = 8
_LOOSE = 0.25
"""In distances of successive ends: four times that to the nearest; 1 for ranks that do not wait for each other."""
_ROUNDS = 8
_FARTHEST_NS = 2e9
"""Clocks that nothing relates are off by no more."""


class Member(NamedTuple):
    """The operations of a communicator on one of its members, in order: arrays of n, ns on the common clock."""

    op: Int64  # -1 for a message
    size: Int64  # -1 if unknown
    start: Floats
    end: Floats
    meets: Flags  # no member can leave the operation before the last has arrived
    way: Int64  # of a message of MPI, which a sender need not wait for, 1 for a send and -1 for a receive; else 0
    number: Int64  # sequence number, -1 without one
    clock: int  # equal for members whose times can be compared
    error_ns: float  # how far the common clock may be off
    together: bool = True  # members call them in one order, and are not only streams that do the same

    def take(self, rows: NDArray[np.intp]) -> Member:
        arrays = ("op", "size", "start", "end", "meets", "way", "number")
        return self._replace(**{name: getattr(self, name)[rows] for name in arrays})


def matched(counts: Sequence[int], member: Callable[[int], Member]) -> list[Int64]:
    """For each member the instance of each operation, -1 without a partner; two members are in memory at once."""
    instances = [np.full(count, -1, np.int64) for count in counts]
    clock = [member(k).clock for k in range(len(counts))]
    several = len(set(clock)) < len(clock)  # then those that nothing relates to these are of another run
    following = 0
    for its in rows_by(np.array(clock)).values() if several else [np.arange(len(counts))]:
        following = _match(its.tolist(), member, instances, following)
    return instances


def _match(members: Sequence[int], member: Callable[[int], Member], instances: list[Int64], following: int) -> int:
    """Give members whose clocks are related their instances, numbered on from one; the number after the last."""
    scatter_ns: dict[int, float] = {}
    for _ in range(_ROUNDS):
        left = {k: np.flatnonzero(instances[k] < 0) for k in members}
        open_members = [k for k, rows in left.items() if len(rows)]
        if len(open_members) < 2:
            break
        first = max(open_members, key=lambda k: (len(left[k]), -k))
        reference = member(first).take(left[first])
        used = np.zeros(len(reference.op), np.bool_)
        for k in open_members:
            if k == first:
                continue
            own = member(k).take(left[k])
            usual = [scatter_ns[j] for j in (first, k) if j in scatter_ns]
            if usual:  # what is left over shows no scatter
                place, _ = laid_along(reference, own, max(usual))
            else:
                place, scatter_ns[k] = laid_along(reference, own)
            fits = place >= 0
            instances[k][left[k][fits]] = following + place[fits]
            used[place[fits]] = True
        if not used.any():
            break
        instances[first][left[first][used]] = following + np.flatnonzero(used)
        following += len(used)
    return following


def positions(reference: Member, own: Member) -> Int64:
    """For each operation of a member its place in the reference's, -1 without one; places ascend."""
    return laid_along(reference, own)[0]


def laid_along(reference: Member, own: Member, scatter_ns: float | None = None) -> tuple[Int64, float]:
    """The places of `positions`, and how far ends of partners are usually apart.

    This is given in `scatter_ns` where these are only some of the operations.
    """
    n, m = len(reference.op), len(own.op)
    if (reference.number >= 0).all() and (own.number >= 0).all():
        return _by_number(reference, own), 0.0
    comparable, whole = reference.clock == own.clock, scatter_ns is None
    if scatter_ns is None and n == m and (reference.op == own.op).all():
        near = np.abs(reference.end - own.end) < _FARTHEST_NS
        own = _moved(reference, own) if comparable else own
        ordered = (own.op >= 0) | (own.way != 0)
        lawful = (_lawful(reference, own, np.arange(n)) & ordered) | _close(reference, own) if comparable else near
        if lawful.all() and (own.together or not comparable or _in_order(reference, own)):
            return np.arange(n), float(np.median(np.abs(reference.end - own.end)))
    if not comparable:
        return np.full(m, -1, np.int64), 0.0
    shifts = _shifts(reference, own)
    place = np.arange(m) + shifts[:, None]
    inside = (place >= 0) & (place < n)
    at = np.clip(place, 0, n - 1)
    apart = np.abs(reference.end[at] - own.end)
    possible = inside & (reference.op[at] == own.op) & np.array([_lawful(reference, own, a) for a in at])
    if not possible.any():
        return np.full(m, -1, np.int64), 0.0
    least = np.where(possible, apart, np.inf).min(axis=0)
    if scatter_ns is None:
        scatter_ns = float(np.median(least[np.isfinite(least)]))
    scale = 4.0 * scatter_ns + SHORTEST_NS
    cost = apart / scale
    if own.together:
        hurried = _hurried(reference, own, at, cost)
        cost = np.where(hurried, np.where(own.op < 0, cost, _ALONE), np.minimum(cost, _LATE))
    other_size = (reference.size[at] != own.size) & (reference.size[at] >= 0) & (own.size >= 0)
    closest = other_size[cost.argmin(axis=0), np.arange(m)]
    for rows in rows_by(own.op).values():  # of some operations each member has its own size
        if not whole or 2 * closest[rows].mean() <= 1:
            cost[:, rows] = np.where(other_size[:, rows], _ALONE, cost[:, rows])
    cost = np.where(possible, np.minimum(cost, _ALONE), _ALONE)
    path = np.empty(m, np.int64)
    room, came = np.empty(len(shifts)), np.empty((m, len(shifts)), np.int32)
    sequences.cheapest_path(np.ascontiguousarray(cost), _CHANGE, room, came, path)
    columns = np.arange(m)
    partner = np.where(cost[path, columns] < _ALONE, at[path, columns], -1)
    partner = _ascending(partner, cost[path, columns])
    # between two that are sure, one alone can only be what is left there
    best, closest = at[cost.argmin(axis=0), columns], cost.min(axis=0)
    before = np.maximum.accumulate(partner)
    after = np.minimum.accumulate(np.where(partner >= 0, partner, n)[::-1])[::-1]
    fits = (partner < 0) & (closest < _LATE) & (best > before) & (best < after)
    partner = _ascending(np.where(fits, best, partner), np.where(fits, closest, cost[path, columns]))
    inside = (own.end >= reference.start.min()) & (own.start <= reference.end.max())
    if whole and inside.sum() >= _FEW and 2 * (partner[inside] >= 0).mean() < 1:
        partner[:] = -1  # chance pairs that many of other runs
    return partner, scatter_ns


def _in_order(reference: Member, own: Member) -> bool:
    """Whether none was lost: in order, operations end hardly farther away than the nearest, or most have no nearer one.

    Ranks of other communicators fall behind for some operations. Where the nearest are as far away as those of ranks
    that do not wait for each other, they show nothing.
    """
    least = np.empty(len(own.op))
    for op, rows in rows_by(own.op).items():
        ends = np.sort(reference.end[reference.op == op])
        least[rows] = np.abs(ends[nearest(ends, own.end[rows])] - own.end[rows])
    apart = np.abs(reference.end - own.end)
    usual = 4.0 * float(np.median(least)) + SHORTEST_NS
    if usual > _LOOSE * np.ptp(reference.end) / len(reference.end):
        return True
    nearer = (apart > 4.0 * usual) & (least <= usual)
    return bool(apart.mean() <= 4.0 * least.mean() + SHORTEST_NS or nearer.mean() <= 1 / 2)


def _moved(reference: Member, own: Member) -> Member:
    """A member at the least move of its times with which n-th operations meet, if a part of the distance is enough.

    Clocks that ends were related by are off by what these scatter, but none by as much as from one operation to the
    next.
    """
    meets = reference.meets & own.meets & (reference.end > reference.start) & (own.end > own.start)
    if not meets.any():
        return own
    least = float((reference.start - own.end)[meets].max())
    most = float((reference.end - own.start)[meets].min())
    move = min(max(0.0, least), most)
    if least > most or abs(move) > _LOOSE * float(np.median(np.diff(reference.end, prepend=reference.start[0]))):
        return own
    return own._replace(start=own.start + move, end=own.end + move)


def _close(reference: Member, own: Member) -> Flags:
    """Whether n-th ends are much closer to each other than to the next: none was lost, however clocks are off."""
    room = np.diff(reference.end, prepend=-np.inf, append=np.inf)
    return np.abs(reference.end - own.end) < _LOOSE * np.minimum(room[:-1], room[1:])


def _by_number(reference: Member, own: Member) -> Int64:
    """Places by operation and sequence number; operations that share one are taken in their order."""
    keys = []
    for member in (reference, own):
        # numbers fall where a communicator was made again under its name
        attempt = np.cumsum(np.concatenate(([0], np.diff(member.number) < 0)))
        key = np.stack((attempt, member.number, member.op))
        keys.append(np.concatenate((key, occurrences(*key)[None])))
    first, second = keys
    _by_time(reference, own, first, second)
    codes = np.unique(np.concatenate((first, second), axis=1), axis=1, return_inverse=True)[1].reshape(-1)
    known, wanted = codes[: first.shape[1]], codes[first.shape[1] :]
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)
    return np.where(known[order][at] == wanted, order[at], -1)


def _by_time(reference: Member, own: Member, first: Int64, second: Int64) -> None:
    """Number operations that share a sequence number by the nearest ends, unless both members have as many."""
    for key in (
        np.unique(second[:3, second[3] > 0], axis=1).T
        if (second[3] > 0).any()
        else np.unique(first[:3, first[3] > 0], axis=1).T
    ):
        theirs, mine = (np.flatnonzero((k[:3] == key[:, None]).all(axis=0)) for k in (first, second))
        if len(theirs) == len(mine):
            continue
        few, many, times, others, numbers = (
            (mine, theirs, own.end, reference.end, second)
            if len(mine) < len(theirs)
            else (theirs, mine, reference.end, own.end, first)
        )
        if len(few):
            nearest = np.abs(others[many][:, None] - times[few]).argmin(axis=0)
            numbers[3, few] = nearest if len(set(nearest.tolist())) == len(few) else numbers[3, few]


def _lawful(reference: Member, own: Member, at: Int64) -> Flags:
    """Whether neither of two operations ends before the other has started, where they are of those that meet.

    A receive does not end before its send has started.
    """
    error = reference.error_ns + own.error_ns
    late, early = reference.start[at] > own.end + error, own.start > reference.end[at] + error
    lasting = (reference.end[at] > reference.start[at]) & (own.end > own.start)
    broken = (late | early) & reference.meets[at] & own.meets & lasting
    return ~(broken | (late & (own.way < 0)) | (early & (own.way > 0)))


def _hurried(reference: Member, own: Member, at: Int64, late: Floats) -> Flags:
    """Whether two operations overlap for much less than others of their kind, whose transfer lies within the overlap.

    Some leave a rooted operation before others arrive, so it can be of any length.
    """
    overlap = np.minimum(reference.end[at], own.end) - np.maximum(reference.start[at], own.start)
    error = reference.error_ns + own.error_ns
    columns = np.arange(at.shape[1])
    best = late.argmin(axis=0)
    usual = np.zeros(at.shape[1])
    for rows in rows_by(distinct_rows(own.op, own.size)[1]).values():
        sure = rows[late[best[rows], rows] < 1.0]
        if len(sure) >= _FEW:
            usual[rows] = np.quantile(overlap[best, columns][sure], 0.1)
    return (overlap + error < usual / 2) & ((own.op < 0) | own.meets)


def _shifts(reference: Member, own: Member) -> Int64:
    """The shifts that are tried: those at which most ends are nearest to each other, and those at the ends of both."""
    n, m = len(reference.op), len(own.op)
    order = np.argsort(reference.end, kind="stable")
    shift, votes = np.unique(order[nearest(reference.end[order], own.end)] - np.arange(m), return_counts=True)
    best = shift[np.argsort(-votes, kind="stable")[:_SHIFTS]]
    return np.unique(np.concatenate((best, best - 1, best + 1, [0, n - m])))


def _ascending(place: Int64, cost: Floats) -> Int64:
    """Places without those that do not ascend: of two the dearer one is left out."""
    result = place.copy()
    last = -1
    for j in np.flatnonzero(place >= 0).tolist():
        while last >= 0 and result[last] >= result[j]:
            if cost[last] <= cost[j]:
                result[j] = -1
                break
            result[last] = -1
            earlier = np.flatnonzero(result[:last] >= 0)
            last = int(earlier[-1]) if len(earlier) else -1
        if result[j] >= 0:
            last = j
    return result
