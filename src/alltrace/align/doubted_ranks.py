"""Ranks whose times cannot be compared: the clock of their file steps, or their times have another unit.

Members of a communicator leave its operations together, in one order. So the ends of a rank, less the median end of all
members, are constant but for a drift. Where all ranks of a host step, the host's clock was set, which the fit of the
clocks considers (`alltrace.align.clock_jumps`); a single file that steps was recorded wrongly. A rank in doubt is
neither matched nor compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from alltrace.align.clock_jumps import step_of
from alltrace.align.matching import Matching
from alltrace.align.placed_ranks import PlacedRank
from alltrace.trace.arrays import Floats, Int64

_LEAST_STEP_NS = 1_000_000
_LEAST_RATE = 0.01
"""Clocks do not differ by more than this; times do if they have another unit."""
_BINS = 8
_FEWEST = 32


def doubted_ranks(matching: Matching, ranks: Sequence[PlacedRank], known: Mapping[int, str]) -> dict[int, str]:
    """The reason for each rank whose times are in doubt, such as "its clock steps by 5 ms"; if most are, the known ones.

    Ranks whose times are `known` to be in doubt are in no operation.
    """
    found: dict[int, str] = {}
    communicators = list(_communicators(matching))
    while 2 * (len(known) + len(found)) < len(ranks):
        worst = _most_off(
            [
                (np.delete(who, drop := np.flatnonzero(np.isin(who, list(found)))), np.delete(ends, drop, axis=0))
                for who, ends in communicators
            ]
        )
        if worst is None:
            of_host: dict[str, set[int]] = {}
            for placed in ranks:
                of_host.setdefault(placed.host, set()).add(placed.rank)
            stepped = set().union(*(its for its in of_host.values() if len(its) > 1 and its <= found.keys()))
            return {**known, **{rank: why for rank, why in found.items() if rank not in stepped}}
        found[worst[0]] = worst[1]
    return dict(known)


def _communicators(matching: Matching) -> Iterator[tuple[Int64, Floats]]:
    """Of each named communicator the ranks with as many operations as most, and their ends (ranks, operations).

    The times of a rank are from its middle one on, because reports have zeros of their own. One of which the operations
    are matched a number of places apart is left out: its reports do not begin at the same operation.
    """
    timelines = matching.timelines
    kinds = timelines.kinds
    for group in range(timelines.first_inferred):
        its = (kinds.communicator == group) & (kinds.paired == 0) & kinds.synchronising & ~kinds.early
        members = np.unique(kinds.member[its]).tolist()
        rows = [np.flatnonzero(its[timelines.of(m).kind]) for m in members]
        if len(members) < 2:
            continue
        counts = np.array([len(r) for r in rows])
        usual = int(np.bincount(counts).argmax())
        chosen = np.flatnonzero(counts == usual).tolist()
        if usual < _FEWEST or len(chosen) < 2:
            continue
        ends = np.stack([timelines.of(members[n]).end[rows[n]] for n in chosen]).astype(np.float64)
        instance = np.stack([matching.instance[members[n]][rows[n]] for n in chosen])
        matched = instance >= 0
        first = np.full(int(instance.max(initial=0)) + 1, -1)
        place = np.arange(usual) + 0 * instance
        first[instance[matched]] = place[matched]
        apart = np.abs(first[instance[matched]] - place[matched])
        if not len(apart) or 2 * np.bincount(apart)[1:].max(initial=0) <= len(apart):
            ends -= np.median(ends, axis=1, keepdims=True)
            yield np.array([timelines.rank_of(members[n]) for n in chosen], np.int64), ends


def _most_off(communicators: Sequence[tuple[Int64, Floats]]) -> tuple[int, str] | None:
    """The rank that is off in most of its communicators, and why; None if no rank is, or not one alone."""
    off: dict[int, list[tuple[float, str]]] = {}
    every: dict[int, int] = {}
    for who, ends in communicators:
        if len(who) < 2:
            continue
        typical = np.median(ends, axis=0)
        for number, own in zip([int(n) for n in who], ends, strict=True):
            every[number] = every.get(number, 0) + 1
            others = typical if len(who) > 2 else ends.sum(axis=0) - own
            reason = _reason(others, own - others)
            if reason is not None:
                off.setdefault(number, []).append(reason)
    if not off:
        return None
    shares = {rank: len(its) / every[rank] for rank, its in off.items()}
    (apart, why), worst = max((max(off[rank]), rank) for rank in off if shares[rank] == max(shares.values()))
    if sum(2 * max(off[rank])[0] > apart for rank in off if shares[rank] == shares[worst]) > 1:
        return None  # of two it is not known which
    return worst, why


def _reason(others: Floats, late: Floats) -> tuple[float, str] | None:
    """How far off ends are that are late against the others', ns, and why they are in doubt, if they are."""
    levels = np.array([np.median(part) for part in np.array_split(late, _BINS)])
    apart, took = float(np.ptp(levels)), float(others[-1] - others[0])
    if apart < _LEAST_STEP_NS or took <= 0:
        return None
    step = step_of(others, late)
    if step is not None and abs(step[1]) >= _LEAST_STEP_NS:
        when = (step[0] - float(others[0])) / 1e9
        return apart, f"its clock steps by {step[1] / 1e6:,.1f} ms against the others', {when:.3f} s after its first operation"
    rate = 1 + float(late[-1] - late[0]) / took
    if abs(rate - 1) < _LEAST_RATE:
        return None
    return apart, f"its clock runs {rate:.2f} times as fast as the others'"
